#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "plans/worker/pipeline_pass.hpp"
#include "plans/worker/program_commands.hpp"

namespace skein::plans {

/// What a commit orders besides the update, for the stages of a worker: copies of the state for
/// snapshot peers and for a checkpoint, and a pass over the validation data. The same for all
/// training modes. Not thread-safe.
///
/// All validation micro-batches go through one stage, then through the next one that is here: by
/// then its inputs have come around.
class CommitDuties {
 public:
  struct Options {
    std::vector<StageRole> stages;
    int32_t validation_batches = 0;
    uint64_t first_step = 0;  // The generation's.
  };
  explicit CommitDuties(Options options);

  /// Nothing is under way, and the models have the state after `steps_done` steps, the last of
  /// which the order belongs to.
  ProgramCommands begin(const CommitOrder& order, uint64_t steps_done);
  /// An input of a validation pass that is under way or to come: neighbours may be ahead.
  ProgramOutcome on_input(const InputKey& key);
  /// A validation forward has ended on the device.
  ProgramCommands on_work_done();

  bool is_under_way() const { return is_under_way_; }
  /// The device has a validation forward.
  bool is_working() const { return is_working_; }
  void check_invariants() const;

 private:
  ProgramCommands advance();
  /// Pieces of a validation that go through the stage.
  int32_t pieces_of(const StageRole& stage) const {
    return options_.validation_batches * stage.validation_parts;
  }
  /// Those of a validation and of the next one.
  size_t most_inputs() const;
  /// Nobody needs inputs of the steps before it any more.
  void leave_behind(uint64_t step);

  const Options options_;
  std::vector<StageRole> validating_;  // The stages that do.
  bool is_under_way_ = false;
  uint64_t step_ = 0;          // The committed step, while it is under way.
  size_t role_ = 0;            // Whose turn it is of those that validate; one of them under way.
  int32_t microbatch_ = 0;     // To be given to the device next; < the stage's pieces under way.
  bool is_working_ = false;    // Only under way.
  uint64_t step_min_ = 0;      // Steps before it have been validated, or never will be.
  std::set<InputKey> inputs_;  // Arrived and not used yet; of `step_min_` or later; a few.
};

}  // namespace skein::plans
