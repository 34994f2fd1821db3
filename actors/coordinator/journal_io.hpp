#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <variant>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/coordinator/journal.hpp"
#include "actors/messages.hpp"

namespace skein::actors {

/// Who hears that a commit is journaled.
using JournalListener = caf::typed_actor<caf::reacts_to<CommitJournaled>>;
/// Who hears that a later life has begun.
using LaterLifeListener = caf::typed_actor<caf::reacts_to<LaterLifeBegun>>;

/// Writes to the journal. It blocks on its file one of the two threads that cooperative actors
/// share (`make_system_config`): every commit comes by here, and waking a thread of its own, and
/// the other one after it, would cost more than the decision. What cannot be written for now
/// (Unavailable: a full disk) is tried again until it can be, and what follows waits behind it.
///   in   JournalRequest    one committed step
///   in   RewindJournal, Plan   are written before any later commit; an error comes with that
///   in   LaterLifeRequest  answered with `LaterLifeBegun`, if that is so
///   in   TickAtom          from itself, when something is to be tried again
///   out  CommitJournaled   to the listener, once per request, with the error if there was one;
///                          and before that with `is_retried`, each time when it could not be
///                          written
using JournalIo =
    caf::typed_actor<caf::reacts_to<JournalRequest, JournalListener>,
                     caf::reacts_to<plans::RewindJournal>, caf::reacts_to<plans::Plan>,
                     caf::reacts_to<LaterLifeRequest, LaterLifeListener>, caf::reacts_to<TickAtom>>;

struct JournalIoState {  // Owned by one actor; touched only from its handlers.
  static inline const char* name = "journal-io";
  using Commit = std::pair<JournalRequest, JournalListener>;
  using Entry = std::variant<Commit, plans::RewindJournal, plans::Plan>;

  JournalIo::stateful_pointer<JournalIoState> self = nullptr;
  std::shared_ptr<Journal> journal;
  absl::Status failure;       // Of a write that nobody waits for.
  std::deque<Entry> waiting;  // In order. The coordinator has one commit on its way at most.
  bool retries = false;       // A TickAtom is on its way.

  void add(Entry entry);
  void write_all();
  absl::Status write(const Entry& entry);
};

JournalIo::behavior_type journal_io(JournalIo::stateful_pointer<JournalIoState> self,
                                    std::shared_ptr<Journal> journal);

}  // namespace skein::actors
