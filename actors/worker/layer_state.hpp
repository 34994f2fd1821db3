#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/checkpoint/checkpoint_reader.hpp"
#include "gpu/checkpoint/checkpoint_writer.hpp"
#include "gpu/model/stage_model.hpp"
#include "net/data/tensor_inbox.hpp"
#include "plans/job/model_spec.hpp"

namespace skein::actors {

/// The state of a layer as it travels between workers and is kept as a snapshot: for each of its
/// parameters the weights, the first and the second moments, then a seal of two floats, which hold
/// the CRC-32C of what precedes them and the number of the layer. With a tied head, the last layer
/// carries its copy of the embedding.

/// Number of floats with the seal.
int64_t layer_state_floats(const plans::ModelSpec& model, int64_t layer);
/// Copies the state of `layer`, which `from` must have, without the seal. Only while the device has
/// no other work of it.
absl::Status copy_layer_state(const plans::ModelSpec& spec, int64_t layer,
                              const gpu::StageModel& from, std::span<float> out);
void seal_layer_state(int64_t layer, std::span<float> state);
/// Both.
absl::Status read_layer_state(const plans::ModelSpec& spec, int64_t layer,
                              const gpu::StageModel& from, std::span<float> out);
/// Reads the state of a layer out of a checkpoint. Errors of `CheckpointReader::read`.
absl::Status read_layer_state(const plans::ModelSpec& spec, int64_t layer,
                              const gpu::CheckpointReader& from, const std::string& optimizer,
                              std::span<float> out);
/// DataLoss if a bit has changed on its way, or it is the state of another layer.
absl::Status check_layer_state(const plans::ModelSpec& spec, int64_t layer,
                               std::span<const float> state);
/// The layer's parameters within its sealed state, for a checkpoint.
std::vector<gpu::SavedParameter> saved_parameters(const plans::ModelSpec& spec, int64_t layer,
                                                  std::span<const float> state);
/// Copies the state of `layer` out of `parameters`, which may be those of a whole
/// stage, without the seal. NotFound if one is missing.
absl::Status copy_layer_state(const plans::ModelSpec& spec, int64_t layer,
                              std::span<const gpu::SavedParameter> parameters,
                              std::span<float> out);
/// Checks, then overwrites the state of `layer` in `to`.
absl::Status write_layer_state(const plans::ModelSpec& spec, int64_t layer,
                               std::span<const float> state, gpu::StageModel& to);

/// State after `step` steps that a worker holds: a model that does not train any more, or sealed
/// copies of its layers. Shared, not changed.
struct HeldState {
  uint64_t step = 0;
  uint64_t generation = 0;  // In which the last of the steps was committed.
  plans::LayerRange layers = {};
  std::shared_ptr<gpu::StageModel> model;       // Null: `copies` has every layer.
  gpu::StageModelOptions options;               // The model's.
  std::map<int64_t, net::TensorHandle> copies;  // By layer.
  /// No snapshot: what came for a plan that never started, or was moved off the device for one.
  bool is_until_plan = false;
};

/// The sealed state of `layer` out of one of `held`, a new copy or a shared one.
/// NotFound if none has it after `step` steps.
absl::StatusOr<net::TensorHandle> find_layer_state(const plans::ModelSpec& spec, int64_t layer,
                                                   uint64_t step,
                                                   const std::vector<HeldState>& held);

/// Memory for one layer's state.
net::TensorHandle make_layer_memory(int64_t floats);

}  // namespace skein::actors
