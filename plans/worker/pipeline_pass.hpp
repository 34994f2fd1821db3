#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/schedule/action.hpp"
#include "plans/worker/program_commands.hpp"

namespace skein::plans {

/// Pieces of work that a program gives the device at once: one runs and one waits behind it, so
/// that the device never waits for the program.
inline constexpr size_t kRunningMax = 2;

/// A group of more than one member that adds up gradients and that a replica belongs to.
struct GroupRole {
  GroupId group;
  /// Either one, complete with the last action of the stage, or the largest number of the stage's
  /// groups, each complete with a part of that action.
  int32_t bucket_count = 1;
};
/// A stage of which a worker holds a replica.
struct StageRole {
  int32_t stage = 0;
  bool is_first = false;         // Forwards need no input.
  bool is_last = false;          // Backwards need no input.
  bool leads = false;            // It saves the state of the stage.
  int64_t rows = 1;              // That it computes of a micro-batch, or of a token.
  bool validates = true;         // False: others do it for all of them.
  int32_t validation_parts = 1;  // In so many it takes each micro-batch of a validation.
  /// The other end of the pipeline replica uses the same embedding, and no group adds up its
  /// gradient: the first stage takes the last one's gradient with its last action of a pass, and
  /// the last stage the first one's weights with its first action.
  bool has_tied_end = false;
  std::vector<GroupRole> groups;
  int32_t bucket_count = 1;  // Without groups: parts in which the last backward may end.
};

/// Null: no replica of the stage is among them.
const StageRole* find_role(const std::vector<StageRole>& stages, int32_t stage);

/// One pass of a pipeline rank's actions over the device, from the first forward to the last norm,
/// as a state machine without clock or I/O. What happens between two passes is for the program of
/// the training mode, which owns the pass. Not thread-safe.
///
///   1 idle:      no pass has begun
///   2 compute:   runs the actions in order, each when its input is there; a stage whose last
///                action has ended signals ready; a bucket of gradients that the last action has
///                completed is reduced at once
///   3 reduce:    all actions have ended; collectives or norms of some stage have not
///   4 complete:  every gradient and norm of the step is final
///
/// An action is given to the device while the one before it still runs, if its input is there: so
/// the device does not wait for the news of its end to come here and back. The parts of an action
/// are given together.
///
/// Buckets of a group are reduced one after the other in the order of their numbers, which all
/// members share: the last layers' first. Groups do not wait for each other.
class PipelinePass {
 public:
  struct Options {
    ActionList actions;             // Of one pass; not empty.
    std::vector<StageRole> stages;  // Ascending; those of the actions.
    uint64_t first_step = 0;        // Of the first pass.
  };
  explicit PipelinePass(Options options);

  /// `step`  >= the first one, and above that of the pass before, which is complete.
  ProgramCommands begin(uint64_t step);
  /// An activation or a gradient of this step or of the next one: neighbours may be so far ahead.
  ProgramOutcome on_input(const InputKey& key);
  /// The oldest piece of work of the pass that the device has has ended.
  ProgramCommands on_work_done();
  ProgramOutcome on_group_reduced(GroupId group, uint64_t step, int32_t bucket);

  uint64_t step() const { return step_; }
  bool computes() const { return phase_ == Phase::kCompute; }
  bool is_complete() const { return phase_ == Phase::kComplete; }
  /// The device has work of the pass.
  bool is_working() const { return !running_.empty(); }
  /// What it waits for or has given to the device ("2B5"), for people.
  std::string activity() const;
  /// Full sweep over the invariants that stand beside the fields.
  void check_invariants() const;

 private:
  enum class Phase { kIdle, kCompute, kReduce, kComplete };
  struct StageProgress {
    size_t actions = 0;
    size_t actions_started = 0;  // <= actions
    size_t actions_left = 0;     // That have not ended; actions - actions_left <= actions_started.
    int32_t parts_left = 0;      // Parts of the last action that have not ended.
    size_t groups_left = 0;      // That have not ended.
    bool is_final = false;       // Gradient and norm are: no action and no group is left.
  };
  /// The buckets of a group in this step: reduced <= started <= reduced + 1, <= bucket_count.
  struct GroupProgress {
    int32_t stage = 0;
    int32_t bucket_count = 0;
    int32_t started = 0;
    int32_t reduced = 0;
    bool is_running() const { return started > reduced; }
  };

  /// Gives the device the next norms and actions that it may have.
  ProgramCommands advance();
  bool can_start_action();
  /// What the action works on beside what is here; `begins`, `ends`: it is the first action of its
  /// stage in the pass, or the last.
  std::vector<InputKey> inputs_of(const Action& action, uint64_t step, bool begins,
                                  bool ends) const;
  RunAction start_action();
  ProgramCommands end_action(const RunAction& run);
  ProgramCommands end_norm(int32_t stage);
  /// Starts a group's next bucket if it is complete and none of the group is running.
  void release(GroupId group, ProgramCommands& commands);
  void settle();
  const StageRole& role(int32_t stage) const;

  const Options options_;
  std::set<InputKey> takes_;  // What the actions take of others, as in step 0.
  Phase phase_ = Phase::kIdle;
  uint64_t step_ = 0;
  /// Work of ours that the device has, oldest first. At most `kRunningMax` pieces that are not
  /// parts of one action; empty when complete.
  std::deque<ProgramCommand> running_;
  size_t next_action_ = 0;                     // To be started.
  int32_t next_part_ = 0;                      // The part of it.
  size_t ended_actions_ = 0;                   // <= next_action_; all of them from `kReduce` on.
  std::map<int32_t, StageProgress> progress_;  // By stage; all are final when complete.
  std::map<GroupId, GroupProgress> groups_;
  std::deque<int32_t> norms_;  // Stages whose norm is to be computed: their groups have ended.
  /// Arrived and not used yet; some action takes each of them, in `step_` or the next step.
  std::set<InputKey> inputs_;
  std::set<InputKey> used_;  // This step's; none of them is in `inputs_`.
};

}  // namespace skein::plans
