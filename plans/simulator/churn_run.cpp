#include "plans/simulator/churn_run.hpp"

#include <algorithm>
#include <string>

#include "plans/base/check.hpp"
#include "plans/coordinator/change_gain.hpp"
#include "plans/elastic/plan_difference.hpp"
#include "plans/elastic/snapshot_peers.hpp"
#include "plans/job/model_spec.hpp"
#include "plans/plan/layout_plan.hpp"

namespace skein::plans {

ChurnRun::ChurnRun(const ChurnRequest& request, ChurnPlans& plans, int64_t template_stages)
    : request_(request),
      plans_(plans),
      template_stages_(template_stages),
      layers_(layer_count(request.job.model)),
      schedule_(request.job.elastic.snapshot_interval, request.job.comm.train_timeout_seconds) {}

ChurnOutcome ChurnRun::run() {
  for (const MemberChange& change : request_.churn.begin) {
    members_[change.worker] = {change.device, 0, false};
  }
  stop(0);
  begin_change(0, false);
  if (next_plan_) resume_s_ = 0;  // The run's clock begins with its first step.
  const double end_s = request_.churn.length_s;
  const std::vector<MemberChange>& changes = request_.churn.changes;
  for (;;) {
    const double change_s = next_change_ < changes.size() ? changes[next_change_].at_s : kNever;
    const double now_s = std::min({commit_s_, resume_s_, answer_s_, ask_s_, change_s});
    if (now_s >= end_s) break;
    if (now_s == commit_s_) {
      on_commit(now_s);
    } else if (now_s == resume_s_) {
      on_resume(now_s);
    } else if (now_s == answer_s_) {
      on_answer(now_s);
    } else if (now_s == ask_s_) {
      on_ask(now_s);
    } else {
      on_changes(now_s);
    }
  }
  if (stopped_since_s_ < end_s) outcome_.stopped_s += end_s - stopped_since_s_;
  outcome_.samples = static_cast<double>(steps_done_) *
                     static_cast<double>(request_.job.training.global_batch_size);
  return outcome_;
}

double ChurnRun::planning_s() const { return is_planned() ? request_.costs.planning_s : 0; }

bool ChurnRun::is_planned() const {
  return request_.job.parallelism.pipeline_parallel_degree == kAutoDegree && !has_templates();
}

double ChurnRun::ready_s(double now_s, int32_t device) {
  if (has_templates()) return now_s;
  const double joined_s = now_s + request_.costs.join_s;
  if (!is_planned()) return joined_s;
  double& until_s = measuring_until_s_[request_.cluster.devices[static_cast<size_t>(device)].host];
  until_s = std::max(until_s, joined_s) + request_.costs.measure_s;
  return until_s;
}

DeviceOfWorker ChurnRun::eligible(double now_s, bool with_leavers) const {
  DeviceOfWorker workers;
  for (const auto& [worker, member] : members_) {
    if (member.ready_s <= now_s && (with_leavers || !member.leaves)) {
      workers.emplace(worker, member.device);
    }
  }
  return workers;
}

bool ChurnRun::hosts(WorkerId worker) const {
  return plan_ && plan_workers(*plan_).contains(worker);
}

bool ChurnRun::must_change() const {
  return std::any_of(members_.begin(), members_.end(),
                     [this](const auto& each) { return each.second.leaves && hosts(each.first); });
}

double ChurnRun::next_ready_s(double now_s) const {
  double next_s = kNever;
  for (const auto& [worker, member] : members_) {
    if (member.ready_s > now_s) next_s = std::min(next_s, member.ready_s);
  }
  return next_s;
}

/// All that happens at this instant, as one.
void ChurnRun::on_changes(double now_s) {
  const std::vector<MemberChange>& changes = request_.churn.changes;
  bool is_hit = false;
  for (; next_change_ < changes.size() && changes[next_change_].at_s <= now_s; ++next_change_) {
    const MemberChange& change = changes[next_change_];
    const auto member = members_.find(change.worker);
    switch (change.kind) {
      case MemberChange::Kind::kJoins: {
        const double at_s = ready_s(now_s, change.device);
        members_[change.worker] = {change.device, at_s, false};
        ask_s_ = std::min(ask_s_, at_s);
        break;
      }
      case MemberChange::Kind::kNotice:
        if (member == members_.end()) break;
        member->second.leaves = true;
        ask_s_ = now_s;
        break;
      case MemberChange::Kind::kGoes:
        if (member == members_.end()) break;
        members_.erase(member);
        is_hit = on_lost(change.worker, now_s) || is_hit;
        break;
    }
  }
  if (!is_hit) return;
  quiet_s_ = std::max(quiet_s_, now_s + quiescing_seconds(now_s));
  if (commit_s_ != kNever) ++outcome_.steps_redone;  // The one in progress.
  stop(now_s);
  begin_change(now_s, true);
}

/// True if training, or the change of plan that is under way, cannot do without the worker.
bool ChurnRun::on_lost(WorkerId worker, double now_s) {
  const auto has = [worker](const std::optional<Plan>& plan) {
    return plan && plan_workers(*plan).contains(worker);
  };
  if (has(candidate_) || has(proposal_)) {
    candidate_.reset();
    proposal_.reset();
    answer_s_ = kNever;
    ask_s_ = now_s;
  }
  if (commit_s_ != kNever) return has(plan_);
  return next_plan_ && (has(next_plan_) || has(plan_));
}

void ChurnRun::on_commit(double now_s) {
  ++steps_done_;
  take_snapshot();
  const CheckpointSpec& checkpoint = request_.job.checkpoint;
  if (checkpoint.enable && steps_done_ % static_cast<uint64_t>(checkpoint.interval) == 0) {
    durable_step_ = steps_done_;
  }
  if (!proposal_) {
    commit_s_ = now_s + step_s_;
    return;
  }
  stop(now_s);
  begin_change(now_s, false);
}

/// Members have changed: what would be better?
void ChurnRun::on_ask(double now_s) {
  ask_s_ = next_ready_s(now_s);
  if (next_plan_ || candidate_ || proposal_) return;  // Asked again when it is in force.
  if (commit_s_ == kNever) {
    begin_change(now_s, false);
    return;
  }
  const DeviceOfWorker workers = eligible(now_s, false);
  if (workers.empty()) return;
  ReplanRequest asked = plans_.request(workers);
  asked.current = plan_;
  absl::StatusOr<Plan> candidate = choose(asked, workers);
  if (!candidate.ok()) return;
  ChangeQuestion question;
  question.request = std::move(asked);
  question.is_planned = is_planned();
  question.measured = plans_.measured(eligible(now_s, true));
  if (!must_change() && !is_worthwhile(question, *candidate)) return;
  candidate_ = *std::move(candidate);
  answer_s_ = now_s + planning_s();
}

void ChurnRun::on_answer(double /*now_s*/) {
  answer_s_ = kNever;
  proposal_ = std::exchange(candidate_, std::nullopt);
}

void ChurnRun::begin_change(double now_s, bool is_urgent) {
  std::optional<Plan> chosen = std::exchange(proposal_, std::nullopt);
  candidate_.reset();
  answer_s_ = kNever;
  resume_s_ = kNever;
  next_plan_.reset();
  double planning_s = 0;
  if (is_urgent) chosen.reset();  // It was made for others.
  if (!chosen) {
    DeviceOfWorker workers = eligible(now_s, false);
    const auto fewest = static_cast<size_t>(request_.job.elastic.min_workers);
    if (workers.size() < fewest) workers = eligible(now_s, true);
    if (workers.size() >= std::max<size_t>(1, fewest)) {
      ReplanRequest asked = plans_.request(workers);
      asked.current = plan_;
      asked.is_urgent = is_urgent;
      const absl::StatusOr<Plan> plan = choose(asked, workers);
      if (plan.ok()) chosen = *plan;
      if (!is_urgent) planning_s = this->planning_s();
    }
  }
  if (!chosen) {
    ask_s_ = next_ready_s(now_s);
    return;
  }
  const RestoreDecision decision = restore_for(*chosen);
  next_first_step_ = decision.first_step;
  resume_s_ = std::max(now_s, quiet_s_) + planning_s + request_.costs.change_s +
              moving_seconds(*chosen, decision);
  next_plan_ = std::move(chosen);
}

absl::StatusOr<Plan> ChurnRun::choose(const ReplanRequest& request, const DeviceOfWorker& workers) {
  ReplanRequest asked = request;
  asked.generation = ++generation_;
  if (has_templates()) return plans_.whole_pipelines(asked, template_stages_);
  if (!asked.is_urgent) return plans_.best(asked, workers);
  absl::StatusOr<PlannedPipeline> planned =
      is_chosen_by_planner(asked) ? quick_replan(asked) : replan(asked);
  if (planned.ok()) return std::move(planned->plan);
  asked.is_urgent = false;
  return plans_.best(asked, workers);
}

RestoreDecision ChurnRun::restore_for(const Plan& plan) const {
  StateSources sources;
  sources.committed = steps_done_;
  sources.durable_step = durable_step_;
  for (const auto& [worker, member] : members_) {
    sources.inventory[worker];
    if (!plan_ || !has_state_) continue;
    for (const StagePlan& stage : plan_->stages) {
      const bool holds = std::any_of(stage.replicas.begin(), stage.replicas.end(),
                                     [id = worker](const auto& each) { return each.worker == id; });
      if (holds) sources.inventory[worker].push_back({steps_done_, stage.layers, 0});
    }
    for (const auto& [holder, layers] : snapshot_.holders) {
      if (holder == worker) sources.inventory[worker].push_back({snapshot_.step, layers, 0});
    }
  }
  return decide_restore(plan, layers_, sources);
}

double ChurnRun::quiescing_seconds(double now_s) const {
  if (commit_s_ == kNever) return 0;
  const double since_s = now_s - (commit_s_ - step_s_);
  double longest_s = 0;
  for (const ChurnPlans::Slot& slot : slots_) {
    if (!members_.contains(slot.worker) || slot.start_s > since_s) continue;
    longest_s = std::max(longest_s, slot.end_s - since_s);
  }
  return longest_s;
}

/// The time of the worker that sends or receives longest.
double ChurnRun::moving_seconds(const Plan& plan, const RestoreDecision& decision) const {
  std::map<WorkerId, double> sending, receiving;
  for (const LayerMove& move : decision.moves) {
    const double seconds = plans_.transfer_seconds(
        plans_.state_bytes(move.layer), members_.at(move.from).device, members_.at(move.to).device);
    sending[move.from] += seconds;
    receiving[move.to] += seconds;
  }
  if (decision.from_checkpoint && has_state_) {  // From storage, at the speed of the network.
    for (const auto& [worker, layers] : layers_of_workers(plan)) {
      for (const int64_t layer : layers) {
        receiving[worker] +=
            plans_.load_seconds(plans_.state_bytes(layer), members_.at(worker).device);
      }
    }
  }
  double longest_s = 0;
  for (const auto* each : {&sending, &receiving}) {
    for (const auto& [worker, seconds] : *each) longest_s = std::max(longest_s, seconds);
  }
  return longest_s;
}

void ChurnRun::on_resume(double now_s) {
  resume_s_ = kNever;
  outcome_.steps_redone += static_cast<int64_t>(steps_done_ - next_first_step_);
  if (has_state_) ++outcome_.plans;
  has_state_ = true;
  steps_done_ = next_first_step_;
  plan_ = std::exchange(next_plan_, std::nullopt);
  begin_snapshots();
  const absl::StatusOr<double> step_s = plans_.step_seconds(*plan_, eligible(now_s, true));
  SKEIN_CHECK(step_s.ok()) << step_s.status();
  step_s_ = *step_s;
  const auto slots = plans_.slots(*plan_, eligible(now_s, true));
  SKEIN_CHECK(slots.ok()) << slots.status();
  slots_ = *slots;
  outcome_.stopped_s += now_s - std::exchange(stopped_since_s_, kNever);
  commit_s_ = now_s + step_s_;
  std::erase_if(members_, [this](const auto& each) {  // They have been let go.
    return each.second.leaves && !hosts(each.first);
  });
  ask_s_ = now_s;  // Who came meanwhile, and a plan that was made in a hurry.
}

void ChurnRun::begin_snapshots() {
  owners_.clear();
  std::map<WorkerId, std::string> hosts;
  for (const StagePlan& stage : plan_->stages) {
    owners_.push_back(stage.replicas.front().worker);
  }
  for (const auto& [worker, member] : members_) {
    hosts[worker] =
        std::to_string(request_.cluster.devices[static_cast<size_t>(member.device)].host);
  }
  snapshot_peers_ = choose_snapshot_peers(*plan_, request_.job.model, hosts);
  schedule_.begin_generation(owners_, snapshot_peers_, steps_done_);
}

void ChurnRun::take_snapshot() {
  if (!schedule_.is_due(steps_done_)) return;
  schedule_.on_ordered(steps_done_, 0);  // It is whole at once.
  snapshot_ = {steps_done_, {}};
  for (size_t s = 0; s < plan_->stages.size(); ++s) {
    for (const WorkerId holder : {owners_[s], snapshot_peers_[s]}) {
      schedule_.on_kept(holder, static_cast<int32_t>(s), steps_done_);
      snapshot_.holders.emplace_back(holder, plan_->stages[s].layers);
    }
  }
}

void ChurnRun::stop(double now_s) {
  commit_s_ = kNever;
  stopped_since_s_ = std::min(stopped_since_s_, now_s);
}

}  // namespace skein::plans
