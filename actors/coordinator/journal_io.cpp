#include "actors/coordinator/journal_io.hpp"

#include <utility>
#include "actors/end_process.hpp"

namespace skein::actors {

JournalIo::behavior_type journal_io(JournalIo::stateful_pointer<JournalIoState> self,
                                    std::shared_ptr<Journal> journal) {
  end_process_on_failure(*self);
  self->state.journal = std::move(journal);
  return {
      [self](const JournalRequest& request, const JournalListener& listener) {
        JournalIoState& state = self->state;
        absl::Status status = state.failure;
        if (status.ok()) status = state.journal->append(request.record);
        self->send(listener, CommitJournaled{request.record.step, std::move(status)});
      },
      [self](const plans::RewindJournal& rewind) {
        self->state.failure.Update(self->state.journal->rewind(rewind.first_step));
      },
      [self](const plans::Plan& plan) {
        self->state.failure.Update(self->state.journal->append_plan(plan));
      },
  };
}

}  // namespace skein::actors
