#include "cli/demo/demo_observer.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "plans/plan/layout_plan.hpp"
#include "plans/planner/measured_request.hpp"
#include "plans/simulator/simulator.hpp"

namespace skein::cli {
namespace {

/// Weight of the past in the moving average of the throughput.
constexpr double kRateDecay = 0.8;

/// Empty if the event has no such field; the numbers are then 0.
std::string text_in(const actors::EventReport& report, const std::string& field) {
  const auto found = report.fields.find(field);
  return found == report.fields.end() ? std::string() : found->second;
}

uint32_t number_in(const actors::EventReport& report, const std::string& field) {
  uint32_t number = 0;
  return absl::SimpleAtoi(text_in(report, field), &number) ? number : 0;
}

double real_in(const actors::EventReport& report, const std::string& field) {
  double number = 0;
  return absl::SimpleAtod(text_in(report, field), &number) ? number : 0;
}

std::vector<plans::WorkerId> workers_of(const plans::Plan& plan) {
  std::set<plans::WorkerId> workers;
  for (const plans::StagePlan& stage : plan.stages) {
    for (const plans::ReplicaPlan& replica : stage.replicas) workers.insert(replica.worker);
  }
  return {workers.begin(), workers.end()};
}

}  // namespace

DemoObserver::DemoObserver(plans::JobSpec job, double seconds_planned)
    : job_(std::move(job)), start_(std::chrono::steady_clock::now()) {
  view_.seconds_planned = seconds_planned;
  view_.phase = "starting";
  view_.model = plans::layers_text(job_.model);
}

double DemoObserver::elapsed() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

DemoView DemoObserver::view() const {
  std::lock_guard lock(mutex_);
  DemoView view = view_;
  view.seconds = elapsed();
  return view;
}

void DemoObserver::add_event(std::string text, bool is_trouble, bool is_good) {
  view_.events.push_back({elapsed(), std::move(text), is_trouble, is_good});
}

void DemoObserver::say(const std::string& text) {
  std::lock_guard lock(mutex_);
  add_event(text);
}

DemoWorker& DemoObserver::worker(uint32_t number) {
  auto found = std::find_if(view_.workers.begin(), view_.workers.end(),
                            [number](const auto& each) { return each.number >= number; });
  if (found == view_.workers.end() || found->number != number) {
    found = view_.workers.insert(found, DemoWorker{});
    found->number = number;
  }
  return *found;
}

void DemoObserver::set_speed(uint32_t number, double speed) {
  worker(number).speed = speed;
  if (cluster_.devices.empty() || !(speed > 0)) return;
  while (cluster_.devices.size() < number) cluster_.devices.push_back(cluster_.devices.front());
  cluster_.devices[number - 1].speed = speed;
}

void DemoObserver::on_profiles(const plans::ReportProfiles& report) {
  std::lock_guard lock(mutex_);
  profile_ = report.profile;
  cluster_ = report.cluster;
  std::vector<std::string> speeds;
  for (size_t i = 0; i < cluster_.devices.size(); ++i) {
    const double speed = cluster_.devices[i].speed;
    set_speed(static_cast<uint32_t>(i + 1), speed);
    speeds.push_back(absl::StrFormat("%.2f", speed));
  }
  add_event(absl::StrCat("measured speeds: ", absl::StrJoin(speeds, ", ")));
}

double DemoObserver::gain_of(const plans::Plan& plan) const {
  if (!profile_) return 0;
  const std::vector<plans::WorkerId> workers = workers_of(plan);
  plans::JobSpec job = job_;
  job.parallelism = {};
  job.parallelism.pipeline_parallel_degree = static_cast<int64_t>(workers.size());
  const auto even = plans::make_layout_plan(job, workers, plan.generation);
  if (!even.ok()) return 0;
  plans::SimulationOptions options;
  options.commit_us = plans::kCommitUs;
  options.action_overhead_us = plans::kActionOverheadUs;
  options.keeps_records = false;
  const auto ours_us = plans::simulate(plan, *profile_, cluster_, options);
  const auto even_us = plans::simulate(*even, *profile_, cluster_, options);
  return ours_us.ok() && even_us.ok() ? even_us->step_us / ours_us->step_us : 0;
}

void DemoObserver::on_plan(const plans::Plan& plan, double predicted_step_us) {
  std::lock_guard lock(mutex_);
  std::vector<std::string> newcomers;
  std::erase_if(view_.workers, [](const DemoWorker& each) { return each.is_lost; });
  std::map<uint32_t, int64_t> layers_before;
  for (DemoWorker& each : view_.workers) {
    layers_before[each.number] = std::exchange(each.layers, 0);
    each.stages.clear();
  }
  replicas_ = 0;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    for (const plans::ReplicaPlan& replica : plan.stages[s].replicas) {
      DemoWorker& each = worker(replica.worker.value);
      each.stages.push_back(static_cast<int32_t>(s));
      each.layers += plan.stages[s].layers.size();
      ++replicas_;
    }
  }
  for (const DemoWorker& each : view_.workers) {
    if (each.layers > 0 && layers_before[each.number] == 0) {
      newcomers.push_back(absl::StrCat("w", each.number));
    }
  }
  newcomers_ = view_.generation > 0 ? absl::StrJoin(newcomers, " ") : "";
  view_.generation = plan.generation;
  view_.schedule = std::string(plans::to_text(plan.schedule));
  view_.predicted_step_us = predicted_step_us;
  view_.gain = gain_of(plan);
  view_.steps_of_plan = 0;
  timings_.clear();
  add_event(plan_line(view_));
}

void DemoObserver::on_first_step_of_plan(const actors::StepReport& report) {
  if (!newcomers_.empty()) view_.marks.push_back({report.step, newcomers_ + " joined"});
  if (!pause_began_) return;
  if (pause_cause_.empty()) {
    pause_cause_ = newcomers_.empty() ? "plan changed" : newcomers_ + " works";
  }
  const std::string cost = steps_lost_ == 0 ? "no step lost"
                                            : absl::StrFormat("%d step%s done again", steps_lost_,
                                                              steps_lost_ == 1 ? "" : "s");
  add_event(absl::StrFormat("%s: step %d committed %.1f s later, %s", pause_cause_, report.step,
                            elapsed() - *pause_began_, cost),
            false, true);
  pause_began_.reset();
  pause_cause_.clear();
  steps_lost_ = 0;
}

void DemoObserver::on_step(const actors::StepReport& report) {
  std::lock_guard lock(mutex_);
  if (view_.steps_of_plan++ == 0) {
    on_first_step_of_plan(report);
  } else if (report.step_seconds > 0) {  // The first step of a plan has waited for it.
    rate_seconds_ = kRateDecay * rate_seconds_ + report.step_seconds;
    rate_tokens_ = kRateDecay * rate_tokens_ + static_cast<double>(report.tokens);
    view_.tokens_per_second = rate_tokens_ / rate_seconds_;
  }
  view_.step = report.step;
  view_.losses.resize(report.step, report.loss);
  view_.losses.back() = report.loss;
}

void DemoObserver::on_validation(const actors::ValidationReport& report) {
  std::lock_guard lock(mutex_);
  add_event(absl::StrFormat("validation at step %d: loss %.4f", report.step, report.loss));
}

void DemoObserver::on_checkpoint(const actors::CheckpointReport& report) {
  std::lock_guard lock(mutex_);
  add_event(absl::StrFormat("checkpoint of step %d saved", report.step));
}

void DemoObserver::on_timings(const actors::TimingsReport& report) {
  std::lock_guard lock(mutex_);
  if (!timings_.empty() && timings_.front().step != report.step) timings_.clear();
  timings_.push_back(report);
  if (timings_.size() != replicas_) return;
  view_.timeline = picture_of(timings_);
  view_.timeline_step = report.step;
}

void DemoObserver::on_kill(plans::WorkerId worker) {
  std::lock_guard lock(mutex_);
  add_event(absl::StrCat("killing w", worker.value, " with SIGKILL"), true);
  pause_began_ = elapsed();
  pause_cause_ = absl::StrCat("w", worker.value, " killed");
}

void DemoObserver::on_event(const actors::EventReport& report) {
  std::lock_guard lock(mutex_);
  if (on_worker_event(report) || on_run_event(report)) return;
  if (report.name != "plan.made") add_event(report.text);  // `on_plan` has told that one.
}

bool DemoObserver::on_worker_event(const actors::EventReport& report) {
  const uint32_t number = number_in(report, "worker");
  const std::string name = absl::StrCat("w", number);
  if (report.name == "worker.joined") {
    worker(number);
    add_event(absl::StrCat(name, " joined (process ", text_in(report, "pid"), ")"), false,
              view_.generation > 0);
  } else if (report.name == "worker.measured") {
    const double speed = real_in(report, "speed");
    set_speed(number, speed);
    add_event(absl::StrFormat("measured %s: speed %.2f", name, speed));
  } else if (report.name == "worker.speed_changed") {
    const double slowdown = real_in(report, "slowdown");
    if (slowdown > 0) set_speed(number, worker(number).speed / slowdown);
    add_event(absl::StrFormat("%s takes %.2f times as long as it did", name, slowdown));
  } else if (report.name == "worker.lost") {
    worker(number).is_lost = true;
    view_.marks.push_back({view_.step + 1, name + " lost"});
    add_event(absl::StrCat(name, " lost at step ", text_in(report, "step"), ": ",
                           text_in(report, "reason")),
              true);
  } else {
    return false;
  }
  return true;
}

bool DemoObserver::on_run_event(const actors::EventReport& report) {
  if (report.name == "profile.started") {
    view_.phase = "measuring devices and links";
  } else if (report.name == "plan.quiesced") {
    view_.phase = "changing the plan";
    if (!pause_began_) pause_began_ = elapsed();
  } else if (report.name == "run.rolled_back") {
    const uint64_t to = number_in(report, "to");
    steps_lost_ += view_.step - std::min(view_.step, to);
    add_event(report.text, true);
  } else if (report.name == "run.started" || report.name == "run.continued") {
    view_.phase = "training";
  } else if (report.name == "straggler.mitigation") {
    add_event(absl::StrCat("mitigation: ", text_in(report, "kind")));
  } else {
    return false;
  }
  return true;
}

}  // namespace skein::cli
