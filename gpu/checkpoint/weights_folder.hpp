#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/checkpoint/safetensors.hpp"
#include "gpu/checkpoint/trainer_state.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/job/model_spec.hpp"

namespace skein::gpu {

/// Weights in a folder in Hugging Face's form: config.json, and model.safetensors or the files that
/// model.safetensors.index.json names. A checkpoint of ours is one, too. Thread-safe.
class WeightsFolder {
 public:
  /// Reads config.json and the headers of all files of `folder`, which is no link that may change.
  /// Each parameter of the model is there in its shape and in a type that can be read, and nothing
  /// is beside them but what can be computed: masks, wavelengths, a tied head. NotFound the folder
  /// or one of its files is not there. InvalidArgument   the model is none of ours, or a tensor is
  /// missing, unknown, of another shape
  ///                   or of a type that is not read; the message names it.
  /// DataLoss          a file is damaged, lacks a field or has a tensor of a type that is not
  ///                   known; of a checkpoint of ours all contents are compared with what was
  ///                   written.
  static absl::StatusOr<std::unique_ptr<WeightsFolder>> open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const plans::ModelSpec& model() const { return model_; }
  /// Positions that the weights have learned: all, but for a checkpoint of ours that says
  /// otherwise.
  int64_t positions() const { return positions_; }
  /// InvalidArgument if the weights mean something else in that model.
  absl::Status check_use(const plans::ModelSpec& model) const;
  /// Reads all weights. DataLoss names the first that is no finite number.
  absl::Status check_finite() const;
  /// Copies a parameter as float32; `name` as in ParameterSpec.
  absl::Status read(const std::string& name, std::span<float> out) const;

 private:
  struct Place {
    std::string file;
    std::string tensor;  // Its name there: that of the parameter, or without its prefix.
  };

  absl::Status open_files();
  absl::Status open_file(const std::string& name);
  absl::Status find_parameters();
  absl::Status check_rest() const;

  std::string folder_;
  plans::ModelSpec model_;
  int64_t positions_ = 0;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, std::string> file_of_;  // By tensor.
  std::map<std::string, Place> places_;         // By parameter.
};

/// DataLoss names the first of a tensor's values that is no finite number, as where training has
/// diverged. `folder` is where the tensor is from.
absl::Status check_finite_values(const std::string& folder, const std::string& tensor,
                                 std::span<const float> values);

/// Makes the run's checkpoint of step 0 of the weights, with moments of zero: a shard for each
/// layer, one in memory at a time. Returns its path. `state` is that of step 0; the checkpoint's
/// has `from_digest`, too: SHA-256 of a line for each tensor, with its name and the SHA-256 of its
/// values as float32, so it is the same in whichever files they are. `check_use` holds of
/// `job.model`. Unavailable   it cannot be written. Else as `WeightsFolder::read`.
absl::StatusOr<std::string> import_weights(const WeightsFolder& weights, const plans::JobSpec& job,
                                           TrainerState state, const std::string& run_folder);

}  // namespace skein::gpu
