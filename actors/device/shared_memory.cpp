#include "actors/device/shared_memory.hpp"

#include <algorithm>
#include <utility>

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

void SharedMemory::set_priority(uint64_t job, int64_t priority) {
  std::lock_guard lock(mutex_);
  parts_[job].priority = priority;
  changed_.notify_all();
}

absl::Status SharedMemory::reserve(uint64_t job, int64_t bytes, int64_t limit) {
  std::unique_lock lock(mutex_);
  const auto deadline = std::chrono::steady_clock::now() + patience_;
  const auto fits = [&](Others which) {
    return limit == 0 || bytes + others_of(job, which) <= limit;
  };
  parts_[job].wanted = bytes;
  while (!fits(Others::kAll) && fits(Others::kBefore)) {
    if (changed_.wait_until(lock, deadline) == std::cv_status::timeout) break;
  }
  parts_[job].wanted = 0;
  changed_.notify_all();
  if (!fits(Others::kAll)) return missing(bytes, others_of(job, Others::kAll), limit);
  parts_[job].reserved = bytes;
  return absl::OkStatus();
}

absl::Status SharedMemory::take(uint64_t job, int64_t bytes, int64_t limit) {
  std::lock_guard lock(mutex_);
  const int64_t others = others_of(job, Others::kAll);
  Part& own = parts_[job];
  if (limit > 0 && own.in_use + bytes + others > limit) {
    return missing(own.in_use + bytes, others, limit);
  }
  own.in_use += bytes;
  return absl::OkStatus();
}

void SharedMemory::give_back(uint64_t job, int64_t bytes) {
  std::lock_guard lock(mutex_);
  parts_[job].in_use -= bytes;
  changed_.notify_all();
}

void SharedMemory::forget(uint64_t job) {
  std::lock_guard lock(mutex_);
  parts_[job].reserved = 0;
  changed_.notify_all();
}

int64_t SharedMemory::in_use(uint64_t job) const {
  std::lock_guard lock(mutex_);
  const auto found = parts_.find(job);
  return found == parts_.end() ? 0 : found->second.in_use;
}

int64_t SharedMemory::of_others(uint64_t job) const {
  std::lock_guard lock(mutex_);
  return others_of(job, Others::kAll);
}

int64_t SharedMemory::others_of(uint64_t job, Others which) const {
  int64_t bytes = 0;
  const auto own = parts_.find(job);
  const int64_t own_priority = own == parts_.end() ? 0 : own->second.priority;
  for (const auto& [other, part] : parts_) {
    if (other == job) continue;
    const bool is_before = std::pair(-part.priority, other) < std::pair(-own_priority, job);
    if (!is_before && which == Others::kBefore) continue;
    bytes += std::max({part.reserved, part.in_use, is_before ? part.wanted : 0});
  }
  return bytes;
}

}  // namespace skein::actors
