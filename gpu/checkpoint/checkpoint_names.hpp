#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace skein::gpu {

// Names of the files of a checkpoint; see gpu/README.md for the layout.
inline constexpr const char* kCompleteName = "COMPLETE";
inline constexpr const char* kConfigName = "config.json";
inline constexpr const char* kTokenizerName = "tokenizer.json";
inline constexpr const char* kGenerationConfigName = "generation_config.json";
inline constexpr const char* kStateName = "trainer_state.json";
inline constexpr const char* kModelIndexName = "model.safetensors.index.json";
inline constexpr const char* kOptimizerIndexName = "optimizer.safetensors.index.json";

/// What the names of a parameter's moments add to its own, the first moment first, as PyTorch names
/// the state of its optimizers: ".exp_avg" and ".exp_avg_sq", or ".momentum" for "sgd".
std::span<const char* const> moment_suffixes(const std::string& optimizer);
/// "step-000500"
std::string checkpoint_name(uint64_t steps_done);
/// "model-00001-of-00003.safetensors"
std::string shard_name(const std::string& kind, int shard, int shard_count);

}  // namespace skein::gpu
