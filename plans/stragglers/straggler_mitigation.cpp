#include "plans/stragglers/straggler_mitigation.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"
#include "plans/base/units.hpp"
#include "plans/elastic/plan_difference.hpp"
#include "plans/planner/candidate_plan.hpp"
#include "plans/stragglers/mitigation_candidates.hpp"

namespace skein::plans {
namespace {

using Kind = Mitigation::Kind;

/// A candidate with its price.
struct Priced {
  MitigationCandidate candidate;
  Kind kind = Kind::kNone;
  int64_t moved_bytes = 0;
  double step_us = 0;
  double move_us = 0;
  double rest_us = 0;  // Of the run, with the pause.
};

absl::Status bad(const std::string& what, double value, const std::string& range) {
  return absl::InvalidArgumentError(absl::StrCat("mitigation: ", what, " = ", value, " ", range));
}

absl::Status check(const Plan& current, const PlanRequest& request,
                   const MitigationOptions& options) {
  SKEIN_RETURN_IF_ERROR(validate(request));
  SKEIN_RETURN_IF_ERROR(validate(current, static_cast<int64_t>(request.profile.layers.size()),
                                 request.profile.tied_bytes > 0));
  const int64_t rows = current.microbatch_count * current.microbatch_rows;
  if (rows != request.global_batch_rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("mitigation: the plan has ", rows, " rows per step, the request ",
                     request.global_batch_rows, "; use the request of the plan's job"));
  }
  for (const StagePlan& stage : current.stages) {
    for (const ReplicaPlan& replica : stage.replicas) {
      if (replica.worker.value <= request.cluster.devices.size()) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "mitigation: the plan has worker ", replica.worker.value, ", but the cluster ",
          request.cluster.devices.size(), " devices; worker w must be devices[w - 1]"));
    }
  }
  const double bandwidth = options.move.bytes_per_second;
  if (!std::isfinite(bandwidth) || bandwidth <= 0) {
    return bad("move.bytes_per_second", bandwidth, "must be a finite number above 0");
  }
  if (!std::isfinite(options.move.fixed_us) || options.move.fixed_us < 0) {
    return bad("move.fixed_us", options.move.fixed_us, "must be a finite number, at least 0");
  }
  if (!(options.gain_min >= 0 && options.gain_min < 1)) {
    return bad("gain_min", options.gain_min, "must be in [0, 1)");
  }
  if (!(options.slack >= 0)) return bad("slack", options.slack, "must be at least 0");
  return absl::OkStatus();
}

/// A tied parameter cannot have both its copies on one worker (`validate` of a plan to be run).
bool can_run(const Plan& plan, const Profile& profile) {
  return profile.tied_bytes == 0 || plan.stages.size() == 1 ||
         plan.stages.front().rank() != plan.stages.back().rank();
}

class Ladder {
 public:
  Ladder(const Plan& current, const PlanRequest& request, const MitigationOptions& options)
      : current_(current), request_(request), options_(options), simulation_(request.simulation) {
    simulation_.keeps_records = false;
  }

  absl::StatusOr<Mitigation> run() {
    SKEIN_ASSIGN_OR_RETURN(const Simulation now,
                           simulate(current_, request_.profile, request_.cluster, simulation_));
    current_us_ = now.step_us;
    price(nearby_plans(current_, request_, options_.stragglers));
    if (options_.may_replan) price(replanned(current_, request_, options_.stragglers));
    const Priced* chosen = choose();
    return chosen == nullptr ? none() : mitigation(*chosen);
  }

 private:
  double steps_left() const { return static_cast<double>(options_.steps_left); }
  double gain(const Priced& priced) const { return 1 - priced.step_us / current_us_; }
  bool pays(const Priced& priced) const { return priced.rest_us < current_us_ * steps_left(); }
  bool is_worth_it(const Priced& priced) const {
    return gain(priced) >= options_.gain_min && gain(priced) > 0 && pays(priced);
  }

  void price(std::vector<MitigationCandidate> candidates) {
    for (MitigationCandidate& candidate : candidates) {
      if (!can_run(candidate.plan, request_.profile)) continue;
      const absl::StatusOr<Simulation> simulation =
          simulate(candidate.plan, request_.profile, request_.cluster, simulation_);
      if (!simulation.ok()) continue;
      const PlanDifference change = change_between(current_, candidate.plan, request_.profile);
      Priced& priced = priced_.emplace_back();
      priced.kind = !change.leaving.empty()                             ? Kind::kDropWorker
                    : change.moved_bytes > 0 || !change.joining.empty() ? Kind::kMoveLayers
                                                                        : Kind::kSplitRows;
      priced.moved_bytes = change.moved_bytes;
      priced.step_us = simulation->step_us;
      priced.move_us = options_.move.fixed_us + static_cast<double>(change.moved_bytes) /
                                                    options_.move.bytes_per_second *
                                                    kMicrosecondsPerSecond;
      priced.rest_us = priced.move_us + steps_left() * priced.step_us;
      priced.candidate = std::move(candidate);
    }
  }

  /// Null: nothing is worth it.
  const Priced* choose() const {
    double best_us = std::numeric_limits<double>::infinity();
    for (const Priced& priced : priced_) {
      if (is_worth_it(priced)) best_us = std::min(best_us, priced.rest_us);
    }
    const Priced* chosen = nullptr;
    for (const Priced& priced : priced_) {
      if (!is_worth_it(priced) || priced.rest_us > best_us * (1 + options_.slack)) continue;
      if (chosen == nullptr ||
          std::tie(priced.kind, priced.rest_us) < std::tie(chosen->kind, chosen->rest_us)) {
        chosen = &priced;
      }
    }
    return chosen;
  }

  Mitigation mitigation(const Priced& chosen) const {
    Mitigation mitigation;
    mitigation.kind = chosen.kind;
    mitigation.plan = chosen.candidate.plan;
    mitigation.plan.generation = request_.generation;
    mitigation.gain = gain(chosen);
    mitigation.predicted_step_us = chosen.step_us;
    mitigation.move_us = chosen.move_us;
    mitigation.reason = absl::StrCat(
        to_text(chosen.kind), " (", chosen.candidate.origin,
        "): ", candidate_text(candidate_of(chosen.candidate.plan), request_.global_batch_rows),
        "; a step ", change_text(chosen), "; moves ", chosen.moved_bytes, " bytes in ",
        std::round(chosen.move_us / 1e3), " ms, earned back after ", break_even(chosen), " of ",
        options_.steps_left, " steps", others(chosen));
    return mitigation;
  }

  std::string change_text(const Priced& priced) const {
    return absl::StrCat("takes ", std::round(priced.step_us), " us instead of ",
                        std::round(current_us_), " (", std::round(gain(priced) * 1000) / 10,
                        "% less)");
  }

  uint64_t break_even(const Priced& priced) const {
    return static_cast<uint64_t>(std::ceil(priced.move_us / (current_us_ - priced.step_us)));
  }

  /// The best of every other kind, so that a log says what was turned down.
  std::string others(const Priced& chosen) const {
    std::string text;
    for (const Kind kind : {Kind::kSplitRows, Kind::kMoveLayers, Kind::kDropWorker}) {
      const Priced* best = best_of(kind);
      if (kind == chosen.kind || best == nullptr) continue;
      absl::StrAppend(&text, "; ", to_text(kind), ": ", std::round(best->step_us), " us");
    }
    return text;
  }

  const Priced* best_of(std::optional<Kind> kind) const {
    const Priced* best = nullptr;
    for (const Priced& priced : priced_) {
      if (kind && priced.kind != *kind) continue;
      if (best == nullptr || priced.step_us < best->step_us) best = &priced;
    }
    return best;
  }

  Mitigation none() const {
    Mitigation mitigation;
    mitigation.plan = current_;
    mitigation.predicted_step_us = current_us_;
    const Priced* best = best_of(std::nullopt);
    if (best == nullptr) {
      mitigation.reason = "none: there is no other plan that fits the devices";
    } else if (gain(*best) < options_.gain_min || gain(*best) <= 0) {
      mitigation.reason = absl::StrCat("none: with the best other plan a step ", change_text(*best),
                                       ", at least ", options_.gain_min * 100, "% is asked for");
    } else {
      mitigation.reason = absl::StrCat("none: with the best other plan a step ", change_text(*best),
                                       ", but a pause of ", std::round(best->move_us / 1e3),
                                       " ms is earned back after ", break_even(*best),
                                       " steps, and ", options_.steps_left, " are left");
    }
    return mitigation;
  }

  const Plan& current_;
  const PlanRequest& request_;
  const MitigationOptions& options_;
  SimulationOptions simulation_;
  double current_us_ = 0;
  std::vector<Priced> priced_;
};

}  // namespace

absl::StatusOr<Mitigation> choose_mitigation(const Plan& current, const PlanRequest& request,
                                             const MitigationOptions& options) {
  SKEIN_RETURN_IF_ERROR(check(current, request, options));
  return Ladder(current, request, options).run();
}

const char* to_text(Mitigation::Kind kind) {
  switch (kind) {
    case Kind::kNone:
      return "none";
    case Kind::kSplitRows:
      return "split rows";
    case Kind::kMoveLayers:
      return "move layers";
    case Kind::kDropWorker:
      return "drop worker";
  }
  return "none";
}

}  // namespace skein::plans
