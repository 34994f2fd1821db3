#include "plans/simulator/churn_simulation.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"
#include "plans/job/model_spec.hpp"
#include "plans/simulator/churn_plans.hpp"
#include "plans/simulator/churn_run.hpp"

namespace skein::plans {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

absl::Status wrong(const std::string& what) { return absl::InvalidArgumentError(what); }

absl::Status check(const ChurnRequest& request) {
  SKEIN_RETURN_IF_ERROR(validate(request.job));
  SKEIN_RETURN_IF_ERROR(validate(request.profile));
  SKEIN_RETURN_IF_ERROR(validate(request.cluster));
  const int64_t layers = layer_count(request.job.model);
  if (static_cast<int64_t>(request.profile.layers.size()) != layers) {
    return wrong(absl::StrCat("the profile has ", request.profile.layers.size(),
                              " layers and the job's model ", layers));
  }
  if (request.job.sync.policy != "allreduce") {
    return wrong(absl::StrCat("churn is simulated for synchronous steps only; sync.policy is ",
                              request.job.sync.policy, "; use allreduce"));
  }
  const ChurnCosts& costs = request.costs;
  for (const double cost :
       {costs.change_s, costs.join_s, costs.measure_s, costs.planning_s, costs.restart_s}) {
    if (!(cost >= 0) || std::isinf(cost)) return wrong("what a change costs is 0 s or more");
  }
  if (costs.checkpoint_steps < 0) return wrong("there are 0 steps or more between checkpoints");
  for (const int64_t stages : request.template_stages) {
    if (stages >= 1 && stages <= layers) continue;
    return wrong(absl::StrCat("a pipeline of ", stages, " stages: expected 1 to ", layers));
  }
  const auto devices = static_cast<int32_t>(request.cluster.devices.size());
  for (const auto* changes : {&request.churn.begin, &request.churn.changes}) {
    for (const MemberChange& change : *changes) {
      if (change.device >= 0 && change.device < devices) continue;
      return wrong(absl::StrCat("the cluster has no device ", change.device));
    }
  }
  return absl::OkStatus();
}

/// Who is there as time passes.
class Presence {
 public:
  explicit Presence(const Churn& churn) : changes_(churn.changes) {
    for (const MemberChange& change : churn.begin) here_.emplace(change.worker, change.device);
  }

  const DeviceOfWorker& here() const { return here_; }
  double next_s() const { return next_ < changes_.size() ? changes_[next_].at_s : kNever; }
  /// Goes past the next change and returns it.
  const MemberChange& pass() {
    const MemberChange& change = changes_[next_++];
    if (change.kind == MemberChange::Kind::kJoins) here_.emplace(change.worker, change.device);
    if (change.kind == MemberChange::Kind::kGoes) here_.erase(change.worker);
    return change;
  }

 private:
  const std::vector<MemberChange>& changes_;
  DeviceOfWorker here_;
  size_t next_ = 0;
};

/// Seconds of a step under the best plan for `workers`; none if they cannot train.
std::optional<double> best_step_seconds(ChurnPlans& plans, const DeviceOfWorker& workers) {
  const auto fewest = static_cast<size_t>(std::max<int64_t>(1, plans.job().elastic.min_workers));
  if (workers.size() < fewest) return std::nullopt;
  const absl::StatusOr<Plan> plan = plans.best(plans.request(workers), workers);
  if (!plan.ok()) return std::nullopt;
  const absl::StatusOr<double> step_s = plans.step_seconds(*plan, workers);
  if (!step_s.ok()) return std::nullopt;
  return *step_s;
}

/// What nobody can reach: changes cost nothing.
void add_bounds(const ChurnRequest& request, ChurnPlans& plans, ChurnSimulation& result) {
  const auto batch = static_cast<double>(request.job.training.global_batch_size);
  Presence presence(request.churn);
  double now_s = 0;
  while (now_s < request.churn.length_s) {
    const double until_s = std::min(presence.next_s(), request.churn.length_s);
    const double seconds = until_s - now_s;
    if (seconds > 0) {
      result.members_mean +=
          static_cast<double>(presence.here().size()) * seconds / request.churn.length_s;
      result.ideal_samples += plans.capacity(presence.here()) * seconds;
      const std::optional<double> step_s = best_step_seconds(plans, presence.here());
      if (step_s) result.free_samples += batch * seconds / *step_s;
    }
    now_s = until_s;
    if (presence.next_s() <= now_s) presence.pass();
  }
}

/// A run that is stopped and started again whenever members change.
class RestartRun {
 public:
  RestartRun(const ChurnRequest& request, ChurnPlans& plans)
      : request_(request), plans_(plans), presence_(request.churn) {
    outcome_.way = "stop and restart";
  }

  ChurnOutcome run() {
    const double end_s = request_.churn.length_s;
    start(0);
    while (presence_.next_s() < end_s) {
      const double now_s = presence_.next_s();
      advance(now_s);
      while (presence_.next_s() <= now_s) hear(presence_.pass());
      if (must_stop_) stop(now_s);
    }
    advance(end_s);
    if (training_since_s_ != kNever) trained_s_ += end_s - began_s_;
    outcome_.stopped_s = end_s - trained_s_;
    outcome_.samples = static_cast<double>(steps_done_) *
                       static_cast<double>(request_.job.training.global_batch_size);
    return outcome_;
  }

 private:
  void hear(const MemberChange& change) {
    const bool is_training = training_since_s_ != kNever;
    switch (change.kind) {
      case MemberChange::Kind::kJoins:
        must_stop_ = must_stop_ || is_training || starts_at_s_ == kNever;
        return;
      case MemberChange::Kind::kNotice:
        leavers_.insert(change.worker);
        if (is_training) durable_ = steps_done_;
        must_stop_ = must_stop_ || is_training;
        return;
      case MemberChange::Kind::kGoes:
        if (leavers_.erase(change.worker) == 0) must_stop_ = true;
        return;
    }
  }

  /// Steps up to `until_s`, and the start of training if it lies before.
  void advance(double until_s) {
    if (starts_at_s_ <= until_s) start(starts_at_s_);
    if (training_since_s_ == kNever) return;
    const auto steps = static_cast<int64_t>(std::floor((until_s - training_since_s_) / step_s_));
    if (steps <= 0) return;
    const int64_t interval = request_.costs.checkpoint_steps > 0 ? request_.costs.checkpoint_steps
                                                                 : request_.job.checkpoint.interval;
    steps_done_ += steps;
    training_since_s_ += static_cast<double>(steps) * step_s_;
    durable_ = std::max(durable_, steps_done_ / interval * interval);
  }

  void stop(double now_s) {
    must_stop_ = false;
    if (training_since_s_ != kNever) {
      if (now_s > training_since_s_) ++outcome_.steps_redone;  // The one in progress.
      trained_s_ += now_s - began_s_;
    }
    outcome_.steps_redone += steps_done_ - durable_;
    steps_done_ = durable_;
    training_since_s_ = kNever;
    starts_at_s_ = now_s + request_.costs.restart_s;
  }

  void start(double now_s) {
    starts_at_s_ = kNever;
    DeviceOfWorker workers = presence_.here();
    for (const WorkerId leaver : leavers_) workers.erase(leaver);
    const std::optional<double> step_s = best_step_seconds(plans_, workers);
    if (!step_s) return;  // Until somebody comes.
    step_s_ = *step_s;
    training_since_s_ = now_s;
    began_s_ = now_s;
    if (now_s > 0) ++outcome_.plans;
  }

  const ChurnRequest& request_;
  ChurnPlans& plans_;
  Presence presence_;
  std::set<WorkerId> leavers_;  // They have heard that they will go, and take no part.
  bool must_stop_ = false;
  double step_s_ = 0;
  int64_t steps_done_ = 0;
  int64_t durable_ = 0;               // Steps of the last checkpoint.
  double training_since_s_ = kNever;  // Start of the step in progress.
  double starts_at_s_ = kNever;       // End of the restart in progress.
  double began_s_ = 0;                // When training last began.
  double trained_s_ = 0;              // Up to then.
  ChurnOutcome outcome_;
};

}  // namespace

absl::StatusOr<ChurnSimulation> simulate_churn(const ChurnRequest& request) {
  SKEIN_RETURN_IF_ERROR(check(request));
  ChurnPlans plans(request.job, request.profile, request.cluster);
  ChurnSimulation result;
  result.length_s = request.churn.length_s;
  add_bounds(request, plans, result);
  result.outcomes.push_back(ChurnRun(request, plans, 0).run());
  result.outcomes.back().way = "skein";
  result.outcomes.push_back(RestartRun(request, plans).run());
  for (const int64_t stages : request.template_stages) {
    result.outcomes.push_back(ChurnRun(request, plans, stages).run());
    result.outcomes.back().way = absl::StrCat("whole pipelines of ", stages);
  }
  return result;
}

}  // namespace skein::plans
