#include "actors/device/device.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>

namespace skein::actors {
namespace {

/// A real device with a thread of its own.
struct DeviceRig {
  DeviceRig() : system(config), self(system) {
    actor =
        system.spawn<caf::detached>(device, std::shared_ptr<gpu::Device>(gpu::make_host_device(1)));
    listener = system.spawn([this]() -> WorkListener::behavior_type {
      return {[this](const WorkDone& done) {
        caf::anon_send(caf::actor_cast<caf::actor>(self), done.token, done.status.ok());
      }};
    });
  }
  void give(uint64_t token, std::function<absl::Status(gpu::Ops&)> run, Outgoing output = {}) {
    auto piece = std::make_shared<DevicePiece>();
    piece->token = token;
    piece->work.run = std::move(run);
    piece->output = std::move(output);
    piece->listener = listener;
    caf::anon_send(actor, DeviceRequest{std::move(piece)});
  }
  /// Tokens of so many ends, with whether they went well.
  std::vector<std::pair<uint64_t, bool>> ends(size_t count) {
    std::vector<std::pair<uint64_t, bool>> found;
    while (found.size() < count) {
      self->receive([&](uint64_t token, bool ok) { found.emplace_back(token, ok); });
    }
    return found;
  }
  ~DeviceRig() {
    caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(listener, caf::exit_reason::user_shutdown);
  }

  caf::actor_system_config config;
  caf::actor_system system;
  caf::scoped_actor self;
  Device actor;
  WorkListener listener;
};

TEST(Device, RunsWorkInOrderAndSaysOfEachHowItEnded) {
  DeviceRig rig;
  std::vector<uint64_t> order;
  for (uint64_t i = 0; i < 100; ++i) {
    rig.give(i, [&order, i](gpu::Ops&) {
      order.push_back(i);
      return i == 50 ? absl::AbortedError("no") : absl::OkStatus();
    });
  }
  const auto ends = rig.ends(100);
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(order[i], i);
    EXPECT_EQ(ends[i], (std::pair{i, i != 50}));
  }
}

TEST(Device, WhatTheWorkHoldsIsGoneWhenItsEndIsTold) {
  DeviceRig rig;
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  rig.give(7, [held = std::move(held)](gpu::Ops&) { return absl::OkStatus(); });
  rig.ends(1);
  EXPECT_TRUE(watch.expired());
}

TEST(Device, WorkWithNothingToRunEndsBehindTheRest) {
  DeviceRig rig;
  rig.give(1, [](gpu::Ops&) { return absl::OkStatus(); });
  rig.give(2, {});
  EXPECT_EQ(rig.ends(2).back(), (std::pair{uint64_t{2}, true}));
}

}  // namespace
}  // namespace skein::actors
