#pragma once

#include <memory>
#include <string>

#include "actors/collectives/device_members.hpp"
#include "net/reduce/gradient_group.hpp"

namespace skein::actors {

struct DeviceGradientGroupOptions {
  std::string backend;  // comm.backend
  DeviceMembersOptions devices;
};

/// The members that add up gradients: their devices among themselves, if all of them can, else by
/// way of `host`. The plan's `FormationRound` decides.
std::unique_ptr<net::GradientGroup> make_device_gradient_group(
    DeviceGradientGroupOptions options, std::shared_ptr<net::RendezvousStore> store,
    std::unique_ptr<net::GradientGroup> host);

}  // namespace skein::actors
