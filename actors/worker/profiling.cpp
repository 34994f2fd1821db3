#include "actors/worker/profiling.hpp"

#include <map>
#include <string>
#include <utility>

namespace skein::actors {

std::optional<ProfileWork> Profiling::on_request(const net::ProfileRequest& request,
                                                 plans::WorkerId self, const plans::JobSpec& job,
                                                 const std::shared_ptr<gpu::Device>& device) {
  ProfileWork work;
  std::map<plans::WorkerId, std::string> planes;
  for (const net::Peer& peer : request.peers) {
    planes[peer.worker] = peer.data_address;
    if (peer.worker != self) work.peers.push_back(peer.worker);
  }
  if (links_ && links_->self() == self) {
    links_->set_addresses(std::move(planes));  // Somebody may be measuring just now.
  } else {
    links_ = net::LinkProbe::open(*plane_, self, std::move(planes));
  }
  work.rows = request.rows;
  if (work.rows.empty() || is_measuring_) return std::nullopt;
  is_measuring_ = true;
  work.job = job;
  work.device = device;
  work.links = links_;
  return work;
}

}  // namespace skein::actors
