#include "plans/coordinator/plan_change.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plans/base/check.hpp"
#include "plans/elastic/snapshot_peers.hpp"
#include "plans/plan/layout_plan.hpp"

namespace skein::plans {
namespace {

/// Items of state in one line of the log.
constexpr size_t kMissingDescribedMax = 16;

}  // namespace

PlanChange::PlanChange(const JobSpec& job, std::optional<Plan> last)
    : job_(job), plan_(std::move(last)) {}

void PlanChange::begin() {
  inventories_.clear();
  prepared_.clear();
  asked_for_.clear();
}

bool PlanChange::take_inventory(WorkerId worker, std::vector<InventoryItem> inventory) {
  return inventories_.emplace(worker, std::move(inventory)).second;
}

void PlanChange::forget(WorkerId worker) {
  inventories_.erase(worker);
  prepared_.erase(worker);
}

bool PlanChange::is_quiet(const std::map<WorkerId, Member>& members) const {
  if (inventories_.size() < members.size()) return false;
  return std::all_of(members.begin(), members.end(),
                     [this](const auto& each) { return inventories_.contains(each.first); });
}

std::optional<PlannedPipeline> PlanChange::take_proposal(const std::vector<WorkerId>& workers) {
  std::optional<PlannedPipeline> proposed = std::exchange(proposed_, std::nullopt);
  if (!proposed) return std::nullopt;
  const std::set<WorkerId> needed = plan_workers(proposed->plan);
  if (!std::includes(workers.begin(), workers.end(), needed.begin(), needed.end())) {
    return std::nullopt;
  }
  return proposed;
}

StateSources PlanChange::sources(const Durable& durable) const {
  StateSources sources;
  sources.inventory = inventories_;
  sources.committed = durable.committed;
  sources.durable_step = durable.durable;
  sources.apart = apart_;
  return sources;
}

RestoreDecision PlanChange::restore_of(const Plan& plan, const Durable& durable) const {
  return decide_restore(plan, layer_count(job_.model), sources(durable));
}

uint64_t PlanChange::newest_step(const Durable& durable) const {
  return plans::newest_step(sources(durable), layer_count(job_.model));
}

std::string PlanChange::describe_inventories() const {
  std::vector<std::string> held;
  for (const auto& [worker, inventory] : inventories_) {
    for (const InventoryItem& each : inventory) {
      if (held.size() == kMissingDescribedMax)
        return absl::StrCat(absl::StrJoin(held, "; "), "; ...");
      held.push_back(absl::StrCat("w", worker.value, " holds layers ", each.layers.begin, " to ",
                                  each.layers.end - 1, " after ", each.step, " steps"));
    }
  }
  return held.empty() ? "nobody here holds any" : absl::StrJoin(held, "; ");
}

void PlanChange::assign(Plan plan, const std::map<WorkerId, Member>& members,
                        const Durable& durable) {
  plan_ = std::move(plan);
  hosted_.clear();
  prepared_.clear();
  std::map<WorkerId, std::string> hosts;
  for (const StagePlan& stage : plan_->stages) {
    for (const ReplicaPlan& replica : stage.replicas) {
      const auto member = members.find(replica.worker);
      SKEIN_CHECK(member != members.end()) << replica.worker << " of the plan is no member";
      hosted_[replica.worker].insert(replica.id);
      hosts[replica.worker] = member->second.request.host_name;
    }
  }
  restore_ = restore_of(*plan_, durable);
  SKEIN_CHECK(restore_.first_step <= durable.committed) << "state of a step that is not committed";
  snapshot_peers_ = choose_snapshot_peers(*plan_, job_.model, hosts, apart_);
  givers_.clear();
  for (const LayerMove& move : restore_.moves) givers_.insert(move.from);
  peers_that_keep_ = {snapshot_peers_.begin(), snapshot_peers_.end()};
}

bool PlanChange::take_prepared(WorkerId worker, const TurnReport& turns) {
  return hosts(worker) && prepared_.emplace(worker, turns).second;
}

bool PlanChange::is_everybody_prepared() const {
  if (prepared_.size() < hosted_.size()) return false;
  return std::all_of(hosted_.begin(), hosted_.end(),
                     [this](const auto& each) { return prepared_.contains(each.first); });
}

std::vector<WorkerId> PlanChange::workers() const {
  std::vector<WorkerId> workers;
  for (const auto& [worker, replicas] : hosted_) workers.push_back(worker);
  return workers;
}

bool PlanChange::takes_part(WorkerId worker) const {
  return hosts(worker) || peers_that_keep_.contains(worker) || gives_state(worker);
}

RunEvent PlanChange::describe(const PlannedPipeline& chosen, bool has_trained,
                              uint64_t planning_us) const {
  std::string text =
      absl::StrCat("plan ", plan_->generation, ": ", plan_->stages.size(),
                   " stages (layers x replicas ", stages_text(*plan_), "; ",
                   layers_text(job_.model), "), ", std::string(to_text(plan_->schedule)), ", ",
                   plan_->microbatch_count, " micro-batches of ", plan_->microbatch_rows);
  if (has_trained) absl::StrAppend(&text, ", ", restore_.moves.size(), " layers move");
  return {"plan.made",
          std::move(text),
          {{"generation", absl::StrCat(plan_->generation)},
           {"stages", absl::StrCat(plan_->stages.size())},
           {"moves", absl::StrCat(restore_.moves.size())},
           {"predicted_step_us", absl::StrCat(chosen.objective_us)},
           {"planning_us", absl::StrCat(planning_us)},
           {"reason", chosen.reason}}};
}

void PlanChange::check_invariants(const std::map<WorkerId, Member>& members) const {
  for (const auto& [worker, inventory] : inventories_) {
    SKEIN_CHECK(members.contains(worker)) << worker << " has quiesced, and is no member";
  }
  for (const auto& [worker, turns] : prepared_) {
    SKEIN_CHECK(hosts(worker)) << worker << " has no part";
  }
  for (const auto& [worker, replicas] : hosted_) {
    for (ReplicaId replica : replicas) {
      SKEIN_CHECK(plan_ && replica_of(*plan_, replica).worker == worker) << replica;
    }
  }
}

}  // namespace skein::plans
