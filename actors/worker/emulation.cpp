#include "actors/worker/emulation.hpp"

namespace skein::actors {

bool emulate(const net::Emulate& wanted, gpu::Device* device, net::DataPlane& plane,
             const std::map<plans::WorkerId, std::string>& addresses) {
  const auto peer = addresses.find(wanted.drop_link_to);
  const bool drops = wanted.drop_link_to.value > 0;
  if (drops && peer == addresses.end()) return false;
  if (wanted.speed > 0 && device != nullptr) device->set_speed(device->info().speed * wanted.speed);
  if (drops) plane.drop_link(peer->second, wanted.drop_seconds);
  return true;
}

}  // namespace skein::actors
