#include "actors/worker/profiling.hpp"

#include <algorithm>
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
  rows_ = work.rows;
  peers_ = work.peers;
  work.job = job;
  work.device = device;
  work.links = links_;
  return work;
}

absl::StatusOr<plans::MeasuredWorker> Profiling::on_measured(const ProfileMeasured& result) {
  is_measuring_ = false;
  if (result.status.ok()) {
    last_ = result.measured;
    return result.measured;
  }
  const bool has_other = last_ && last_->profile.rows == rows_;
  if (!absl::IsResourceExhausted(result.status) || !has_other) return result.status;
  plans::MeasuredWorker before = *last_;
  std::erase_if(before.links, [this](const auto& link) {
    return std::find(peers_.begin(), peers_.end(), link.first) == peers_.end();
  });
  return before;
}

}  // namespace skein::actors
