#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/device_group_keeper.hpp"
#include "actors/formation_round.hpp"
#include "gpu/device.hpp"
#include "net/gradient_group.hpp"
#include "plans/base/ids.hpp"

namespace skein::actors {

struct DeviceGradientGroupOptions {
  net::GradientGroup::Options group;
  plans::GroupId id;
  uint64_t number = 0;  // Never given out twice, and the same on all members.
  plans::WorkerId self;
  std::string backend;                    // comm.backend
  std::shared_ptr<FormationRound> round;  // Of the plan.
  std::shared_ptr<gpu::Device> device;
  std::shared_ptr<DeviceGroupKeeper> keeper;
  std::function<void(const std::string&)> say;  // One line, for the log.
};

/// The members that add up gradients: their devices among themselves, if all of them can, else by
/// way of `host`. `FormationRound` decides, and how a group comes about; the id of a new one
/// crosses on the board.
///
/// A group that an earlier plan has left whole is used again, or others are made of it. One that is
/// aborted while an operation runs is revoked and kept for that, where the library can; else it is
/// broken, here and, as that operation cannot end, for all.
std::unique_ptr<net::GradientGroup> make_device_gradient_group(
    DeviceGradientGroupOptions options, std::shared_ptr<net::RendezvousBoard> board,
    std::unique_ptr<net::GradientGroup> host);

}  // namespace skein::actors
