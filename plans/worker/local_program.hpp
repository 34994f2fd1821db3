#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plans/worker/commit_duties.hpp"
#include "plans/worker/pipeline_pass.hpp"
#include "plans/worker/worker_program.hpp"

namespace skein::plans {

/// The worker's part of local updates: a pipeline replica does steps of its own, on samples that it
/// claims, and averages weights with others in groups that a policy forms. A round of such steps
/// ends in a global average, which is the state after some steps of the job.
///
///   1 idle:      waits for the start
///   2 pass:      computes gradients, then waits for the word to apply them
///   3 update:    applies its own update
///   4 average:   each stage waits for the word of its group, and for the group; then 2 again
///   5 pause:     there are no samples: waits for more, or takes the global average
///   6 commit:    has the global average, and waits for the commit of the job's steps behind it
///   7 duties:    saves and validates, if the commit says so; then 5 again
///   8 finished:  the last commit of the generation is carried out
///
/// Steps are counted from 0, but where the job's are named.
class LocalProgram final : public WorkerProgram {
 public:
  explicit LocalProgram(ProgramOptions options);

  ProgramOutcome on_start(const CommitOrder& left) override;
  ProgramOutcome on_input(const InputKey& key) override;
  ProgramCommands on_work_done() override;
  ProgramOutcome on_commit(const CommitOrder& commit) override;
  ProgramOutcome on_claim(const ClaimOrder& claim) override;
  ProgramOutcome on_update(const UpdateOrder& update) override;
  ProgramOutcome on_average(const AverageOrder& order) override;
  ProgramOutcome on_averaged(int32_t stage, uint64_t number, bool ok) override;

  bool averages_weights() const override { return true; }
  std::optional<uint64_t> computed_step() const override;
  uint64_t first_sample(uint64_t step, int32_t microbatch, const RowRange& rows) const override;
  uint64_t sample_count(uint64_t /*step*/) const override { return claim_.count; }
  uint64_t steps_done() const override { return steps_done_; }
  bool has_global_state() const override { return is_global_; }
  bool is_finished() const override { return phase_ == Phase::kFinished; }
  bool is_working() const override;
  std::string activity() const override;
  void check_invariants() const override;

  /// Its own: those that it has done, and the one in progress behind them.
  uint64_t step() const { return step_; }

 private:
  enum class Phase { kIdle, kPass, kUpdate, kAverage, kPause, kCommit, kDuties, kFinished };

  ProgramCommands begin_pass(const SampleClaim& claim);
  ProgramCommands begin_averaging();
  ProgramCommands end_step();
  ProgramCommands pause();
  ProgramCommands begin_duties(const CommitOrder& commit);
  ProgramCommands end_duties();
  ProgramCommands begin_early();
  void begin(const AverageOrder& order, ProgramCommands& commands);

  const uint64_t samples_per_step_;
  const std::vector<StageRole> stages_;
  Phase phase_ = Phase::kIdle;
  PipelinePass pass_;
  CommitDuties duties_;                        // Under way in `kDuties` only.
  bool is_last_ = false;                       // kDuties: nothing follows them.
  uint64_t step_ = 0;                          // That of the pass in `kPass` to `kAverage`.
  SampleClaim claim_;                          // The step in progress.
  std::optional<SampleClaim> next_;            // kUpdate, kAverage: of the step behind.
  std::optional<SampleClaim> waiting_;         // kUpdate, kDuties: for the end of what is done now.
  std::vector<AverageOrder> early_;            // kUpdate, kDuties: that begin at the end of it.
  std::map<int32_t, AverageOrder> averaging_;  // kAverage, kPause: under way, by stage.
  std::set<int32_t> stages_left_;              // kAverage, kPause: that have no average yet.
  std::map<int32_t, uint64_t> newest_;         // Groups by stage: repeats have no larger number.
  uint64_t steps_done_ = 0;                    // Of the job, to the end of the last round.
  bool is_global_ = true;  // The weights are those after `steps_done_`; not in 3 and 4.
};

}  // namespace skein::plans
