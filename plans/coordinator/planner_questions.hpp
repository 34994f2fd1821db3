#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/elastic/replan.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/plan/plan.hpp"
#include "plans/planner/measured_request.hpp"
#include "plans/planner/planner.hpp"
#include "plans/stragglers/speed_watch.hpp"
#include "plans/stragglers/straggler_mitigation.hpp"
#include "plans/sync/policy_choice.hpp"

namespace skein::plans {

// What takes long to answer: planning, and simulating plans. The coordination asks with a
// `RequestPlan`, and goes on with its messages until the `PlanReady` comes.

/// Makes a plan in a training mode, as `replan` does for synchronous steps.
using PlanMaker = absl::StatusOr<PlannedPipeline> (*)(const ReplanRequest& request);

/// Which plan is next, now that everybody has quiesced?
struct RoundQuestion {
  PlanMaker make_plan = nullptr;
  ReplanRequest request;
  /// Rather that: without one of each two that do not reach one another.
  std::optional<ReplanRequest> without_unreached;
  std::optional<ReplanRequest> with_leavers;  // If need be, with those that would rather leave.
  PlanMaker make_otherwise = nullptr;         // In another mode, if there is no plan in that.
};
struct RoundAnswer {
  absl::StatusOr<PlannedPipeline> chosen;
  absl::Status refused;  // Why the plan is in another mode; OK: it is not.
};

/// Members have changed: would another plan be better than `request.current`?
struct ChangeQuestion {
  PlanMaker make_plan = nullptr;
  ReplanRequest request;
  bool is_planned = false;               // Plans are compared by what they are predicted to take.
  std::vector<MeasuredWorker> measured;  // is_planned: of all members.
};
struct ChangeAnswer {
  absl::StatusOr<PlannedPipeline> candidate;
  bool is_worthwhile = false;
};

/// Workers have become slower or faster: what is to be done about it?
struct MitigationQuestion {
  JobSpec job;
  Plan current;
  std::vector<MeasuredWorker> measured;
  std::vector<WorkerId> stragglers;
  uint64_t steps_left = 0;
  uint64_t generation = 0;
};
struct MitigationAnswer {
  absl::StatusOr<Mitigation> mitigation;
};

/// Which policy makes most progress with pipeline replicas like these?
struct PolicyQuestion {
  StragglerProfile profile;
  std::vector<SyncCandidate> candidates;
  ChooserOptions options;
};
struct PolicyAnswer {
  SyncChoice choice;
};

/// Do all together make more progress, or pipeline replicas apart from each other, if the workers
/// of a planned job go on like that?
struct ModeQuestion {
  PlanMaker make_together = nullptr, make_apart = nullptr;
  ReplanRequest request;                 // What the plan in the other mode is made for.
  std::vector<MeasuredWorker> measured;  // All members, with those of the plan in force.
  std::vector<StepRatios> steps;         // The last ones.
};
struct ModeAnswer {
  /// Iterations. 0: not possible, or not known.
  double together_per_second = 0, apart_per_second = 0;
  double apart_worth = 1;  // An iteration's, beside one of all together.
  std::string reason;
};

/// How long is each worker of the plan busy in a step?
struct ExpectationQuestion {
  JobSpec job;
  Plan plan;
  std::vector<MeasuredWorker> measured;  // What the plan's workers have measured.
};
struct ExpectationAnswer {
  std::map<WorkerId, double> busy_us;
};

struct PlannerQuestion {
  using What = std::variant<RoundQuestion, ChangeQuestion, MitigationQuestion, PolicyQuestion,
                            ModeQuestion, ExpectationQuestion>;
  What what;
};
/// In the order of the questions.
struct PlannerAnswer {
  using What = std::variant<RoundAnswer, ChangeAnswer, MitigationAnswer, PolicyAnswer, ModeAnswer,
                            ExpectationAnswer>;
  What what;
};

RoundAnswer answer(const RoundQuestion& question);
ChangeAnswer answer(const ChangeQuestion& question);
/// Any of them. Cost: seconds, for some. Pure; same question, same answer.
PlannerAnswer answer(const PlannerQuestion& question);

/// The answer to a request. `thinking_us`: how long it took.
struct PlanReady {
  uint64_t id = 0;
  PlannerAnswer answer;
  uint64_t thinking_us = 0;
};

}  // namespace skein::plans
