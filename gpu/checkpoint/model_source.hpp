#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "gpu/checkpoint/checkpoint_reader.hpp"
#include "gpu/checkpoint/weights_folder.hpp"

namespace skein::gpu {

/// A model that is there to be used, not trained: a checkpoint of ours, or a folder in Hugging
/// Face's form.
class ModelSource {
 public:
  /// `path`: a checkpoint, a run folder, whose newest checkpoint counts, or a folder with
  /// config.json and safetensors. `read_beside` reads the small files of the folder: where a run
  /// deletes the checkpoint meanwhile, as it has a newer one, both begin anew with that. Errors of
  /// `CheckpointReader`, `WeightsFolder` and `read_beside`.
  static absl::StatusOr<ModelSource> open(
      const std::string& path,
      const std::function<absl::Status(const ModelSource&)>& read_beside = {});

  const std::string& folder() const { return folder_; }
  const plans::ModelSpec& model() const;
  /// Tokens of the samples that it has been trained with here; none if it has not been, or if the
  /// weights that training began with know more positions.
  std::optional<int64_t> trained_seq_len() const;
  /// Positions that the model has been trained for, here or before: later ones have learned
  /// nothing.
  int64_t positions() const;
  /// Tells whether the folder of this name on another machine is the same model: by config.json,
  /// and what COMPLETE says of a checkpoint, or else names and sizes of the files of weights, their
  /// headers and pieces of what they hold. Unavailable if these cannot be read; else as
  /// `MappedFile::open`.
  absl::StatusOr<uint64_t> digest() const;
  /// Copies a parameter as float32.
  absl::Status read(const std::string& name, std::span<float> out) const;

 private:
  static absl::StatusOr<ModelSource> open_once(const std::string& path);

  std::string folder_;
  std::unique_ptr<CheckpointReader> checkpoint_;  // One of the two.
  std::unique_ptr<WeightsFolder> weights_;
};

}  // namespace skein::gpu
