#pragma once

#include <memory>

#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/coordinator/journal.hpp"
#include "actors/messages.hpp"

namespace skein::actors {

/// Who hears that a commit is journaled.
using JournalListener = caf::typed_actor<caf::reacts_to<CommitJournaled>>;

/// Writes to the journal, which blocks on its file: spawn it detached.
///   in   JournalRequest    one committed step
///   in   RewindJournal, Plan   are written before any later commit; an error comes with that
///   out  CommitJournaled   to the listener, once per request, with the error if there was one
using JournalIo =
    caf::typed_actor<caf::reacts_to<JournalRequest, JournalListener>,
                     caf::reacts_to<plans::RewindJournal>, caf::reacts_to<plans::Plan>>;

struct JournalIoState {  // Owned by one actor; touched only from its handlers.
  static inline const char* name = "journal-io";
  std::shared_ptr<Journal> journal;
  absl::Status failure;  // Of a write that nobody waits for.
};

JournalIo::behavior_type journal_io(JournalIo::stateful_pointer<JournalIoState> self,
                                    std::shared_ptr<Journal> journal);

}  // namespace skein::actors
