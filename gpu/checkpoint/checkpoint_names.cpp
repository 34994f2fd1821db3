#include "gpu/checkpoint/checkpoint_names.hpp"

#include "absl/strings/str_format.h"

namespace skein::gpu {

std::span<const char* const> moment_suffixes(const std::string& optimizer) {
  static constexpr const char* kAdamW[] = {".exp_avg", ".exp_avg_sq"};
  static constexpr const char* kSgd[] = {".momentum"};
  if (optimizer == "sgd") return kSgd;
  return kAdamW;
}

std::string shard_name(const std::string& kind, int shard, int shard_count) {
  return absl::StrFormat("%s-%05d-of-%05d.safetensors", kind, shard + 1, shard_count);
}

}  // namespace skein::gpu
