#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/checkpoint/trainer_state.hpp"
#include "plans/elastic/saved_file.hpp"
#include "plans/job/model_spec.hpp"

namespace skein::gpu {

using SavedFile = plans::SavedFile;

/// One parameter of a stage with its optimizer state. Unused moments are empty.
struct SavedParameter {
  plans::ParameterSpec spec;
  std::span<const float> weight;                       // [element_count(spec)]
  std::span<const float> moment_first, moment_second;  // Stored under `moment_suffixes`.
};

/// Folder of a checkpoint that is being written. Each generation has its own, so that a writer of
/// an earlier one that is still at work shares no name with its successor:
/// "<run>/checkpoint/step-00000500.g00000007.tmp".
std::string partial_checkpoint_path(const std::string& run_folder, uint64_t steps_done,
                                    uint64_t generation);

/// Writes the model and optimizer files of one stage (shard `shard` of `shard_count`, from 0) into
/// `folder`, which is made if needed, each to a temporary name, synced and renamed. Parameters
/// marked `tied_copy` are left out. Errors name the file and the reason: PermissionDenied if this
/// process may not write there, ResourceExhausted for a full disk, else Unavailable.
absl::StatusOr<std::vector<SavedFile>> write_shard(const std::string& folder, int shard,
                                                   int shard_count, const std::string& optimizer,
                                                   const std::vector<SavedParameter>& parameters);

/// Reads every file of the generation's partial folder and compares it with what its writer has
/// reported. Then writes config.json, the two indexes, trainer_state.json, the run's text files
/// (`keep_text_files`) and, last, COMPLETE (names, sizes and digests of all files and tensors),
/// renames the folder to its final name, points "checkpoint/latest" at it and deletes complete
/// checkpoints of `state.run` beyond `keep_latest_k` (0 keeps all), and partial ones that are of no
/// use any more, but none whose trainer_state.json cannot be read, and no folder that has a name of
/// its own ("step-00000500.old"). One of another run, or one that cannot be read, that has the name
/// is renamed to "set-aside.step-...". Returns the final path.
///
/// InvalidArgument, Internal   a name is none, or a parameter was not saved exactly once
/// ResourceExhausted           the disk is full
/// Unavailable                 a file is not there, is not what was reported, or cannot be read or
///                             written
///
/// No checkpoint is deleted if the new one did not get its name.
absl::StatusOr<std::string> complete_checkpoint(const std::string& run_folder, uint64_t generation,
                                                const plans::ModelSpec& model,
                                                const TrainerState& state,
                                                const std::vector<SavedFile>& files,
                                                int64_t keep_latest_k);

/// Deletes what has been written of checkpoints that nobody will complete: of generations before
/// `generation`, and of it up to `steps_done` steps, but for those of `under_way`. What says that
/// it is of another run than `run`, or has a trainer_state.json that cannot be read, stays. What
/// workers that gave up a coordinator have left is no part of that.
void delete_partial_checkpoints(const std::string& run_folder, const std::string& run,
                                uint64_t generation, uint64_t steps_done,
                                const std::set<uint64_t>& under_way);

}  // namespace skein::gpu
