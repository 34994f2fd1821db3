#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/plan.hpp"
#include "plans/schedule.hpp"

namespace skein::plans {

/// What arrives from a neighbouring stage.
enum class InputKind { kActivation, kGradient, kValidation };

struct InputKey {
  InputKind kind = InputKind::kActivation;
  uint64_t step = 0;
  int32_t microbatch = 0;
  auto operator<=>(const InputKey&) const = default;
};

/// The coordinator's word on a step, as the replica needs it.
struct CommitOrder {
  uint64_t step = 0;
  double gradient_norm = 0;
  bool validate = false;
  bool checkpoint = false;
  bool last = false;
  bool operator==(const CommitOrder&) const = default;
};

// What a replica does next. The first four occupy the device until `on_work_done`.
struct RunAction {
  uint64_t step = 0;
  Action action;
  bool begins_step = false;  // First action of the step: gradients and loss start at zero.
  bool ends_step = false;    // Last action of the step.
  bool operator==(const RunAction&) const = default;
};
struct RunNorm {
  uint64_t step = 0;
  bool operator==(const RunNorm&) const = default;
};
struct RunUpdate {
  CommitOrder commit;
  bool operator==(const RunUpdate&) const = default;
};
struct RunValidation {
  uint64_t step = 0;
  int32_t microbatch = 0;
  bool begins = false;
  bool operator==(const RunValidation&) const = default;
};
struct SendReady {
  uint64_t step = 0;
  bool operator==(const SendReady&) const = default;
};
struct RunReduction {
  GroupId group;
  uint64_t step = 0;
  bool operator==(const RunReduction&) const = default;
};
struct SendReduced {
  uint64_t step = 0;
  bool operator==(const SendReduced&) const = default;
};
/// Take a copy of the state, which is that after `steps_done` steps, and write it.
struct SaveState {
  uint64_t steps_done = 0;
  bool operator==(const SaveState&) const = default;
};
struct SendValidated {
  uint64_t step = 0;
  bool operator==(const SendValidated&) const = default;
};

using ReplicaCommand = std::variant<RunAction, RunNorm, RunUpdate, RunValidation, SendReady,
                                    RunReduction, SendReduced, SaveState, SendValidated>;
using ReplicaCommands = std::vector<ReplicaCommand>;

/// The life of one replica as a state machine without clock or I/O: events in, commands out.
/// Commands of one call are to be started in order.
///
///   1 compute:   runs the schedule's actions in order, each when its input is there
///   2 reduce:    has signalled ready; runs the collectives that the coordinator starts
///   3 wait:      the gradient is final; waits for the commit
///   4 update:    applies the committed step; then saves if told to
///   5 validate:  runs forwards on validation data; then signals
///   6 finished:  after the last commit
///
/// Every event may be repeated, late or of another step: it then changes nothing and is counted in
/// `dropped`.
class ReplicaProgram {
 public:
  struct Options {
    std::vector<Action> actions;  // Of one step; not empty.
    bool is_first = false;        // Stage 0: forwards need no input.
    bool is_last = false;         // Last stage: backwards need no input.
    bool leads = false;           // Saves the state of its stage.
    std::vector<GroupId> groups;  // Reduction groups of more than one member that it belongs to.
    uint64_t first_step = 0;
    int32_t validation_batches = 0;
  };
  explicit ReplicaProgram(Options options);

  ReplicaCommands on_start();
  ReplicaCommands on_input(const InputKey& key);
  ReplicaCommands on_work_done();
  ReplicaCommands on_group_start(GroupId group, uint64_t step);
  ReplicaCommands on_group_reduced(GroupId group, uint64_t step);
  ReplicaCommands on_commit(const CommitOrder& commit);

  uint64_t step() const { return step_; }
  bool finished() const { return mode_ == Mode::kFinished; }
  uint64_t dropped() const { return dropped_; }

 private:
  enum class Mode { kIdle, kCompute, kReduce, kWait, kUpdate, kValidate, kFinished };

  ReplicaCommands advance_compute();
  ReplicaCommands advance_validation();
  ReplicaCommands begin_step();
  ReplicaCommands end_actions();
  ReplicaCommands end_update();
  ReplicaCommands end_validation();
  bool take_input(InputKind kind, int32_t microbatch);
  ReplicaCommands drop();

  Options options_;
  Mode mode_ = Mode::kIdle;
  bool busy_ = false;  // The device has a piece of work of ours.
  uint64_t step_ = 0;
  size_t next_action_ = 0;
  int32_t next_validation_ = 0;
  std::set<InputKey> inputs_;  // Arrived and not used yet.
  std::set<GroupId> started_;  // Groups of this step whose collective was started.
  std::set<GroupId> reduced_;  // ... and has ended.
  std::optional<CommitOrder> commit_;
  uint64_t dropped_ = 0;
};

}  // namespace skein::plans
