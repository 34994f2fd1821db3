#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/plan/plan.hpp"
#include "plans/schedule/action.hpp"
#include "plans/worker/pipeline_pass.hpp"
#include "plans/worker/program_commands.hpp"

namespace skein::plans {

/// What a program needs to know of a plan and a job, in every training mode.
struct ProgramOptions {
  ActionList actions;             // Of one pass; not empty.
  std::vector<StageRole> stages;  // Ascending; those of the actions.
  uint64_t first_step = 0;        // The job's.
  int32_t validation_batches = 0;
  uint64_t samples_per_step = 1;  // The job's.
  int64_t microbatch_rows = 1;    // The whole pipeline's.
  int32_t stage_count = 1;        // The plan's.
  int32_t passes_in_flight = 1;   // As the mode says.
};

/// The worker's part of a training mode: what the replicas of a pipeline rank do next, as a state
/// machine without clock or I/O. Whoever hosts one carries out its commands and knows nothing of
/// the mode. Not thread-safe.
///
/// Every event may be repeated, late, or of another step or mode: it then changes nothing, and the
/// outcome says why.
class WorkerProgram {
 public:
  virtual ~WorkerProgram() = default;

  // Events of every mode.

  /// `left` is what the step before the first one, which is applied, has ordered and nobody has
  /// done: by default nothing.
  virtual ProgramOutcome on_start(const CommitOrder& left) = 0;
  virtual ProgramOutcome on_input(const InputKey& key) = 0;
  /// The oldest piece of work that the device has has ended. There is one.
  virtual ProgramCommands on_work_done() = 0;
  virtual ProgramOutcome on_commit(const CommitOrder& commit) = 0;

  // Events that only some modes expect: the others drop them.

  virtual ProgramOutcome on_group_reduced(GroupId group, uint64_t step, int32_t bucket);
  virtual ProgramOutcome on_claim(const ClaimOrder& claim);
  virtual ProgramOutcome on_update(const UpdateOrder& update);
  virtual ProgramOutcome on_average(const AverageOrder& order);
  virtual ProgramOutcome on_token(int32_t stage, const TokenOrder& order);
  /// The average is over; not `ok`: the stage has what it had.
  virtual ProgramOutcome on_averaged(int32_t stage, uint64_t number, bool ok);

  // What a host asks.

  /// The mode averages weights: it may command `RunAverage`.
  virtual bool averages_weights() const { return false; }
  /// Outputs go where the coordinator says, token by token, and not along the plan's routes: it may
  /// command `SendOutput`.
  virtual bool moves_tokens() const { return false; }
  /// moves_tokens: the replicas that have made the inputs of a token of the step in progress, in
  /// their order.
  virtual std::vector<ReplicaId> input_holders(int32_t /*stage*/, int32_t /*token*/) const {
    return {};
  }
  /// The pass that runs actions; none: no action runs.
  virtual std::optional<uint64_t> computed_step() const = 0;
  /// A step has begun and has not ended.
  virtual bool is_in_step() const { return computed_step().has_value(); }
  /// The sample of a replica's first row of a micro-batch of `step`, which is in progress.
  virtual uint64_t first_sample(uint64_t step, int32_t microbatch, const RowRange& rows) const = 0;
  /// The step's, over all rows: what a mean over the step is taken over. It is in progress.
  virtual uint64_t sample_count(uint64_t step) const = 0;
  /// The step of the job whose commit would be applied as an update just now; none: no commit.
  virtual std::optional<uint64_t> awaited_commit() const { return std::nullopt; }
  /// Steps of the job whose updates have ended.
  virtual uint64_t steps_done() const = 0;
  /// The weights are those after `steps_done()`.
  virtual bool has_global_state() const { return true; }
  /// Nothing follows in this generation.
  virtual bool is_finished() const = 0;
  virtual bool is_working() const = 0;
  /// What it waits for or has given to the device ("2B5", "the commit"), for people.
  virtual std::string activity() const = 0;
  /// Full sweep over the invariants of the program and its parts.
  virtual void check_invariants() const = 0;

 protected:
  WorkerProgram() = default;
  WorkerProgram(const WorkerProgram&) = default;
  WorkerProgram& operator=(const WorkerProgram&) = default;
};

inline ProgramOutcome WorkerProgram::on_group_reduced(GroupId, uint64_t, int32_t) {
  return Dropped{DropReason::kUnexpected};
}
inline ProgramOutcome WorkerProgram::on_claim(const ClaimOrder&) {
  return Dropped{DropReason::kUnexpected};
}
inline ProgramOutcome WorkerProgram::on_update(const UpdateOrder&) {
  return Dropped{DropReason::kUnexpected};
}
inline ProgramOutcome WorkerProgram::on_average(const AverageOrder&) {
  return Dropped{DropReason::kUnexpected};
}
inline ProgramOutcome WorkerProgram::on_token(int32_t, const TokenOrder&) {
  return Dropped{DropReason::kUnexpected};
}
inline ProgramOutcome WorkerProgram::on_averaged(int32_t, uint64_t, bool) {
  return Dropped{DropReason::kUnexpected};
}

}  // namespace skein::plans
