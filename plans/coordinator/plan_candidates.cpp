#include "plans/coordinator/plan_candidates.hpp"

#include <string>
#include <utility>

namespace skein::plans {

std::vector<WorkerId> PlanCandidates::able(uint64_t now_us, Leavers leavers) const {
  // Who saves what is there is not held back for having come and gone.
  const uint64_t at_us = takes_unmeasured_ ? UINT64_MAX : now_us;
  std::vector<WorkerId> workers;
  for (const auto& [id, member] : members_.all()) {
    if (!members_.may_work(member, at_us, leavers)) continue;
    if (is_planned_ && !takes_unmeasured_ && !measurements_.has(id)) continue;
    workers.push_back(id);
  }
  return workers;
}

std::vector<WorkerId> PlanCandidates::first_allowed(std::vector<WorkerId> workers) const {
  const auto most = static_cast<size_t>(job_.elastic.max_workers);
  if (most != 0 && workers.size() > most) workers.resize(most);
  return workers;
}

ReplanRequest PlanCandidates::request(std::vector<WorkerId> workers, uint64_t generation,
                                      bool is_urgent) const {
  ReplanRequest request;
  request.workers = std::move(workers);
  request.job = job_;
  request.given = given_;
  for (const WorkerId worker : request.workers) {
    if (!members_.has(worker)) continue;
    const std::string& address = members_.all().at(worker).request.data_address;
    request.hosts[worker] = address.substr(0, address.rfind(':'));
  }
  request.measured = takes_unmeasured_ ? measurements_.of_or_guessed(request.workers)
                                       : measurements_.of(request.workers);
  request.current = change_.plan();
  request.is_urgent = is_urgent;
  request.only_saves = takes_unmeasured_;
  request.generation = generation;
  return request;
}

}  // namespace skein::plans
