#pragma once

#include <map>
#include <string>

#include "gpu/device.hpp"
#include "net/codec/membership.hpp"
#include "net/data/data_plane.hpp"
#include "plans/base/ids.hpp"

namespace skein::actors {

/// Does to this worker what an experiment asks for: another emulated speed, relative to the one
/// that `device` was made with, a dropped link to one of `addresses`, or both. False, and nothing
/// happens, if the other worker is unknown. `device` may be null before
/// it is made. A repeat drops the link anew.
bool emulate(const net::Emulate& wanted, gpu::Device* device, net::DataPlane& plane,
             const std::map<plans::WorkerId, std::string>& addresses);

}  // namespace skein::actors
