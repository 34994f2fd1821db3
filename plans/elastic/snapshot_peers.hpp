#pragma once

#include <map>
#include <string>
#include <vector>

#include "plans/elastic/worker_pairs.hpp"
#include "plans/job/model_spec.hpp"
#include "plans/plan/plan.hpp"

namespace skein::plans {

/// The worker that keeps the snapshot of the first replica's state, by stage of `plan`:
/// another one than that replica's. Preferred, in this order: one on another host; one that has no
/// replica of the stage, and so is not lost with it; the one that keeps the fewest bytes so far,
/// stage by stage; the lowest id. If there is no other worker that it can reach: WorkerId{0}, and
/// under local updates the replica's own, whose model is ahead of what is committed.
///
/// `hosts`  has the host of every worker that may keep one, and of every worker of the plan.
/// `apart`  those who cannot reach one another keep nothing of each other.
std::vector<WorkerId> choose_snapshot_peers(const Plan& plan, const ModelSpec& model,
                                            const std::map<WorkerId, std::string>& hosts,
                                            const WorkerPairs& apart = {});

}  // namespace skein::plans
