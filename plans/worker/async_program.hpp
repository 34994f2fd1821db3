#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plans/worker/commit_duties.hpp"
#include "plans/worker/pipeline_pass.hpp"
#include "plans/worker/worker_program.hpp"

namespace skein::plans {

/// The worker's part of local updates with several claims in flight: its stage goes from one claim
/// to the next without a flush (`Continuous1F1B`). When the first gradients of a claim are final,
/// the stage says so; when all are, it applies its update and meets its group, apart from the other
/// stages of its pipeline replica. A micro-batch's backward needs the weights of its forward: the
/// model keeps them. Stages that lie side by side on the worker act as one, and apply their updates
/// together; each says by itself that it is ready, and has groups of its own.
///
///   1 idle:      waits for the start
///   2 run:       forwards and backwards of the claims, each when its input is there; without a
///                claim it waits for one, or for the groups of the round's end
///   3 update:    applies its own update
///   4 average:   each stage waits for the word of its group, and for the group; then 2 again
///   5 commit:    has the global average, and waits for the commit of the job's steps behind it
///   6 duties:    saves and validates, if the commit says so; then 2 again
///   7 finished:  the last commit of the generation is carried out
///
/// Forwards and backwards take turns in a fixed order, whatever arrives first, so the weights that
/// a micro-batch sees depend on nothing but its number, unless a claim comes late. Steps are
/// counted from 0, but where the job's are named. Source: PipeDream (SOSP'19, 3.2 and 3.3: 1F1B and
/// weight stashing); SDPipe's stages work so.
class AsyncProgram final : public WorkerProgram {
 public:
  /// Stages that lie side by side, and actions that are forwards and backwards of them.
  explicit AsyncProgram(ProgramOptions options);

  ProgramOutcome on_start(const CommitOrder& left) override;
  ProgramOutcome on_input(const InputKey& key) override;
  ProgramCommands on_work_done() override;
  ProgramOutcome on_commit(const CommitOrder& commit) override;
  ProgramOutcome on_claim(const ClaimOrder& claim) override;
  ProgramOutcome on_average(const AverageOrder& order) override;
  ProgramOutcome on_averaged(int32_t stage, uint64_t number, bool ok) override;

  bool averages_weights() const override { return true; }
  std::optional<uint64_t> computed_step() const override { return std::nullopt; }
  bool is_in_step() const override { return !claims_.empty(); }
  uint64_t first_sample(uint64_t step, int32_t microbatch, const RowRange& rows) const override;
  uint64_t sample_count(uint64_t step) const override { return claim_of(step).count; }
  uint64_t steps_done() const override { return steps_done_; }
  bool has_global_state() const override { return is_global_; }
  bool is_finished() const override { return phase_ == Phase::kFinished; }
  bool is_working() const override;
  std::string activity() const override;
  void check_invariants() const override;

  /// Its own: the updates that it is through with.
  uint64_t step() const { return step_; }

 private:
  enum class Phase { kIdle, kRun, kUpdate, kAverage, kCommit, kDuties, kFinished };

  /// A forward or a backward of a micro-batch, which goes through all stages that are here.
  struct Passage {
    ActionType type = ActionType::kForward;
    size_t stages = 0;  // That have been given to the device; fewer than there are.
  };

  ProgramCommands advance();
  bool may_forward() const;
  bool may_backward() const;
  /// What comes next.
  Passage next() const;
  const StageRole& stage_of(const Passage& passage) const;
  /// Micro-batches whose forward or backward the stage has begun.
  uint64_t begun(size_t stage, bool is_forward) const;
  /// None if it needs none.
  std::optional<InputKey> input_of(const Passage& passage) const;
  RunAction start(const Passage& passage);
  std::optional<size_t> find_stage(int32_t stage) const;
  bool is_here(int32_t stage) const { return find_stage(stage).has_value(); }
  ProgramCommands end_action(const RunAction& ended);
  ProgramCommands end_step();
  ProgramCommands begin_early();
  void begin(const AverageOrder& order, ProgramCommands& commands);
  bool has_word(int32_t stage) const;
  ProgramCommands begin_duties(const CommitOrder& commit);
  ProgramCommands end_duties();
  const SampleClaim& claim_of(uint64_t step) const;
  bool is_closing() const;
  bool is_awaited(const AverageOrder& order) const;

  const uint64_t samples_per_step_;      // The job's.
  const std::vector<StageRole> stages_;  // Ascending.
  const uint64_t microbatches_;          // M of a claim.
  const uint64_t claims_max_;            // K
  const uint64_t ahead_max_;             // Forwards ahead of backwards.
  Phase phase_ = Phase::kIdle;
  CommitDuties duties_;            // Under way in `kDuties` only.
  bool is_last_ = false;           // kDuties: nothing follows them.
  uint64_t step_ = 0;              // The oldest claim's.
  std::deque<ClaimOrder> claims_;  // Steps from `step_` on; at most K, one more in 3 and 4.
  /// Micro-batches given to the device, at all stages, counted over all claims:
  /// step_ * M <= backwards_ <= forwards_ <= (step_ + claims) * M, forwards_ - backwards_ <= ahead.
  uint64_t forwards_ = 0;
  uint64_t backwards_ = 0;
  std::optional<Passage> passage_;      // One that some stages have, and others not yet.
  std::deque<RunAction> running_;       // Actions that the device has, oldest first; in 2 only.
  std::deque<uint64_t> forward_steps_;  // `step_` at the forward of each that is ahead.
  uint32_t weight_delay_ = 0;           // Largest of the step in progress.
  std::set<InputKey> inputs_;           // Arrived and not used yet.
  std::set<int32_t> asked_;             // Stages that have signalled in this step, early or not.
  std::deque<AverageOrder> early_;      // To begin behind what is done now, in order.
  std::map<int32_t, AverageOrder> averaging_;  // kAverage, kRun: under way, by stage.
  std::set<int32_t> stages_left_;              // kAverage: that have no average yet.
  std::set<int32_t> lack_global_;              // Stages without the global average of the round.
  std::map<int32_t, uint64_t> newest_;         // Groups by stage: repeats have no larger number.
  uint64_t steps_done_ = 0;                    // The job's, to the end of the last round.
  bool is_global_ = true;                      // The weights are those after `steps_done_`.
};

}  // namespace skein::plans
