#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "actors/coordinator/journal.hpp"
#include "actors/run_id.hpp"
#include "gpu/checkpoint/emergency_shards.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/plan/plan.hpp"

namespace skein::actors {

/// What tells one training data from another; zeros for a device that only sleeps.
struct TrainingData {
  uint64_t bytes = 0;
  uint64_t digest = 0;
};

/// What a run goes on from. All of it has been read.
struct VerifiedStart {
  TrainingData data;
  absl::Status checkpoint;          // DataLoss: none is whole; names the newest one's first fault.
  std::string checkpoint_path;      // The newest one that is whole; empty: the initial weights.
  uint64_t durable_step = 0;        // The checkpoint's.
  std::vector<std::string> faults;  // A line for each newer one.
};

/// What is known before the first worker joins: what was done, and on which data.
struct StartPoint {
  uint64_t committed_steps = 0;  // By the journal.
  /// Gradient norm of the last of them; none: a checkpoint has it, and the journal has lost it.
  std::optional<double> committed_norm;
  double committed_loss = 0;                      // Also of that step; 0: not known.
  std::map<uint64_t, uint64_t> step_generations;  // By the first step that each covers.
  std::string checkpoint_path;  // The checkpoint to go on from; empty: the initial weights.
  uint64_t durable_step = 0;    // Its step; 0: the initial weights.
  /// Positions that the weights with which the run began had learned; 0: they were fresh.
  int64_t positions = 0;
  /// `TrainerState::from_digest` of the run.
  std::string from_digest;
  /// The generation that its last step was committed in; 0: not known, as it was made of what
  /// workers have left.
  uint64_t durable_generation = 0;
  bool has_journal = false;  // It knows of a plan or a commit.
  uint64_t generation = 0;   // None larger was assigned.
  std::optional<plans::Plan> last_plan;
  std::map<plans::WorkerId, uint64_t> earlier_workers;  // As `Coordination::Options`.
  TrainingData data;
  gpu::AdoptedState adopted;             // What workers had left that gave up an earlier life.
  std::vector<std::string> passed_over;  // A line for each checkpoint of another run.
  bool is_verified = true;  // False: data and checkpoint are still to be read as a whole.
};

/// Reads the data and the checkpoint in `load_path`, or the newest one there that is whole and has
/// at most `steps_max` steps; empty: fresh weights. `run`: whose it must be; empty: any run's.
/// `data`: what is known of it; none: it is read.
/// InvalidArgument   if the checkpoint is of another model or of other data, or has all steps.
/// Else as `TokenData::open` and `own_checkpoints`.
absl::StatusOr<VerifiedStart> verify_start(const plans::JobSpec& job, const std::string& load_path,
                                           const std::string& run, uint64_t steps_max,
                                           const std::optional<TrainingData>& data);
/// The same for a run that is about to begin: it is DataLoss if the newest checkpoint is damaged,
/// as nobody but the user may choose an older one.
absl::StatusOr<StartPoint> find_start(const plans::JobSpec& job, const std::string& load_path);
/// Adds what an earlier life of this run's coordinator has left.
absl::Status read_journal(Journal& journal, StartPoint& start);
/// All of that for a run that is resumed, by the headers of the newest checkpoint: it is still to
/// be verified. One of another run that lies in the run's folder is passed over. Before that a
/// checkpoint is made of the state that workers have left who gave up an earlier life of the run's
/// coordinator, if it is newer than the newest checkpoint; `load_path` is the run's then. Errors as
/// well of `gpu::adopt_emergency_shards`.
absl::StatusOr<StartPoint> find_resumed(const plans::JobSpec& job, const RunPlace& place,
                                        Journal& journal, std::string& load_path);

}  // namespace skein::actors
