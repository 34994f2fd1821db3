#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plans/worker/commit_duties.hpp"
#include "plans/worker/worker_program.hpp"

namespace skein::plans {

/// The worker's part of steps that all replicas of the job do together. What they do of one, from
/// its beginning until every gradient is final, is for the pass: a state machine as `PipelinePass`.
///
///   1 idle:      waits for the start
///   2 pass:      computes and reduces gradients, then waits for the commit
///   3 update:    applies the committed step
///   4 duties:    saves and validates, if the commit says so; then 2 again
///   5 finished:  the last commit of the generation is carried out
template <class Pass>
class PassProgram : public WorkerProgram {
 public:
  ProgramOutcome on_start(const CommitOrder& left) override;
  ProgramOutcome on_input(const InputKey& key) override;
  ProgramCommands on_work_done() override;
  ProgramOutcome on_group_reduced(GroupId group, uint64_t step, int32_t bucket) override;
  ProgramOutcome on_commit(const CommitOrder& commit) override;

  std::optional<uint64_t> computed_step() const override;
  uint64_t sample_count(uint64_t /*step*/) const override { return samples_per_step_; }
  std::optional<uint64_t> awaited_commit() const override;
  uint64_t steps_done() const override { return steps_done_; }
  bool is_finished() const override { return phase_ == Phase::kFinished; }
  bool is_working() const override;
  std::string activity() const override;
  void check_invariants() const override;

 protected:
  PassProgram(const ProgramOptions& options, Pass pass);
  Pass& pass() { return pass_; }
  const Pass& pass() const { return pass_; }

 private:
  enum class Phase { kIdle, kPass, kUpdate, kDuties, kFinished };

  ProgramCommands begin_duties(const CommitOrder& commit);
  /// Leaves the committed step behind if nothing that it ordered is under way.
  ProgramCommands go_on();

  const uint64_t samples_per_step_;
  Phase phase_ = Phase::kIdle;
  Pass pass_;
  CommitDuties duties_;                // Under way in `kDuties` only.
  std::optional<CommitOrder> commit_;  // In `kUpdate` and `kDuties`: what is carried out.
  uint64_t steps_done_ = 0;            // The step in progress; the pass's in `kPass` and `kUpdate`.
};

}  // namespace skein::plans
