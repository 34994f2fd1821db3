#include "gpu/host/host_memory.hpp"

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace skein::gpu {
namespace {

constexpr int64_t kAlignment = 64;  // A cache line, and the widest vector.

}  // namespace

absl::StatusOr<Buffer> allocate_host(int64_t bytes) {
  if (bytes < 0)
    return absl::InvalidArgumentError(absl::StrCat("cannot allocate ", bytes, " bytes"));
  const auto rounded =
      static_cast<size_t>((bytes + kAlignment - 1) / kAlignment * kAlignment + kAlignment);
  void* memory = std::aligned_alloc(kAlignment, rounded);
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no host memory for ", bytes, " bytes; use more stages or smaller batches"));
  }
  std::memset(memory, 0, rounded);
  return Buffer(memory, bytes, [](void* raw) { std::free(raw); });
}

}  // namespace skein::gpu
