#pragma once

#include <cstdint>
#include <string>

namespace skein::gpu {

// Names of the files of a checkpoint; see gpu/README.md for the layout.
inline constexpr const char* kCompleteName = "COMPLETE";
inline constexpr const char* kConfigName = "config.json";
inline constexpr const char* kStateName = "trainer_state.json";
inline constexpr const char* kModelIndexName = "model.safetensors.index.json";
inline constexpr const char* kOptimizerIndexName = "optimizer.safetensors.index.json";

/// "step-000500"
std::string checkpoint_name(uint64_t steps_done);
/// "model-00001-of-00003.safetensors"
std::string shard_name(const std::string& kind, int shard, int shard_count);

}  // namespace skein::gpu
