#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plans/job/model_spec.hpp"

namespace skein::plans {

/// What the tensors of a block are to its computation.
enum class BlockPart {
  kNorm1Weight,
  kNorm1Bias,
  kQkvWeight,
  kQkvBias,
  kProjectionWeight,
  kProjectionBias,
  kNorm2Weight,
  kNorm2Bias,
  kUpWeight,  // With "swiglu": the gate's, then the other one's.
  kUpBias,
  kDownWeight,
  kDownBias,
};
inline constexpr size_t kBlockPartCount = 12;

struct BlockParameter {
  BlockPart part;
  ParameterSpec spec;
};

/// The tensors of block `block` in the order of the forward pass. One part is one matrix or vector,
/// whole or in tensors one behind the other: Llama's q [H D, C], k and v [K D, C] are the part [(H
/// + 2 K) D, C].
std::vector<BlockParameter> block_parameters(const ModelSpec& model, int64_t block);

/// Numbers of a block for each token: activations that its forward keeps beside its input and
/// output, statistics, which are float32 on every device, and what its I leaves for its W.
struct BlockNumbers {
  int64_t stash = 0;
  int64_t statistics = 0;
  int64_t pending = 0;
};
BlockNumbers block_numbers(const ModelSpec& model);

}  // namespace skein::plans
