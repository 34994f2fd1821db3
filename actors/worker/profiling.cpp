#include "actors/worker/profiling.hpp"

#include <map>
#include <string>
#include <utility>

#include "net/codec/bounds.hpp"

namespace skein::actors {

std::optional<ProfileWork> Profiling::on_request(const net::ProfileRequest& request,
                                                 plans::WorkerId self, const plans::JobSpec& job,
                                                 const std::shared_ptr<gpu::Device>& device) {
  ProfileWork work;
  // Who was told to measure its link to us before may be doing so just now.
  const bool is_open = links_ && links_->self() == self;
  if (!is_open || planes_.size() + request.peers.size() > net::kPeersMax) planes_.clear();
  for (const net::Peer& peer : request.peers) {
    planes_[peer.worker] = peer.data_address;
    if (peer.worker != self) work.peers.push_back(peer.worker);
  }
  if (is_open) {
    links_->set_addresses(planes_);
  } else {
    links_ = net::LinkProbe::open(*plane_, self, planes_);
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
