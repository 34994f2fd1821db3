#pragma once

#include <span>
#include <string>

namespace skein::gpu {

// Names of the files of a checkpoint, and of what a worker has left (HELD, AWAITED; see
// emergency_shards.hpp):
//
//   <run>/checkpoint/step-00000500/   beside it, "latest" is a link to the newest one
//       model-00001-of-00003.safetensors, optimizer-00001-of-00003.safetensors   stage 1 of 3
//       model.safetensors.index.json, optimizer.safetensors.index.json   in which file a tensor is
//       config.json                       the model
//       trainer_state.json                what else a run needs to go on from it
//       tokenizer.json and the like       of a run that has them
//       COMPLETE                          names, sizes and digests of the others; written last
inline constexpr const char* kCompleteName = "COMPLETE";
inline constexpr const char* kConfigName = "config.json";
inline constexpr const char* kTokenizerName = "tokenizer.json";
inline constexpr const char* kGenerationConfigName = "generation_config.json";
inline constexpr const char* kStateName = "trainer_state.json";
inline constexpr const char* kModelIndexName = "model.safetensors.index.json";
inline constexpr const char* kOptimizerIndexName = "optimizer.safetensors.index.json";
inline constexpr const char* kHeldName = "HELD";
inline constexpr const char* kAwaitedName = "AWAITED";

/// What the names of a parameter's moments add to its own, the first moment first, as PyTorch names
/// the state of its optimizers: ".exp_avg" and ".exp_avg_sq", or ".momentum" for "sgd".
std::span<const char* const> moment_suffixes(const std::string& optimizer);
/// "model-00001-of-00003.safetensors"
std::string shard_name(const std::string& kind, int shard, int shard_count);

}  // namespace skein::gpu
