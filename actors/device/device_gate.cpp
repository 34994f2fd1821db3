#include "actors/device/device_gate.hpp"

#include <utility>

#include "actors/microseconds.hpp"

namespace skein::actors {
namespace {

using Clock = std::chrono::steady_clock;

uint64_t now_us() { return to_us(Clock::now()); }

}  // namespace

void DeviceGate::add(const plans::DeviceJob& job) {
  std::lock_guard lock(mutex_);
  turns_.add(job);
  queues_[job.number].stay = ++stays_;
}

void DeviceGate::remove(uint64_t job) {
  std::lock_guard lock(mutex_);
  turns_.remove(job);
  queues_.erase(job);
  advance();
}

bool DeviceGate::has(uint64_t job) const {
  std::lock_guard lock(mutex_);
  return queues_.contains(job);
}

bool DeviceGate::is_empty() const {
  std::lock_guard lock(mutex_);
  return queues_.empty();
}

void DeviceGate::enter(uint64_t job, uint64_t position) {
  std::lock_guard lock(mutex_);
  if (!queues_.contains(job)) return;
  turns_.enter(job, position, now_us());
  advance();
}

void DeviceGate::leave(uint64_t job) {
  std::lock_guard lock(mutex_);
  if (!queues_.contains(job)) return;
  turns_.leave(job, now_us());
  advance();
}

void DeviceGate::change(const plans::DeviceJob& job) {
  std::lock_guard lock(mutex_);
  if (!queues_.contains(job.number)) return;
  turns_.change(job, now_us());
  advance();
}

void DeviceGate::begin_passes(uint64_t job) {
  std::lock_guard lock(mutex_);
  if (queues_.contains(job)) turns_.begin_passes(job);
}

void DeviceGate::end_passes(uint64_t job) {
  std::lock_guard lock(mutex_);
  if (!queues_.contains(job)) return;
  turns_.end_passes(job, now_us());
  advance();
}

bool DeviceGate::is_waiting(uint64_t job) const {
  std::lock_guard lock(mutex_);
  return queues_.contains(job) && turns_.is_waiting(job);
}

plans::TurnReport DeviceGate::report(uint64_t job) const {
  std::lock_guard lock(mutex_);
  if (!queues_.contains(job)) return {};
  return {turns_.head(job), turns_.takes_turns(job)};
}

DeviceGate::Queue* DeviceGate::find(uint64_t job, uint64_t stay) {
  const auto found = queues_.find(job);
  return found == queues_.end() || found->second.stay != stay ? nullptr : &found->second;
}

DeviceGate::Pass DeviceGate::begin(uint64_t job, const plans::DevicePieceNeed& need) {
  std::unique_lock lock(mutex_);
  const auto here = queues_.find(job);
  if (here == queues_.end()) return {Clock::now()};
  const uint64_t stay = here->second.stay;
  const uint64_t number = here->second.asked++;
  turns_.request(job, need, now_us());
  advance();
  Queue* own = find(job, stay);
  const bool has_waited = own != nullptr && own->granted <= number;
  while (own != nullptr && own->granted <= number) {
    if (const auto wake_us = turns_.wake_us()) {
      changed_.wait_until(lock, Instant(std::chrono::microseconds(*wake_us)));
      if (now_us() >= *wake_us) advance();
    } else {
      changed_.wait(lock);
    }
    own = find(job, stay);
  }
  return {own == nullptr ? Clock::now() : own->granted_at, stay, has_waited};
}

void DeviceGate::end(uint64_t job, const Pass& pass) {
  std::lock_guard lock(mutex_);
  if (find(job, pass.stay) == nullptr) return;
  turns_.end(job, now_us());
  advance();
}

void DeviceGate::advance() {
  if (const std::optional<uint64_t> next = turns_.start(now_us())) {
    Queue& queue = queues_.at(*next);
    ++queue.granted;
    queue.granted_at = Clock::now();
  }
  changed_.notify_all();
}

}  // namespace skein::actors
