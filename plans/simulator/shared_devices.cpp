#include "plans/simulator/shared_devices.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace skein::plans {
namespace {

uint64_t whole(double us) { return static_cast<uint64_t>(us); }

DeviceTurns& at(std::vector<DeviceTurns>& devices, int32_t device) {
  return devices[static_cast<size_t>(device)];
}

}  // namespace

SharedDevices::SharedDevices(int32_t devices, const std::vector<SharingSpec>& jobs, Grant grant)
    : devices_(static_cast<size_t>(devices)), grant_(std::move(grant)) {
  for (DeviceTurns& device : devices_) {
    for (size_t job = 0; job < jobs.size(); ++job) {
      device.add({job, jobs[job].priority, jobs[job].weight});
    }
  }
}

void SharedDevices::enter(int32_t job, int32_t device, uint64_t position, double now_us) {
  at(devices_, device).enter(static_cast<uint64_t>(job), position, whole(now_us));
  advance(device, now_us);
}

TurnReport SharedDevices::report(int32_t job, int32_t device) const {
  const DeviceTurns& turns = devices_[static_cast<size_t>(device)];
  const auto number = static_cast<uint64_t>(job);
  return {turns.head(number), turns.takes_turns(number)};
}

void SharedDevices::request(int32_t job, int32_t device, const DevicePieceNeed& need,
                            double now_us) {
  at(devices_, device).request(static_cast<uint64_t>(job), need, whole(now_us));
  advance(device, now_us);
}

void SharedDevices::end(int32_t job, int32_t device, double now_us) {
  at(devices_, device).end(static_cast<uint64_t>(job), whole(now_us));
  advance(device, now_us);
}

double SharedDevices::wake_us() const {
  double first = std::numeric_limits<double>::infinity();
  for (const DeviceTurns& device : devices_) {
    if (const auto wake = device.wake_us()) first = std::min(first, static_cast<double>(*wake));
  }
  return first;
}

void SharedDevices::wake(double now_us) {
  for (size_t device = 0; device < devices_.size(); ++device) {
    const auto wake = devices_[device].wake_us();
    if (wake && static_cast<double>(*wake) <= now_us) advance(static_cast<int32_t>(device), now_us);
  }
}

void SharedDevices::advance(int32_t device, double now_us) {
  const auto next = at(devices_, device).start(whole(now_us));
  if (next) grant_(static_cast<int32_t>(*next), device, now_us);
}

}  // namespace skein::plans
