#include "actors/device/shared_memory.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::actors {
namespace {

constexpr int kLong = 10;  // Patiences for what takes as long as a device is measured.

absl::Status missing(int64_t wanted, int64_t others, int64_t limit) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the job needs ", wanted, " bytes of the device that it shares, of whose ",
                   limit, " other jobs have ", others, ": ", wanted + others - limit,
                   " bytes are missing; more workers, or fewer rows in a micro-batch, take less"));
}

}  // namespace

void SharedMemory::set_priority(uint64_t job, int64_t priority) {
  std::lock_guard lock(mutex_);
  const auto [part, is_new] = parts_.try_emplace(job);
  if (is_new) part->second.came = std::chrono::steady_clock::now();
  part->second.priority = priority;
  changed_.notify_all();
}

absl::Status SharedMemory::reserve(uint64_t job, int64_t bytes, int64_t limit) {
  std::unique_lock lock(mutex_);
  parts_[job].wanted = bytes;
  while (limit > 0 && bytes > 0 && comes_before(job)) changed_.wait_for(lock, patience_);
  const auto deadline = std::chrono::steady_clock::now() + patience_;
  while (!fits(job, bytes, limit, Others::kAll) && fits(job, bytes, limit, Others::kBefore)) {
    if (changed_.wait_until(lock, deadline) == std::cv_status::timeout) break;
  }
  parts_[job].wanted = 0;
  changed_.notify_all();
  if (!fits(job, bytes, limit, Others::kAll))
    return missing(bytes, others_of(job, Others::kAll), limit);
  grant(parts_[job], bytes);
  if (bytes > 0) parts_[job].came.reset();
  return absl::OkStatus();
}

bool SharedMemory::fits(uint64_t job, int64_t bytes, int64_t limit, Others which) const {
  const int64_t others = others_of(job, which);
  return limit == 0 || others == 0 || bytes + others <= limit;
}

bool SharedMemory::comes_before(uint64_t job) const {
  const Instant now = std::chrono::steady_clock::now();
  return std::any_of(parts_.begin(), parts_.end(), [&](const auto& each) {
    const auto& came = each.second.came;
    return came && now < *came + kLong * patience_ && is_before(each.first, job);
  });
}

absl::Status SharedMemory::reserve_briefly(uint64_t job, int64_t bytes, int64_t limit) {
  std::unique_lock lock(mutex_);
  const auto is_its_turn = [&] {
    const auto is_before_and_waits = [&](const auto& each) {
      return each.second.waits_briefly && is_before(each.first, job);
    };
    return fits(job, bytes, limit, Others::kAll) &&
           std::none_of(parts_.begin(), parts_.end(), is_before_and_waits);
  };
  parts_[job].waits_briefly = true;
  if (limit > 0) changed_.wait_for(lock, kLong * patience_, is_its_turn);
  parts_[job].waits_briefly = false;
  changed_.notify_all();
  if (!fits(job, bytes, limit, Others::kAll))
    return missing(bytes, others_of(job, Others::kAll), limit);
  grant(parts_[job], bytes);
  return absl::OkStatus();
}

void SharedMemory::grant(Part& part, int64_t bytes) {
  part.reserved = bytes;
  part.taken = 0;
  changed_.notify_all();
}

absl::Status SharedMemory::take(uint64_t job, int64_t bytes, int64_t limit) {
  std::lock_guard lock(mutex_);
  const int64_t others = others_of(job, Others::kAll);
  Part& own = parts_[job];
  const bool is_granted = own.taken + bytes <= own.reserved;
  if (limit > 0 && own.in_use + bytes + others > limit && !is_granted) {
    return missing(own.in_use + bytes, others, limit);
  }
  own.in_use += bytes;
  own.taken += bytes;
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
  parts_[job].came.reset();
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

bool SharedMemory::is_before(uint64_t one, uint64_t other) const {
  const auto place = [&](uint64_t job) {
    const auto part = parts_.find(job);
    return std::pair(part == parts_.end() ? 0 : -part->second.priority, job);
  };
  return place(one) < place(other);
}

int64_t SharedMemory::others_of(uint64_t job, Others which) const {
  int64_t bytes = 0;
  for (const auto& [other, part] : parts_) {
    if (other == job) continue;
    const bool comes_first = is_before(other, job);
    if (!comes_first && which == Others::kBefore) continue;
    bytes += std::max({part.reserved, part.in_use, comes_first ? part.wanted : 0});
  }
  return bytes;
}

}  // namespace skein::actors
