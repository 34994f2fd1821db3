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
  lines_[job.number];
}

void DeviceGate::remove(uint64_t job) {
  std::lock_guard lock(mutex_);
  turns_.remove(job);
  lines_.erase(job);
  advance();
  changed_.notify_all();
}

bool DeviceGate::has(uint64_t job) const {
  std::lock_guard lock(mutex_);
  return lines_.contains(job);
}

void DeviceGate::enter(uint64_t job, uint64_t position) {
  std::lock_guard lock(mutex_);
  if (!lines_.contains(job)) return;
  turns_.enter(job, position, now_us());
  advance();
}

void DeviceGate::leave(uint64_t job) {
  std::lock_guard lock(mutex_);
  if (!lines_.contains(job)) return;
  turns_.leave(job, now_us());
  advance();
}

plans::TurnReport DeviceGate::report(uint64_t job) const {
  std::lock_guard lock(mutex_);
  return {turns_.head(), lines_.contains(job) && turns_.takes_turns(job)};
}

DeviceGate::Instant DeviceGate::begin(uint64_t job, const plans::DevicePieceNeed& need) {
  std::unique_lock lock(mutex_);
  auto line = lines_.find(job);
  if (line == lines_.end()) return Clock::now();
  const uint64_t number = line->second.asked++;
  turns_.request(job, need, now_us());
  advance();
  while (line != lines_.end() && line->second.granted <= number) {
    if (const auto wake_us = turns_.wake_us()) {
      changed_.wait_until(lock, Instant(std::chrono::microseconds(*wake_us)));
    } else {
      changed_.wait(lock);
    }
    advance();
    line = lines_.find(job);
  }
  return line == lines_.end() ? Clock::now() : line->second.granted_at;
}

void DeviceGate::end(uint64_t job) {
  std::lock_guard lock(mutex_);
  turns_.end(job, now_us());
  advance();
}

void DeviceGate::advance() {
  const std::optional<uint64_t> next = turns_.start(now_us());
  if (!next) return;
  Line& line = lines_.at(*next);
  ++line.granted;
  line.granted_at = Clock::now();
  changed_.notify_all();
}

}  // namespace skein::actors
