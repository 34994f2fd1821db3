#include "actors/device/shared_memory.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace skein::actors {
namespace {

absl::Status missing(int64_t wanted, int64_t others, int64_t limit) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the job needs ", wanted, " bytes of the device that it shares, of whose ",
                   limit, " other jobs have ", others, ": ", wanted + others - limit,
                   " bytes are missing; more workers, or fewer rows in a micro-batch, take less"));
}

}  // namespace

absl::Status SharedMemory::reserve(uint64_t number, int64_t bytes, int64_t limit) {
  const int64_t others = of_others(number);
  if (limit > 0 && bytes + others > limit) return missing(bytes, others, limit);
  std::lock_guard lock(mutex_);
  parts_[number].reserved = bytes;
  return absl::OkStatus();
}

absl::Status SharedMemory::take(uint64_t number, int64_t bytes, int64_t limit) {
  const int64_t others = of_others(number);
  std::lock_guard lock(mutex_);
  Part& own = parts_[number];
  if (limit > 0 && own.in_use + bytes + others > limit) {
    return missing(own.in_use + bytes, others, limit);
  }
  own.in_use += bytes;
  return absl::OkStatus();
}

void SharedMemory::give_back(uint64_t number, int64_t bytes) {
  std::lock_guard lock(mutex_);
  parts_[number].in_use -= bytes;
}

void SharedMemory::forget(uint64_t number) {
  std::lock_guard lock(mutex_);
  parts_[number].reserved = 0;
}

int64_t SharedMemory::in_use(uint64_t number) const {
  std::lock_guard lock(mutex_);
  const auto found = parts_.find(number);
  return found == parts_.end() ? 0 : found->second.in_use;
}

int64_t SharedMemory::of_others(uint64_t number) const {
  std::lock_guard lock(mutex_);
  int64_t bytes = 0;
  for (const auto& [job, part] : parts_) {
    if (job != number) bytes += std::max(part.reserved, part.in_use);
  }
  return bytes;
}

}  // namespace skein::actors
