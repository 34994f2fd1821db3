#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/device_group.hpp"

namespace skein::actors {

/// Where members of groups of one test meet: sums are made when the last one has come.
struct GroupWorld {
  struct Meeting {
    std::vector<std::pair<float*, int64_t>> values;
    uint64_t ended = 0;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, Meeting> meetings;  // By id.
  int ids = 0;
  int formed = 0;  // Members, from nothing.
  int shrunk = 0, split = 0, revoked = 0;
  bool can_shrink = false, can_split = false, can_revoke = false;
  bool refuses = false;
};

/// A group of devices in one process, which can add up and be aborted.
class FakeDeviceGroup final : public gpu::DeviceGroup {
 public:
  FakeDeviceGroup(GroupWorld& world, std::string id, int32_t rank, int32_t count, Options options)
      : world_(world),
        id_(std::move(id)),
        rank_(rank),
        count_(count),
        options_(std::move(options)) {}

  int32_t rank() const override { return rank_; }
  int32_t rank_count() const override { return count_; }
  bool is_broken() const override { return options_.abort->is_raised(); }
  std::shared_ptr<gpu::AbortSignal> abort_signal() const override { return options_.abort; }
  uint64_t operations() const override { return operations_; }

  absl::Status all_reduce_sum(float* values, int64_t count, Start) override {
    std::lock_guard lock(world_.mutex);
    GroupWorld::Meeting& meeting = world_.meetings[id_];
    awaited_ = meeting.ended + 1;
    ++operations_;
    meeting.values.emplace_back(values, count);
    if (static_cast<int32_t>(meeting.values.size()) < count_) return absl::OkStatus();
    for (int64_t i = 0; i < count; ++i) {
      float sum = 0;
      for (const auto& each : meeting.values) sum += each.first[i];
      for (const auto& each : meeting.values) each.first[i] = sum;
    }
    meeting.values.clear();
    ++meeting.ended;
    world_.changed.notify_all();
    return absl::OkStatus();
  }
  absl::Status wait() override {
    std::unique_lock lock(world_.mutex);
    while (world_.meetings[id_].ended < awaited_) {
      if (options_.abort->is_raised()) return absl::UnavailableError("aborted");
      world_.changed.wait_for(lock, std::chrono::milliseconds(1));
    }
    return absl::OkStatus();
  }

  absl::Status broadcast(float*, int64_t, int32_t, Start) override { return unknown(); }
  absl::Status exchange(std::span<const Sent>, std::span<const Received>, Start) override {
    return unknown();
  }
  absl::Status order_compute_behind() override { return absl::OkStatus(); }
  absl::Status revoke() override {
    std::lock_guard lock(world_.mutex);
    ++world_.revoked;
    return absl::OkStatus();
  }
  /// The parts are halves.
  absl::StatusOr<std::unique_ptr<DeviceGroup>> split(int32_t color,
                                                     const Options& options) override {
    std::lock_guard lock(world_.mutex);
    ++world_.split;
    return make_child("s" + std::to_string(color), rank_ % (count_ / 2), count_ / 2, options);
  }
  absl::StatusOr<std::unique_ptr<DeviceGroup>> shrink(std::span<const int32_t> left, Shrink,
                                                      const Options& options) override {
    std::lock_guard lock(world_.mutex);
    ++world_.shrunk;
    std::string name = "k";
    int32_t rank = rank_;
    for (int32_t each : left) {
      name += "-" + std::to_string(each);
      if (each < rank_) --rank;
    }
    return make_child(name, rank, count_ - static_cast<int32_t>(left.size()), options);
  }
  absl::Status close() override { return absl::OkStatus(); }

 private:
  std::unique_ptr<DeviceGroup> make_child(const std::string& name, int32_t rank, int32_t count,
                                          const Options& options) const {
    return std::make_unique<FakeDeviceGroup>(world_, id_ + name, rank, count, options);
  }
  static absl::Status unknown() { return absl::UnimplementedError("not of the fake"); }

  GroupWorld& world_;
  const std::string id_;
  const int32_t rank_, count_;
  const Options options_;
  uint64_t operations_ = 0;
  uint64_t awaited_ = 0;
};

class FakeDeviceGroups final : public gpu::DeviceGroups {
 public:
  FakeDeviceGroups(const std::string& place, GroupWorld& world) : world_(world) {
    info_.library = "nccl 2.28.9";
    info_.place = place;
    info_.can_shrink = world.can_shrink;
    info_.can_split = world.can_split;
    info_.can_revoke = world.can_revoke;
  }

  const Info& info() const override { return info_; }
  absl::StatusOr<std::string> make_id() override {
    std::lock_guard lock(world_.mutex);
    return "id-" + std::to_string(++world_.ids);
  }
  absl::StatusOr<std::unique_ptr<gpu::DeviceGroup>> form(
      const std::string& id, int32_t rank, int32_t count,
      const gpu::DeviceGroup::Options& options) override {
    std::lock_guard lock(world_.mutex);
    if (world_.refuses) return absl::UnavailableError("no network");
    ++world_.formed;
    return std::make_unique<FakeDeviceGroup>(world_, id, rank, count, options);
  }

 private:
  GroupWorld& world_;
  Info info_;
};

/// A device with groups, or, without a world, one of the host that has none.
class FakeGroupDevice final : public gpu::Device {
 public:
  FakeGroupDevice(const std::string& place, GroupWorld* world) {
    info_.name = "fake";
    info_.is_host_memory = world == nullptr;
    if (world != nullptr) groups_ = std::make_unique<FakeDeviceGroups>(place, *world);
  }

  const gpu::DeviceInfo& info() const override { return info_; }
  absl::StatusOr<gpu::Buffer> allocate(int64_t bytes) override {
    return gpu::Buffer(std::calloc(1, static_cast<size_t>(bytes)), bytes, std::free);
  }
  absl::Status run(gpu::Work) override { return absl::OkStatus(); }
  absl::StatusOr<gpu::DeviceGroups*> groups() override {
    if (!groups_) return gpu::Device::groups();
    return groups_.get();
  }

 private:
  gpu::DeviceInfo info_;
  std::unique_ptr<FakeDeviceGroups> groups_;
};

}  // namespace skein::actors
