#pragma once

#include <cstddef>
#include <vector>

#include "gpu/model/head.hpp"
#include "gpu/model/layer.hpp"
#include "gpu/model/parameter_store.hpp"

namespace skein::gpu {

/// Where the layers of a stage find their parameters in its store.
struct StageParameters {
  std::vector<LayerParameters> blocks;
  size_t first_block = 0;            // The first parameter of the first one.
  Head::Parameters head{};           // Only if the stage has it.
  std::vector<size_t> layer_begins;  // First parameter of each layer, and one more.
};
StageParameters find_parameters(const StageModelOptions& options, const ParameterStore& store);

}  // namespace skein::gpu
