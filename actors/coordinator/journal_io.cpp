#include "actors/coordinator/journal_io.hpp"

#include <chrono>
#include <utility>

#include "actors/end_process.hpp"

namespace skein::actors {
namespace {

constexpr auto kRetry = std::chrono::milliseconds(500);

}  // namespace

JournalIo::behavior_type journal_io(JournalIo::stateful_pointer<JournalIoState> self,
                                    std::shared_ptr<Journal> journal) {
  end_process_on_failure(*self);
  self->state.self = self;
  self->state.journal = std::move(journal);
  return {
      [self](const JournalRequest& request, const JournalListener& listener) {
        self->state.add(JournalIoState::Commit{request, listener});
      },
      [self](const plans::RewindJournal& rewind) { self->state.add(rewind); },
      [self](const plans::Plan& plan) { self->state.add(plan); },
      [self](LaterLifeRequest, const LaterLifeListener& listener) {
        const absl::Status begun = self->state.journal->later_life_check()();
        if (!begun.ok()) self->send(listener, LaterLifeBegun{begun});
      },
      [self](TickAtom) {
        self->state.retries = false;
        self->state.write_all();
      },
  };
}

void JournalIoState::add(Entry entry) {
  waiting.push_back(std::move(entry));
  if (!retries) write_all();
}

void JournalIoState::write_all() {
  while (!waiting.empty()) {
    const absl::Status status = write(waiting.front());
    if (absl::IsUnavailable(status)) {
      for (const Entry& entry : waiting) {
        if (const auto* commit = std::get_if<Commit>(&entry)) {
          self->send(commit->second, CommitJournaled{commit->first.record.step, status, true});
        }
      }
      retries = true;
      return self->delayed_send(self, kRetry, TickAtom::value);
    }
    if (const auto* commit = std::get_if<Commit>(&waiting.front())) {
      self->send(commit->second, CommitJournaled{commit->first.record.step, status});
    } else {
      failure.Update(status);
    }
    waiting.pop_front();
  }
}

absl::Status JournalIoState::write(const Entry& entry) {
  if (const auto* commit = std::get_if<Commit>(&entry)) {
    return failure.ok() ? journal->append(commit->first.record) : failure;
  }
  if (const auto* rewind = std::get_if<plans::RewindJournal>(&entry)) {
    return journal->rewind(rewind->first_step);
  }
  return journal->append_plan(std::get<plans::Plan>(entry));
}

}  // namespace skein::actors
