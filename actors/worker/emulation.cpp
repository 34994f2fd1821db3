#include "actors/worker/emulation.hpp"

namespace skein::actors {

bool emulate(net::schema::Emulate::Reader wanted, gpu::Device* device, net::DataPlane& plane,
             const std::map<plans::WorkerId, std::string>& addresses) {
  const double speed = wanted.getSpeed();
  const double seconds = wanted.getDropSeconds();
  const plans::WorkerId to{wanted.getDropLinkTo()};
  const auto peer = addresses.find(to);
  // Not a number is in no range.
  const bool is_speed = speed >= 0 && speed <= 1;
  const bool is_link = to.value == 0 || (seconds >= 0 && peer != addresses.end());
  if (!is_speed || !is_link) return false;
  if (speed > 0 && device != nullptr) device->set_speed(device->info().speed * speed);
  if (to.value > 0) plane.drop_link(peer->second, seconds);
  return true;
}

}  // namespace skein::actors
