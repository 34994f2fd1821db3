#include "actors/worker/profiling.hpp"

#include <map>
#include <string>
#include <utility>

namespace skein::actors {

std::optional<ProfileWork> Profiling::on_request(net::schema::ProfileRequest::Reader request,
                                                 plans::WorkerId self, const plans::JobSpec& job,
                                                 const std::shared_ptr<gpu::Device>& device) {
  ProfileWork work;
  std::map<plans::WorkerId, std::string> planes;
  for (auto peer : request.getPeers()) {
    const plans::WorkerId each{peer.getWorker()};
    planes[each] = peer.getDataAddress().cStr();
    if (each != self) work.peers.push_back(each);
  }
  if (links_ && links_->self() == self) {
    links_->set_addresses(std::move(planes));  // Somebody may be measuring just now.
  } else {
    links_ = net::LinkProbe::open(*plane_, self, std::move(planes));
  }
  for (uint32_t rows : request.getRows()) work.rows.push_back(rows);
  if (work.rows.empty() || is_measuring_) return std::nullopt;
  is_measuring_ = true;
  work.job = job;
  work.device = device;
  work.links = links_;
  return work;
}

}  // namespace skein::actors
