#pragma once

#include <cstdint>
#include <vector>

#include "plans/coordinator/stage_sync.hpp"
#include "plans/modes/training_mode.hpp"
#include "plans/share/turn_naming.hpp"

namespace skein::plans {

/// All replicas do every step together: when every stage has reported and reduced its gradients,
/// the step is complete, and a commit is one step of the whole job. Members start their reductions
/// themselves. Source: DAPPLE, PPoPP'21.
class SynchronousSteps final : public TrainingMode {
 public:
  SynchronousSteps(const JobSpec& job, const Plan& plan);

  ModeDecisions begin(uint64_t first_step, uint64_t end_step, uint64_t now_us) override;
  ModeOutcome on_ready(WorkerId sender, const ReadyReport& report, uint64_t now_us) override;
  ModeOutcome on_reduced(WorkerId sender, ReplicaId replica, uint64_t step, double norm_squared,
                         uint64_t now_us) override;
  void on_turn_report(WorkerId, const TurnReport& report) override { turns_.on_report(report); }
  uint64_t name_turn() override { return turns_.name_next(); }
  bool awaits(ReplicaId replica) const override;
  ModeTimings last_timings() const override { return last_timings_; }
  void check_invariants() const override;

 private:
  ModeDecisions try_complete();
  ModeTimings timings() const;

  // Invariants: while a step is in progress some stage is not complete; otherwise no report is
  // taken.
  Plan plan_;
  std::vector<StageSync> stages_;  // [stages of the plan]
  uint64_t step_ = 0;              // In progress, or complete.
  bool is_in_progress_ = false;
  ModeTimings last_timings_;
  TurnNaming turns_;
};

}  // namespace skein::plans
