#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plans/elastic/saved_file.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/job/model_spec.hpp"

namespace skein::gpu {

/// What a checkpoint says beside tensors (trainer_state.json).
struct TrainerState {
  uint64_t steps_done = 0;    // Committed steps; the next one is step number `steps_done`.
  uint64_t samples_done = 0;  // Position in the data order.
  int64_t seq_len = 0;        // Tokens of a training sample: later positions are untrained.
  uint64_t seed = 0;
  uint64_t data_bytes = 0;
  uint64_t data_digest = 0;
  double loss = 0;   // The last step's.
  std::string plan;  // Text form of the plan that wrote it.
  bool operator==(const TrainerState&) const = default;
};

using SavedFile = plans::SavedFile;

/// One parameter of a stage with its optimizer state. Unused moments are empty.
struct SavedParameter {
  plans::ParameterSpec spec;
  std::span<const float> weight;         // [element_count(spec)]
  std::span<const float> moment_first;   // stored as "<name>.exp_avg" ("<name>.momentum" for SGD)
  std::span<const float> moment_second;  // stored as "<name>.exp_avg_sq"
};

/// Folder of a checkpoint that is being written: "<run>/checkpoint/step-000500.tmp".
std::string partial_checkpoint_path(const std::string& run_folder, uint64_t steps_done);

/// Writes the model and optimizer files of one stage (shard `shard` of `shard_count`, from 0) into
/// `folder`, which is made if needed, each to a temporary name, synced and renamed. Parameters
/// marked `tied_copy` are left out. Errors name the file and the reason (disk full, ...).
absl::StatusOr<std::vector<SavedFile>> write_shard(const std::string& folder, int shard,
                                                   int shard_count, const std::string& optimizer,
                                                   const std::vector<SavedParameter>& parameters);

/// Writes config.json, the two indexes, trainer_state.json and, last, COMPLETE (names, sizes and
/// crc32c of all files) into the partial folder, renames it to its final name, points
/// "checkpoint/latest" at it and deletes complete checkpoints beyond `keep_latest_k` (0 keeps all).
/// Checks before that that every parameter of the model was saved exactly once.
/// Returns the final path.
absl::StatusOr<std::string> complete_checkpoint(const std::string& run_folder,
                                                const plans::ModelSpec& model,
                                                const TrainerState& state,
                                                const std::vector<SavedFile>& files,
                                                int64_t keep_latest_k);

/// A complete checkpoint opened for reading: whatever layout wrote it, tensors are found by name.
/// Thread-safe.
class CheckpointReader {
 public:
  /// `path`: a checkpoint folder, or a run directory, whose latest complete checkpoint is taken.
  /// Every header is checked here: names, shapes, offsets against the file's size. With
  /// `verify_digests` the contents are read and compared with COMPLETE as well.
  /// NotFound   no complete checkpoint there. DataLoss   truncated, or a digest or header is wrong.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> open(const std::string& path,
                                                                bool verify_digests);
  virtual ~CheckpointReader() = default;

  virtual const std::string& folder() const = 0;
  virtual const TrainerState& trainer_state() const = 0;
  virtual const plans::ModelSpec& model() const = 0;  // From config.json.

  /// InvalidArgument   if the checkpoint is of another model: a parameter of `model` is missing or
  ///                   has another shape; the message names it and both shapes.
  virtual absl::Status check_model(const plans::ModelSpec& model) const = 0;
  /// Copies a tensor: `name` as in ParameterSpec, or with a suffix of SavedParameter. Also converts
  /// F16 and BF16. NotFound, InvalidArgument (size).
  virtual absl::Status read(const std::string& name, std::span<float> out) const = 0;
  virtual bool has(const std::string& name) const = 0;
};

}  // namespace skein::gpu
