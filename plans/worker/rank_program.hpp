#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/modes/lease_pool.hpp"
#include "plans/plan/plan.hpp"
#include "plans/schedule/action.hpp"

namespace skein::plans {

/// What arrives from a neighbouring stage.
enum class InputKind { kActivation, kGradient, kValidation };

struct InputKey {
  InputKind kind = InputKind::kActivation;
  uint64_t step = 0;
  int32_t stage = 0;  // That takes the input.
  int32_t microbatch = 0;
  auto operator<=>(const InputKey&) const = default;
};

/// The coordinator's word on a step, as a rank needs it.
struct CommitOrder {
  uint64_t step = 0;
  double gradient_norm = 0;
  bool validate = false;
  bool checkpoint = false;
  bool last = false;            // No further step of this generation follows.
  bool snapshot = false;        // Copy the state after this step to its keeper.
  uint64_t snapshot_floor = 0;  // Snapshots of fewer steps are not needed any more.
  bool operator==(const CommitOrder&) const = default;
};

/// The members of a group combine their weights; one of a rank's stages is in it.
struct CombineOrder {
  int32_t stage = 0;
  uint64_t number = 0;      // > 0; ascending for each stage of a rank.
  bool is_alone = false;    // A group of one: there is nothing to do.
  bool is_closing = false;  // At the end of a segment, when there are no more samples.
  bool is_common = false;   // is_closing: the last one, after which all columns are alike.
  uint64_t steps_done = 0;  // is_common: of the job.
  bool operator==(const CombineOrder&) const = default;
};

// What a rank does next. The first four are work for the device, which does it in order;
// `on_work_done` follows for each.
struct RunAction {
  uint64_t step = 0;
  Action action;
  bool begins_step =
      false;               // First action of its stage in the step: gradients and loss are zeroed.
  bool ends_step = false;  // Last action of its stage in the step.
  /// The last action of a stage may be cut in parts, one for each bucket of the stage's gradients
  /// and completing it: `part` of `part_count`. They are work of the device one by one.
  int32_t part = 0;
  int32_t part_count = 1;
  bool is_whole() const { return part_count == 1; }
  bool is_last_part() const { return part + 1 == part_count; }
  bool operator==(const RunAction&) const = default;
};
struct RunNorm {
  uint64_t step = 0;
  int32_t stage = 0;
  bool operator==(const RunNorm&) const = default;
};
struct RunUpdate {
  CommitOrder commit;  // All stages of the rank; of a column, its `step` is one of the job's.
  bool operator==(const RunUpdate&) const = default;
};
struct RunValidation {
  uint64_t step = 0;
  int32_t stage = 0;
  int32_t microbatch = 0;
  bool begins = false;
  bool operator==(const RunValidation&) const = default;
};
struct SendReady {
  uint64_t step = 0;
  int32_t stage = 0;
  bool operator==(const SendReady&) const = default;
};
struct RunReduction {
  GroupId group;
  uint64_t step = 0;
  int32_t bucket = 0;
  bool operator==(const RunReduction&) const = default;
};
struct SendReduced {
  uint64_t step = 0;
  int32_t stage = 0;
  bool operator==(const SendReduced&) const = default;
};
/// Take a copy of the state of a stage, which is that after `steps_done` steps, and write it.
struct SaveState {
  uint64_t steps_done = 0;
  int32_t stage = 0;
  bool operator==(const SaveState&) const = default;
};
/// Take a copy of the state of a stage, which is that after `steps_done` steps, for its keeper.
struct KeepSnapshot {
  uint64_t steps_done = 0;
  int32_t stage = 0;
  bool operator==(const KeepSnapshot&) const = default;
};
/// Put the weights of a stage (and the moments, if `is_common`) together with those of the other
/// members; `on_combined` follows.
struct RunCombination {
  int32_t stage = 0;
  uint64_t number = 0;
  bool is_common = false;
  bool operator==(const RunCombination&) const = default;
};
struct SendValidated {
  uint64_t step = 0;
  int32_t stage = 0;
  bool operator==(const SendValidated&) const = default;
};

using RankCommand =
    std::variant<RunAction, RunNorm, RunUpdate, RunValidation, SendReady, RunReduction, SendReduced,
                 SaveState, KeepSnapshot, RunCombination, SendValidated>;
using RankCommands = std::vector<RankCommand>;

/// What a worker does with the replicas it holds, one of each stage of its rank, as a state machine
/// without clock or I/O: events in, commands out. Commands of one call are to be started in order.
///
///   1 compute:   runs the rank's actions in order, each when its input is there; a stage whose
///                last action is done signals ready; a bucket of gradients that the last action has
///                completed is reduced
///   2 reduce:    all actions are done; collectives or norms of some stage are not
///   3 wait:      every gradient is final; waits for the commit
///   4 update:    applies the committed step; then saves if told to
///   5 validate:  runs forwards on validation data; then signals
///   6 finished:  after the last commit
///
/// Of a column of its own pace, steps are the column's own, on samples that are leased to it, and 4
/// to 6 become:
///
///   4 update:    applies its own update
///   5 combine:   each stage waits for the word of its group, and for the group; then 1 again
///   6 pause:     there are no samples: waits for more, or for the common mean of all columns and
///                the commit of the job's steps behind it, with what that orders
///
/// An action is given to the device while the one before it still runs, if its input is there: so
/// the device does not wait for the news of its end to come here and back. The parts of an action
/// are given together.
///
/// Buckets of a group are reduced one after the other in the order of their numbers, which all
/// members share: the last layers' first. Groups do not wait for each other.
///
/// Every event may be repeated, late or of another step: it then changes nothing and is counted in
/// `dropped`.
class RankProgram {
 public:
  /// A group of more than one member that the rank's replica of a stage belongs to.
  struct GroupRole {
    GroupId group;
    /// Either one, complete with the last action of the stage, or the largest number of the stage's
    /// groups, each complete with a part of that action.
    int32_t bucket_count = 1;
  };
  /// A stage of the rank.
  struct StageRole {
    int32_t stage = 0;
    bool is_first = false;  // Forwards need no input.
    bool is_last = false;   // Backwards need no input.
    bool leads = false;     // Saves the state of the stage.
    std::vector<GroupRole> groups;
  };
  struct Options {
    ActionList actions;             // Of one step; not empty.
    std::vector<StageRole> stages;  // Ascending; those of the actions.
    uint64_t first_step = 0;
    int32_t validation_batches = 0;
    /// Buckets are reduced when they are complete; else all gradients when `on_group_start` says.
    bool reduces_early = false;
    uint64_t samples_per_step = 1;
    bool is_column = false;  // Of its own pace; its own steps are counted from 0.
  };
  explicit RankProgram(Options options);

  /// `left` is what the step before the first one, which is applied, has ordered and nobody has
  /// done: by default nothing.
  RankCommands on_start(const CommitOrder& left = {});
  RankCommands on_input(const InputKey& key);
  RankCommands on_work_done();
  RankCommands on_group_start(GroupId group, uint64_t step);
  RankCommands on_group_reduced(GroupId group, uint64_t step, int32_t bucket);
  RankCommands on_commit(const CommitOrder& commit);

  // Of a column:
  RankCommands on_lease(uint64_t step, const SampleLease& lease);
  /// `next`: what comes after the update; none: a pause.
  RankCommands on_column_commit(uint64_t step, double gradient_norm,
                                const std::optional<SampleLease>& next);
  RankCommands on_combine(const CombineOrder& order);
  /// The combination is over; not `ok`: the stage has what it had.
  RankCommands on_combined(int32_t stage, uint64_t number, bool ok);

  bool is_column() const { return options_.is_column; }
  /// A lease for that step would be taken.
  bool may_begin(uint64_t step) const;
  uint64_t step() const { return step_; }
  /// Of the step in progress.
  SampleLease samples() const;
  /// Steps of the job whose updates have ended; one more than `step()` while the validation behind
  /// one runs. Of a column: to the end of its last segment.
  uint64_t steps_done() const;
  /// The weights are those after `steps_done()`: always, but for a column within a segment.
  bool has_common_state() const { return !options_.is_column || is_common_; }
  bool finished() const { return mode_ == Mode::kFinished; }
  /// Every gradient of the step is final; only the commit is missing.
  bool waits_for_commit() const { return mode_ == Mode::kWait && !options_.is_column; }
  /// What it waits for or has given to the device ("2B5", "commit"), for people.
  std::string activity() const;
  bool is_working() const { return !running_.empty(); }
  /// It runs the actions of `step()`.
  bool computes() const { return mode_ == Mode::kCompute; }
  uint64_t dropped() const { return dropped_; }

 private:
  enum class Mode {
    kIdle,
    kCompute,
    kReduce,
    kWait,
    kUpdate,
    kCombine,
    kPause,
    kValidate,
    kFinished
  };
  struct StageProgress {
    size_t actions = 0;
    size_t actions_started = 0;
    size_t actions_left = 0;  // That have not ended.
    int32_t parts_left = 0;   // Of the last action, that have not ended.
    size_t groups_left = 0;   // That have not ended.
    bool is_final = false;    // Its gradient and norm are.
  };
  /// Buckets of a group in this step.
  struct GroupProgress {
    int32_t stage = 0;
    int32_t bucket_count = 0;
    int32_t started = 0;
    int32_t reduced = 0;  // At most one less than started.
    bool is_running() const { return started > reduced; }
  };

  /// Gives the device the next norms and actions that it may have.
  RankCommands advance();
  bool can_start_action();
  RunAction start_action();
  RankCommands advance_validation();
  RankCommands begin_step();
  RankCommands end_action(const RunAction& run);
  /// Starts a group's next bucket if it is complete and none of the group is running.
  void release(GroupId group, RankCommands& commands);
  void release_all(int32_t stage, RankCommands& commands);
  RankCommands end_norm(int32_t stage);
  RankCommands end_update();
  RankCommands keep_snapshots() const;
  RankCommands carry_out_orders();
  RankCommands end_validation();
  RankCommands begin_leased(const SampleLease& lease);
  RankCommands begin_combining();
  void combine(const CombineOrder& order, RankCommands& commands);
  RankCommands end_combining();
  RankCommands pause();
  /// The step that the orders of a commit belong to.
  uint64_t order_step() const { return options_.is_column ? commit_->step : step_; }
  void settle();
  const StageRole& role(int32_t stage) const;
  RankCommands drop();

  Options options_;
  Mode mode_ = Mode::kIdle;
  std::deque<RankCommand> running_;  // Work of ours that the device has.
  uint64_t step_ = 0;
  size_t next_action_ = 0;  // To be started.
  int32_t next_part_ = 0;   // Of it.
  size_t ended_actions_ = 0;
  std::map<int32_t, StageProgress> progress_;
  std::deque<int32_t> norms_;  // Stages whose norm is to be computed.
  size_t validation_role_ = 0;
  int32_t next_validation_ = 0;
  std::set<InputKey> inputs_;  // Arrived and not used yet.
  std::map<GroupId, GroupProgress> groups_;
  std::optional<CommitOrder> commit_;

  // Of a column:
  SampleLease lease_;
  std::optional<SampleLease> next_;            // After the update that runs.
  std::optional<SampleLease> given_;           // For the end of what is done now.
  std::vector<CombineOrder> early_;            // That have come while the update runs.
  std::map<int32_t, CombineOrder> combining_;  // Under way, by stage.
  std::set<int32_t> uncombined_;               // Stages that are not through.
  std::map<int32_t, uint64_t> newest_;         // Groups by stage: repeats have no larger number.
  uint64_t common_steps_ = 0;
  bool is_common_ = true;
  bool awaits_commit_ = false;  // Of the segment whose common mean it has.
  uint64_t dropped_ = 0;
};

}  // namespace skein::plans
