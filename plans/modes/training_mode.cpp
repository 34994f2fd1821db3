#include "plans/modes/training_mode.hpp"

#include "plans/base/check.hpp"

namespace skein::plans {

ModeOutcome TrainingMode::on_reduced(WorkerId, ReplicaId, uint64_t, double, uint64_t) {
  return Dropped{DropReason::kUnexpected};
}

ModeOutcome TrainingMode::on_early_signal(WorkerId, ReplicaId, uint64_t, uint64_t) {
  return Dropped{DropReason::kUnexpected};
}

ModeOutcome TrainingMode::on_token(WorkerId, ReplicaId, uint64_t, int32_t, TokenEvent, uint64_t) {
  return Dropped{DropReason::kUnexpected};
}

ModeOutcome TrainingMode::on_averaged(WorkerId, ReplicaId, uint64_t, bool, uint64_t) {
  return Dropped{DropReason::kUnexpected};
}

ModeDecisions TrainingMode::on_timer(uint64_t) { return {}; }

ModeDecisions TrainingMode::lose(WorkerId worker, uint64_t) {
  SKEIN_CHECK(false) << "the mode does not survive the loss of " << worker;
  return {};
}

}  // namespace skein::plans
