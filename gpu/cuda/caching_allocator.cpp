#include "gpu/cuda/caching_allocator.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"

namespace skein::gpu {
namespace {

constexpr int64_t kSmallBytes = 1 << 20;
constexpr int64_t kSmallGrain = 512;
constexpr int64_t kLargeGrain = 2 << 20;  // A page of the device's memory.
/// A cached block is taken if at most this share of what is asked for is left unused.
constexpr int64_t kWasteParts = 8;

int64_t grain_of(int64_t bytes) { return bytes < kSmallBytes ? kSmallGrain : kLargeGrain; }

}  // namespace

CachingAllocator::CachingAllocator(Source source, int64_t bytes_max)
    : source_(std::move(source)), bytes_max_(bytes_max) {
  memory_.limit = bytes_max;
}

CachingAllocator::~CachingAllocator() {
  SKEIN_CHECK(given_.empty()) << given_.size() << " blocks outlive their device";
  trim();
}

int64_t CachingAllocator::rounded(int64_t bytes) {
  const int64_t grain = grain_of(bytes);
  return std::max<int64_t>((bytes + grain - 1) / grain, 1) * grain;
}

int64_t CachingAllocator::rounding_max(int64_t bytes) { return grain_of(bytes); }

absl::StatusOr<void*> CachingAllocator::take(int64_t bytes) {
  if (bytes < 0 || bytes > INT64_MAX / 2) {
    return absl::InvalidArgumentError(absl::StrCat("cannot allocate ", bytes, " bytes"));
  }
  const int64_t wanted = rounded(bytes);
  std::lock_guard lock(mutex_);
  void* memory = nullptr;
  int64_t taken = wanted;
  auto found = cached_.lower_bound({wanted, nullptr});
  if (found != cached_.end() && found->first <= wanted + wanted / kWasteParts) {
    std::tie(taken, memory) = *found;
    cached_.erase(found);
    memory_.cached -= taken;
  } else {
    absl::StatusOr<void*> made = take_new(wanted);
    if (!made.ok()) return made.status();
    memory = *made;
  }
  given_[memory] = taken;
  memory_.in_use += taken;
  memory_.in_use_max = std::max(memory_.in_use_max, memory_.in_use);
  return memory;
}

absl::StatusOr<void*> CachingAllocator::take_new(int64_t bytes) {
  auto exceeds = [&] {
    return bytes_max_ > 0 && memory_.in_use + memory_.cached + bytes > bytes_max_;
  };
  absl::Status why = absl::OkStatus();
  for (int round = 0; round < 2; ++round) {
    if (!exceeds()) {
      absl::StatusOr<void*> made = source_.take(bytes);
      if (made.ok() || !absl::IsResourceExhausted(made.status())) return made;
      why = made.status();
    }
    if (memory_.cached == 0) break;
    trim_locked();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("no device memory for ", bytes, " bytes: ", memory_.in_use, " are in use, ",
                   bytes_max_ > 0 ? absl::StrCat(bytes_max_, " are the limit")
                                  : std::string("there is no limit"),
                   ", ", memory_.in_use_max, " were the most so far",
                   why.ok() ? "" : absl::StrCat(" (", std::string(why.message()), ")"),
                   "; use more stages, smaller micro-batches or recomputation"));
}

void CachingAllocator::give_back(void* memory) {
  std::lock_guard lock(mutex_);
  const auto node = given_.extract(memory);
  SKEIN_CHECK(!node.empty()) << "memory comes back that was not given out";
  memory_.in_use -= node.mapped();
  memory_.cached += node.mapped();
  cached_.insert({node.mapped(), memory});
}

void CachingAllocator::trim() {
  std::lock_guard lock(mutex_);
  trim_locked();
}

void CachingAllocator::trim_locked() {
  for (const auto& [bytes, memory] : cached_) source_.give_back(memory);
  cached_.clear();
  memory_.cached = 0;
}

DeviceMemory CachingAllocator::memory() const {
  std::lock_guard lock(mutex_);
  return memory_;
}

}  // namespace skein::gpu
