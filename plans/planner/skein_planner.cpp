#include "plans/planner/skein_planner.hpp"

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"
#include "plans/planner/plan_memory.hpp"
#include "plans/planner/skein_search.hpp"

namespace skein::plans {
namespace {

/// Candidates that are kept while searching, and those of them that are simulated.
constexpr size_t kPoolCapacity = 32;
constexpr size_t kFinalists = 8;
/// What all simulations together may cost, in events (actions and flows) that each cost the more
/// the more flows may meet: about 0.1 us, at worst 1 us.
constexpr int64_t kSimulatedEvents = 2'000'000;
constexpr int64_t kSimulatedEventsPerDevice = 6'000;
constexpr int64_t kReplicasThatMeet = 256;
/// A finalist may cost this share of it, unless it is the only one.
constexpr int64_t kLargestShare = 6;
constexpr int64_t kSimulationsMax = 400;
/// Layers times devices of a problem for which the others' searches are quick.
constexpr int64_t kSmallProblem = 1'000;
/// Ratings that differ less from the simulation need no search by simulation.
constexpr double kRatingError = 1e-3;
/// Sums in another order differ by less.
constexpr double kRounding = 1 + 1e-9;

/// A plan of another planner.
struct Other {
  std::string planner;
  Plan plan;
};

/// A finalist, simulated.
struct Judged {
  Plan plan;
  double step_us = std::numeric_limits<double>::infinity();
  std::string origin;
};

/// Simulates within the budget.
class Judge {
 public:
  explicit Judge(const PlanRequest& request) : request_(request), options_(request.simulation) {
    options_.keeps_records = false;
    whole_ = kSimulatedEvents +
             kSimulatedEventsPerDevice * static_cast<int64_t>(request.cluster.devices.size());
    budget_ = whole_;
  }

  /// Infinity if the plan does not fit its devices or cannot be simulated.
  double step_us(const Plan& plan) {
    constexpr double kNever = std::numeric_limits<double>::infinity();
    if (lacking_bytes(plan, request_.profile, request_.cluster) > 0) return kNever;
    budget_ -= events(plan);
    ++simulations_;
    const absl::StatusOr<Simulation> simulation =
        simulate(plan, request_.profile, request_.cluster, options_);
    return simulation.ok() ? simulation->step_us : kNever;
  }
  /// Whether the plan leaves enough of the budget for others.
  bool is_affordable(const Plan& plan) const { return events(plan) <= whole_ / kLargestShare; }
  bool may_go_on() const { return budget_ > 0 && simulations_ < kSimulationsMax; }

 private:
  /// Every micro-batch runs twice on each replica and crosses each cut twice; gradients go round.
  int64_t events(const Plan& plan) const {
    int64_t twice = 0;
    int64_t rings = 0;
    for (const StagePlan& stage : plan.stages) {
      const auto count = static_cast<int64_t>(stage.replicas.size());
      twice += 3 * count;  // An action and, with unlike rows on both sides, two flows.
      rings += count * (options_.bucketed_reduction ? stage.layers.size() : 1);
    }
    const int64_t events = (2 * plan.microbatch_count * twice + rings) * options_.steps;
    return events + events / kReplicasThatMeet * replica_count(plan);
  }

  const PlanRequest& request_;
  SimulationOptions options_;
  int64_t whole_ = 0;
  int64_t budget_ = 0;
  int64_t simulations_ = 0;
};

/// Rows that the other planners are asked with one by one, besides the request as it is: all,
/// unless the problem is so large that their searches would take longer than ours.
std::vector<int64_t> rows_for_others(const PlanRequest& request) {
  const auto layers = static_cast<int64_t>(request.profile.layers.size());
  const auto devices = static_cast<int64_t>(request.cluster.devices.size());
  if (layers * devices > kSmallProblem) return {};
  return request.microbatch_rows;
}

/// Plans of all other planners. `failure`: why the one that came closest has none.
std::vector<Other> plans_of_others(const PlanRequest& request, absl::Status& failure) {
  std::vector<Other> others;
  auto ask = [&](const Planner& planner, const PlanRequest& asked) {
    absl::StatusOr<PlannedPipeline> made = planner.make_plan(asked);
    if (made.ok()) {
      others.push_back({planner.name, std::move(made->plan)});
    } else if (failure.ok() || absl::IsResourceExhausted(made.status())) {
      failure = made.status();
    }
  };
  for (const Planner& planner : planners()) {
    if (planner.make_plan == &plan_skein) continue;
    ask(planner, request);
    PlanRequest asked = request;
    for (const int64_t rows : rows_for_others(request)) {
      asked.microbatch_rows = {rows};
      if (rows != request.microbatch_rows.front()) ask(planner, asked);
    }
  }
  return others;
}

class Planning {
 public:
  explicit Planning(const PlanRequest& request)
      : request_(request), model_(request, request.cluster), timing_(model_), judge_(request) {}

  absl::StatusOr<PlannedPipeline> run() {
    absl::Status failure;
    std::vector<Other> others;
    if (request_.asks_others) others = plans_of_others(request_, failure);
    CandidatePool pool(timing_, kPoolCapacity);
    for (const Other& other : others) {
      pool.add(candidate_of(other.plan), absl::StrCat("the plan of ", other.planner));
    }
    add_partitions(timing_, pool);
    improve_candidates(timing_, pool);
    add_virtual_stages(timing_, pool);
    judge_finalists(pool);
    judge_others(others);
    if (best_.plan.stages.empty() && !request_.asks_others) {
      judge_others(plans_of_others(request_, failure));
    }
    if (best_.plan.stages.empty()) {
      return failure.ok() ? absl::ResourceExhaustedError("no plan fits the devices' memory")
                          : failure;
    }
    return PlannedPipeline{best_.plan, best_.step_us, reason()};
  }

 private:
  void judge_finalists(const CandidatePool& pool) {
    const size_t judged = judge_best(pool, /*only_affordable=*/true);
    if (judged == 0) judge_best(pool, /*only_affordable=*/false);
    if (!best_.plan.stages.empty() &&
        std::abs(best_.step_us - rated_us_) > kRatingError * rated_us_) {
      search_by_simulation();
    }
  }

  /// How many were simulated.
  size_t judge_best(const CandidatePool& pool, bool only_affordable) {
    size_t judged = 0;
    for (const Candidate& candidate : pool.candidates()) {
      const size_t wanted = only_affordable ? kFinalists : 1;
      if (judged >= wanted || (judged > 0 && !judge_.may_go_on())) break;
      absl::StatusOr<Plan> plan = plan_of(candidate.candidate, model_);
      if (!plan.ok() || (only_affordable && !judge_.is_affordable(*plan))) continue;
      ++judged;
      const double step_us = judge_.step_us(*plan);
      if (step_us >= best_.step_us) continue;
      best_ = {*std::move(plan), step_us, candidate.origin};
      rated_us_ = candidate.step_us;
    }
    return judged;
  }

  /// Where flows of several cuts meet, or a scenario disturbs, the ratings are not the truth.
  void search_by_simulation() {
    std::optional<Plan> last;
    const CandidateMeasure measure = [&](const CandidatePlan& candidate, double cutoff_us) {
      if (least_step_us(candidate, model_) >= cutoff_us && !speeds_up()) return cutoff_us;
      const absl::StatusOr<Plan> plan = plan_of(candidate, model_);
      return plan.ok() ? judge_.step_us(*plan) : std::numeric_limits<double>::infinity();
    };
    const RatedCandidate better = local_search(model_, {candidate_of(best_.plan), best_.step_us},
                                               measure, [&] { return judge_.may_go_on(); });
    if (better.step_us >= best_.step_us) return;
    absl::StatusOr<Plan> plan = plan_of(better.candidate, model_);
    if (plan.ok()) best_ = {*std::move(plan), better.step_us, best_.origin + ", improved"};
  }

  /// A trace may make devices faster than they are: then `least_step_us` bounds nothing.
  bool speeds_up() const { return request_.simulation.scenario.kind == Scenario::Kind::kH6; }

  /// All of them, whatever the budget, but for those that cannot win.
  void judge_others(const std::vector<Other>& others) {
    for (const Other& other : others) {
      const CandidatePlan candidate = candidate_of(other.plan);
      if (!speeds_up() && least_step_us(candidate, model_) > best_of_others_us_ * kRounding)
        continue;
      const double step_us = judge_.step_us(other.plan);
      if (step_us < best_of_others_us_) {
        best_of_others_us_ = step_us;
        best_other_ = other.planner;
      }
      if (step_us < best_.step_us) {
        best_ = {other.plan, step_us, absl::StrCat("the plan of ", other.planner)};
      }
    }
  }

  std::string reason() const {
    const std::string shape = candidate_text(candidate_of(best_.plan), request_.global_batch_rows);
    std::string text = absl::StrCat(shape, "; from ", best_.origin);
    if (best_other_.empty() && !request_.asks_others) {
      return absl::StrCat(text, "; the other planners were not asked");
    }
    if (best_other_.empty()) return absl::StrCat(text, "; no other planner has a plan that fits");
    const double gain = best_of_others_us_ / best_.step_us - 1;
    if (gain <= 0) return absl::StrCat(text, "; none is faster than that of ", best_other_);
    return absl::StrCat(text, "; ", std::round(gain * 1000) / 10, "% faster than ", best_other_,
                        ", the best of the other planners");
  }

  const PlanRequest& request_;
  CostModel model_;
  CandidateTiming timing_;
  Judge judge_;
  Judged best_;
  double rated_us_ = 0;  // What `CandidateTiming` says of it.
  double best_of_others_us_ = std::numeric_limits<double>::infinity();
  std::string best_other_;
};

}  // namespace

absl::StatusOr<PlannedPipeline> plan_skein(const PlanRequest& request) {
  SKEIN_RETURN_IF_ERROR(validate(request));
  return Planning(request).run();
}

}  // namespace skein::plans
