#pragma once

#include <map>
#include <string>
#include <vector>

#include "net/codec/plans.hpp"
#include "plans/base/ids.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/coordinator/membership.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/modes/mode_list.hpp"
#include "plans/plan/plan_part.hpp"

namespace skein::actors {

/// How much of the plan its workers have to know. Devices may form groups of their own where the
/// job does not forbid it and some worker may have a GPU.
plans::PartNeeds part_needs(const plans::JobSpec& job, const plans::ModeList& modes,
                            const plans::Plan& plan,
                            const std::map<plans::WorkerId, plans::Member>& members);

/// What each worker is told of a plan that is assigned: its part, the layers that move from it and
/// to it, and the addresses to which it sends. Borrows the decision and the members.
class PlanOrders {
 public:
  /// `common`: what every worker is told. `of` clears its secret for a worker that exchanges no
  /// tensors, and fills in the rest.
  PlanOrders(const plans::AssignPlan& decision,
             const std::map<plans::WorkerId, plans::Member>& members, const plans::PartNeeds& needs,
             net::Assign common);

  net::Assign of(plans::WorkerId worker) const;

 private:
  std::vector<net::Peer> peers_of(plans::WorkerId worker, const net::Assign& assign) const;

  const plans::AssignPlan& decision_;
  const std::map<plans::WorkerId, plans::Member>& members_;
  const plans::PlanParts parts_;
  net::Assign common_;
  std::map<plans::WorkerId, std::vector<plans::LayerMove>> moves_;  // From and to each worker.
};

}  // namespace skein::actors
