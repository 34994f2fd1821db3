#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/checkpoint/checkpoint_writer.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {

inline plans::ModelSpec small_checkpoint_model() {
  plans::ModelSpec model;
  model.vocab_size = 5;
  model.positions = 4;
  model.layers = 1;
  model.heads = 1;
  model.channels = 2;
  return model;
}

/// Saves a run's checkpoint after so many steps, in which each weight is `weight`, and deletes the
/// one before. Returns its path.
inline absl::StatusOr<std::string> save_small_checkpoint(const std::string& run_folder,
                                                         uint64_t steps, float weight,
                                                         TrainerState state = {}) {
  constexpr uint64_t kGeneration = 1;
  const plans::ModelSpec model = small_checkpoint_model();
  const std::string partial = partial_checkpoint_path(run_folder, steps, kGeneration);
  std::vector<SavedParameter> parameters;
  const auto specs = plans::range_parameters(model, {0, plans::layer_count(model)});
  std::vector<std::vector<float>> values;
  values.reserve(specs.size());  // The parameters point into it.
  for (const plans::ParameterSpec& spec : specs) {
    values.emplace_back(static_cast<size_t>(plans::element_count(spec)), weight);
    parameters.push_back({spec, values.back(), values.back(), values.back()});
  }
  SKEIN_ASSIGN_OR_RETURN(const std::vector<SavedFile> files,
                         write_shard(partial, 0, 1, "adamw", parameters));
  state.steps_done = steps;
  if (state.seq_len == 0) state.seq_len = 4;
  state.plan = "plan";
  return complete_checkpoint(run_folder, kGeneration, model, state, files,
                             /*keep_latest_k=*/1);
}

}  // namespace skein::gpu
