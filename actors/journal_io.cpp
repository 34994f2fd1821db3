#include "actors/journal_io.hpp"

#include <utility>

namespace skein::actors {

JournalIo::behavior_type journal_io(JournalIo::stateful_pointer<JournalIoState> self,
                                    std::shared_ptr<Journal> journal) {
  self->state.journal = std::move(journal);
  return {
      [self](const JournalRequest& request, const JournalListener& listener) {
        self->send(listener, CommitJournaled{request.record.step,
                                             self->state.journal->append(request.record)});
      },
  };
}

}  // namespace skein::actors
