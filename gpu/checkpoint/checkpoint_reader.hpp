#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/checkpoint/trainer_state.hpp"
#include "plans/job/model_spec.hpp"

namespace skein::gpu {

/// The complete checkpoints that `path` means, newest first: itself if it is one, else those of a
/// run folder that have the name of one. Beside a complete one, those that cannot be looked at are
/// there, too: whoever reads them says why. NotFound if there is none; PermissionDenied,
/// Unavailable if none is known to be complete, and one cannot be looked at, or what is named
/// "checkpoint" in a run folder is no folder that can be read.
absl::StatusOr<std::vector<std::string>> complete_checkpoints(const std::string& path);

/// The complete checkpoints that a run may go on from.
struct OwnCheckpoints {
  std::vector<std::string> folders;  // Newest first. One that does not say of which run it is, too.
  std::vector<std::string> passed_over;  // A line for each that is of another run.
};
/// Those that `path` means; an empty `run`: of any run. Reads of each what its trainer said.
/// InvalidArgument   if there are only those of other runs.
/// Else as `complete_checkpoints`.
absl::StatusOr<OwnCheckpoints> own_checkpoints(const std::string& path, const std::string& run);

/// The runs that what is in a run's folder says that it is of: checkpoints, and state that workers
/// have left.
struct RunsHere {
  std::set<std::string> runs;
  bool is_any_named = false;    // A complete checkpoint says of which run it is.
  bool is_any_unnamed = false;  // A complete checkpoint does not, or is damaged.
};
/// PermissionDenied, Unavailable   something there cannot be read.
absl::StatusOr<RunsHere> runs_of_checkpoints(const std::string& run_folder);

/// Reads all of a checkpoint folder: sizes and digests of its files and tensors, and the shapes
/// that config.json asks for. A line for each fault, with the file and the tensor; empty: it is
/// whole.
std::vector<std::string> find_faults(const std::string& folder);

/// A complete checkpoint opened for reading: whatever layout wrote it, tensors are found by name.
/// Thread-safe.
class CheckpointReader {
 public:
  /// `path`: a checkpoint folder, or a run folder, whose latest complete checkpoint is taken.
  /// Every header is checked here: names, shapes, offsets against the file's size. The contents of
  /// a tensor are compared with its digest when it is read. Errors of `complete_checkpoints`, and
  ///
  /// DataLoss                        truncated, or a digest or header is wrong
  /// PermissionDenied, Unavailable   a file of it cannot be read
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> open(const std::string& path);
  virtual ~CheckpointReader() = default;

  virtual const std::string& folder() const = 0;
  virtual const TrainerState& trainer_state() const = 0;
  virtual const plans::ModelSpec& model() const = 0;  // From config.json.

  /// InvalidArgument   if the checkpoint is of another model: a parameter of `model` is missing or
  ///                   has another shape; the message names it and both shapes.
  virtual absl::Status check_model(const plans::ModelSpec& model) const = 0;
  /// Copies a tensor: `name` as in ParameterSpec, or with a suffix of SavedParameter. Also converts
  /// F16 and BF16. NotFound, InvalidArgument (size); DataLoss if it is damaged, with `out`
  /// undefined.
  virtual absl::Status read(const std::string& name, std::span<float> out) const = 0;
  virtual bool has(const std::string& name) const = 0;
  /// A line for each tensor that is missing, is none of `model()` or has another shape.
  virtual std::vector<std::string> find_shape_faults() const = 0;
};

/// The newest checkpoint that is whole, all of which was read.
struct WholeCheckpoint {
  std::unique_ptr<CheckpointReader> reader;  // Null: none is.
  std::vector<std::string> faults;           // A line for each newer one.
};
/// Looks at the `own_checkpoints` in `path` that have at most `steps_max` steps. Errors as there.
absl::StatusOr<WholeCheckpoint> newest_whole_checkpoint(const std::string& path,
                                                        const std::string& run,
                                                        uint64_t steps_max = UINT64_MAX);
/// Steps of the run's newest checkpoint that is whole; 0: there is none.
uint64_t durable_steps(const std::string& run_folder, const std::string& run);

}  // namespace skein::gpu
