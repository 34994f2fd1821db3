#include "plans/elastic/route_around.hpp"

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/plan/layout_plan.hpp"
#include "plans/plan/token_lists.hpp"

namespace skein::plans {
namespace {

/// With more workers only those that cannot reach one another change places with others.
constexpr size_t kSwapAllMax = 16;
/// Plans that are looked at, and that are made, in all: a coordinator decides within a second, also
/// among a thousand workers of which some claim that they reach nobody.
constexpr int kLooksMax = 2000;
constexpr int kMadeMax = 64;

bool is_tied_pair(const Plan& plan, WorkerId a, WorkerId b) {
  if (plan.mode == kLocalMode) {  // Only the two ends of a pipeline replica talk to each other.
    if (plan.groups.back().scope != GroupScope::kTied) return false;
    const auto& front = plan.stages.front().replicas;
    const auto& back = plan.stages.back().replicas;
    for (size_t i = 0; i < front.size(); ++i) {
      const bool is_pair = front[i].worker == a && back[i].worker == b;
      if (is_pair || (front[i].worker == b && back[i].worker == a)) return true;
    }
    return false;
  }
  for (const ReductionGroup& group : plan.groups) {
    if (group.scope != GroupScope::kTied) continue;
    std::set<WorkerId> members;
    for (const ReplicaId each : group.members) members.insert(replica_of(plan, each).worker);
    if (members.contains(a) && members.contains(b)) return true;
  }
  return false;
}

bool sends_to(const Plan& plan, const ReplicaPlan& from, WorkerId to) {
  if (plan.mode == kTokenMode) {  // Any of the next stage may take what it makes.
    const auto next = static_cast<size_t>(stage_of(plan, from.id)) + 1;
    if (next == plan.stages.size()) return false;
    const std::vector<ReplicaPlan>& takers = plan.stages[next].replicas;
    return std::any_of(takers.begin(), takers.end(),
                       [&](const ReplicaPlan& each) { return each.worker == to; });
  }
  const std::vector<Route> routes = routes_from(plan, from.id, +1);
  return std::any_of(routes.begin(), routes.end(),
                     [&](const Route& route) { return replica_of(plan, route.to).worker == to; });
}

Plan with_places_changed(Plan plan, WorkerId a, WorkerId b) {
  for (StagePlan& stage : plan.stages) {
    for (ReplicaPlan& replica : stage.replicas) {
      if (replica.worker == a) {
        replica.worker = b;
      } else if (replica.worker == b) {
        replica.worker = a;
      }
    }
  }
  if (plan.mode == kTokenMode) set_token_lists(plan);
  return plan;
}

/// Keeps the best plan that it was shown.
class Search {
 public:
  explicit Search(const RouteAroundRequest& request) : request_(request) {}

  /// True if it is as good as any.
  bool show(const PlannedPipeline& planned, Plan plan, const std::string& difference) {
    --looks_left_;
    for (const WorkerPair& pair : request_.apart) {
      if (are_neighbours(plan, pair.first, pair.second)) return false;
    }
    if (request_.fits && !request_.fits(plan)) return false;
    const uint64_t step = request_.first_step(plan);
    if (step < request_.newest_step && !request_.may_lose_steps) return false;
    if (best_ && step <= best_step_) return false;
    best_step_ = step;
    best_ = RoutedAround{planned, true, difference};
    best_->chosen.plan = std::move(plan);
    return step >= request_.newest_step;
  }

  /// The plan as it is, and with the places of two workers changed.
  bool show_all(const PlannedPipeline& planned, const std::vector<WorkerId>& workers,
                const std::string& without) {
    if (show(planned, planned.plan, without)) return true;
    const std::set<WorkerId> placed = plan_workers(planned.plan);
    for (const WorkerId a : placed) {
      for (const WorkerId b : workers) {
        const bool is_repeat = placed.contains(b) && b <= a;
        if (a == b || is_repeat || !may_help(a, b, workers.size())) continue;
        if (looks_left_ <= 0) return false;
        const std::string places = absl::StrCat("w", a.value, " and w", b.value, " change places");
        if (show(planned, with_places_changed(planned.plan, a, b),
                 without.empty() ? places : absl::StrCat(without, ", ", places))) {
          return true;
        }
      }
    }
    return false;
  }

  std::optional<RoutedAround> best() && { return std::move(best_); }

 private:
  bool may_help(WorkerId a, WorkerId b, size_t count) const {
    if (count <= kSwapAllMax) return true;
    return std::any_of(request_.apart.begin(), request_.apart.end(), [&](const WorkerPair& pair) {
      return pair.first == a || pair.second == a || pair.first == b || pair.second == b;
    });
  }

  const RouteAroundRequest& request_;
  std::optional<RoutedAround> best_;
  uint64_t best_step_ = 0;
  int looks_left_ = kLooksMax;
};

}  // namespace

std::vector<WorkerId> least_reached_first(const WorkerPairs& apart,
                                          const std::vector<WorkerId>& workers) {
  const std::set<WorkerId> here(workers.begin(), workers.end());
  std::map<WorkerId, int> counts;
  for (const WorkerPair& pair : apart) {
    if (!here.contains(pair.first) || !here.contains(pair.second)) continue;
    ++counts[pair.first];
    ++counts[pair.second];
  }
  std::vector<std::pair<int, WorkerId>> order;
  for (const auto& [worker, count] : counts) order.emplace_back(count, worker);
  std::sort(order.rbegin(), order.rend());
  std::vector<WorkerId> ordered;
  for (const auto& [count, worker] : order) ordered.push_back(worker);
  return ordered;
}

std::vector<WorkerId> who_reach_one_another(const WorkerPairs& apart,
                                            std::vector<WorkerId> workers) {
  for (auto left = least_reached_first(apart, workers); !left.empty();
       left = least_reached_first(apart, workers)) {
    std::erase(workers, left.front());
  }
  return workers;
}

bool are_neighbours(const Plan& plan, WorkerId a, WorkerId b) {
  for (const StagePlan& stage : plan.stages) {
    bool has_a = false;
    bool has_b = false;
    for (const ReplicaPlan& replica : stage.replicas) {
      has_a = has_a || replica.worker == a;
      has_b = has_b || replica.worker == b;
      if (replica.worker == a && sends_to(plan, replica, b)) return true;
      if (replica.worker == b && sends_to(plan, replica, a)) return true;
    }
    if (has_a && has_b) return true;
  }
  return is_tied_pair(plan, a, b);
}

RoutedAround route_around(PlannedPipeline chosen, const RouteAroundRequest& request) {
  Search search(request);
  if (search.show_all(chosen, request.workers, "") || !request.make_plan) {
    return std::move(search).best().value_or(RoutedAround{std::move(chosen), false, ""});
  }
  std::vector<WorkerId> workers = request.workers;
  std::string without;
  int left = kMadeMax;
  for (auto candidates = least_reached_first(request.apart, workers); !candidates.empty();
       candidates = least_reached_first(request.apart, workers)) {
    for (const WorkerId left_out : candidates) {
      std::vector<WorkerId> others = workers;
      std::erase(others, left_out);
      if (others.empty() || --left < 0) continue;
      const absl::StatusOr<PlannedPipeline> made = request.make_plan(others);
      const std::string what =
          absl::StrCat(without, without.empty() ? "" : ", ", "w", left_out.value, " has no part");
      if (made.ok() && search.show_all(*made, others, what)) return *std::move(search).best();
    }
    std::erase(workers, candidates.front());
    absl::StrAppend(&without, without.empty() ? "" : ", ", "w", candidates.front().value,
                    " has no part");
  }
  return std::move(search).best().value_or(RoutedAround{std::move(chosen), false, ""});
}

}  // namespace skein::plans
