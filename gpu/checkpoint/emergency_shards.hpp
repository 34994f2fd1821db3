#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/checkpoint/checkpoint_writer.hpp"
#include "plans/job/job_spec.hpp"

namespace skein::gpu {

// State that a worker has written because its coordinator was gone for good. Each worker has a
// folder of its own for it, so that no two writers share a name, and in it a shard for each layer,
// so that layers from different layouts make one checkpoint:
//
//   <run>/checkpoint/step-00000500.g00000007.w00003.tmp/
//       model-00002-of-00006.safetensors, optimizer-00002-of-00006.safetensors   layer 1 of 6
//       trainer_state.json
//       HELD             names, sizes and digests of the others; written last
//       AWAITED          empty; its time says when the worker last waited for its device
//
// A worker whose device was at work at first writes once more into the same folder, all that it
// holds; files are replaced whole, and HELD is the last again.

/// `generation`: in which the last of the steps was committed, which tells the state from one of a
/// past that was taken back.
std::string emergency_path(const std::string& run_folder, uint64_t steps_done, uint64_t generation,
                           uint32_t worker);

/// Finishes a worker's folder, in which `files` have been written. Errors of `write_durably`;
/// DataLoss if a file is not what was written.
absl::Status finish_emergency_shards(const std::string& folder, const TrainerState& state,
                                     const std::vector<SavedFile>& files);

/// The worker's device still has the state, and its files follow: whoever looks for state waits for
/// them. To be said again every few seconds, as long as that is so. Makes the folder.
/// Unavailable   if it cannot.
absl::Status announce_emergency_shards(const std::string& folder);

/// What a worker adds to its finished folder cannot be written: nobody need wait for that.
void give_up_emergency_shards(const std::string& folder);

/// The worker's folder is finished. One that cannot be looked at is as good as that: whoever reads
/// it says why it cannot.
bool has_emergency_shards(const std::string& folder);

/// The loss after so many steps, the last of which was committed in that generation; none: the run
/// never came there, or has taken it back.
using FindLoss = std::function<std::optional<double>(uint64_t steps_done, uint64_t generation)>;

/// Steps done in the newest state that workers of the run have left in its folder, whole or not; 0:
/// they have left none. An empty `run`: those of any run.
uint64_t newest_left_state(const std::string& run_folder, const std::string& run);

/// Somebody is writing such state, newer than the run's newest whole checkpoint: something was
/// written lately in a folder that is not finished, or after HELD in one that is. Whoever looks for
/// state may wait for that.
bool is_state_being_left(const std::string& run_folder, const std::string& run);

/// Whose checkpoint is made.
struct AdoptingRun {
  std::string id;           // As `TrainerState::run`.
  int64_t positions = 0;    // As there; workers do not know them.
  std::string from_digest;  // As there; likewise.
};

struct AdoptedState {
  std::string path;  // The checkpoint that was made; empty: there is nothing to make one of.
  uint64_t steps_done = 0;
  std::vector<std::string> passed_over;  // A line for each newer state: what is wrong with it.
};
/// Makes a checkpoint of the newest state of the run whose layers workers have left between them,
/// if it is newer than its newest checkpoint that is whole. Damaged shards, and those of another
/// run, are as good as none. The folders that it was made of go, as what is left of other partial
/// checkpoints does.
/// Unavailable, ResourceExhausted   the checkpoint cannot be written; what was left stays.
/// Unavailable                      newer state than any that is whole may be there, and cannot be
///                                  read: no older one is taken for it.
absl::StatusOr<AdoptedState> adopt_emergency_shards(const std::string& run_folder,
                                                    const plans::JobSpec& job,
                                                    const FindLoss& find_loss,
                                                    const AdoptingRun& run);

}  // namespace skein::gpu
