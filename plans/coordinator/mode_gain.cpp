#include "plans/coordinator/mode_gain.hpp"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"
#include "plans/base/units.hpp"
#include "plans/plan/layout_plan.hpp"
#include "plans/plan/pipeline_plan.hpp"
#include "plans/planner/measured_request.hpp"
#include "plans/planner/pipelines_planner.hpp"
#include "plans/simulator/simulator.hpp"
#include "plans/stragglers/stalls.hpp"

namespace skein::plans {
namespace {

std::vector<ClusterSpec> clusters_of(const ModeQuestion& question, const ClusterSpec& cluster) {
  return disturbed_clusters(cluster, ids_of(question.measured), question.steps);
}

absl::StatusOr<Plan> plan_in(const std::string& mode, const ModeQuestion& question) {
  const ReplanRequest& request = question.request;
  Plan plan;
  if (request.current && request.current->mode == mode) {
    plan = *request.current;
  } else {
    const auto make = mode == kLocalMode ? question.make_apart : question.make_together;
    SKEIN_ASSIGN_OR_RETURN(PlannedPipeline chosen, make(request));
    plan = std::move(chosen.plan);
  }
  return with_positions(plan, ids_of(question.measured));
}

absl::StatusOr<double> progress_together(const ModeQuestion& question, PlanRequest asked) {
  SKEIN_ASSIGN_OR_RETURN(const Plan plan, plan_in(kSynchronousMode, question));
  const std::vector<ClusterSpec> clusters = clusters_of(question, asked.cluster);
  double sum_us = 0;
  for (const ClusterSpec& cluster : clusters) {
    SKEIN_ASSIGN_OR_RETURN(const Simulation step,
                           simulate(plan, asked.profile, cluster, asked.simulation));
    sum_us += step.step_us;
  }
  const JobSpec& job = question.request.job;
  const double iterations = static_cast<double>(job.training.global_batch_size) /
                            static_cast<double>(pipeline_samples(job));
  return kMicrosecondsPerSecond * iterations * static_cast<double>(clusters.size()) / sum_us;
}

absl::StatusOr<PipelinesProgress> progress_apart(const ModeQuestion& question,
                                                 const PlanRequest& asked) {
  SKEIN_ASSIGN_OR_RETURN(const Plan plan, plan_in(kLocalMode, question));
  return predict_progress(question.request.job, plan, asked, clusters_of(question, asked.cluster));
}

}  // namespace

ModeAnswer answer(const ModeQuestion& question) {
  ModeAnswer answer;
  if (question.steps.empty() || question.measured.empty()) return answer;
  const PlanRequest asked = measured_request(question.request.job, question.measured);
  const auto note = [&](const char* what, const absl::Status& why) {
    absl::StrAppend(&answer.reason, answer.reason.empty() ? "" : "; ", what, ": ", why.message());
  };
  const absl::StatusOr<double> together = progress_together(question, asked);
  if (!together.ok()) note("together", together.status());
  const absl::StatusOr<PipelinesProgress> apart = progress_apart(question, asked);
  if (!apart.ok()) note("apart", apart.status());
  answer.together_per_second = together.value_or(0);
  if (apart.ok()) answer.apart_per_second = apart->claims_per_second;
  if (apart.ok()) answer.apart_worth = apart->worth;
  if (answer.reason.empty()) {
    answer.reason = absl::StrCat("as in the last ", question.steps.size(), " steps");
  }
  return answer;
}

}  // namespace skein::plans
