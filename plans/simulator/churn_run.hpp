#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "plans/chaos/churn_trace.hpp"
#include "plans/elastic/restore.hpp"
#include "plans/elastic/snapshot_schedule.hpp"
#include "plans/simulator/churn_plans.hpp"
#include "plans/simulator/churn_simulation.hpp"

namespace skein::plans {

/// A run that changes its plan when members change: events in order of time. Used once.
class ChurnRun {
 public:
  /// `template_stages`   0: plans as Skein; else whole pipelines of so many stages.
  ChurnRun(const ChurnRequest& request, ChurnPlans& plans, int64_t template_stages);
  ChurnOutcome run();

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  struct Member {
    int32_t device = 0;
    double ready_s = 0;  // It may be given work from then on.
    bool leaves = false;
  };
  /// Copies of the state after `step` steps: who has which layers.
  struct Snapshot {
    uint64_t step = 0;
    std::vector<std::pair<WorkerId, LayerRange>> holders;
  };

  bool has_templates() const { return template_stages_ > 0; }
  /// The planner thinks; a layout or a template is there at once.
  double planning_s() const;
  bool is_planned() const;
  /// When a worker that comes now may be given work.
  double ready_s(double now_s, int32_t device);
  DeviceOfWorker eligible(double now_s, bool with_leavers) const;
  bool hosts(WorkerId worker) const;
  bool must_change() const;
  double next_ready_s(double now_s) const;

  void on_changes(double now_s);
  bool on_lost(WorkerId worker, double now_s);
  void on_commit(double now_s);
  void on_ask(double now_s);
  void on_answer(double now_s);
  void on_resume(double now_s);

  /// Training stops; the next plan is chosen, or nobody can train.
  void begin_change(double now_s, bool is_urgent);
  absl::StatusOr<Plan> choose(const ReplanRequest& request, const DeviceOfWorker& workers);
  RestoreDecision restore_for(const Plan& plan) const;
  /// Until the devices of those who are left have ended what they had begun.
  double quiescing_seconds(double now_s) const;
  double moving_seconds(const Plan& plan, const RestoreDecision& decision) const;
  void begin_snapshots();
  void take_snapshot();
  void stop(double now_s);

  const ChurnRequest& request_;
  ChurnPlans& plans_;
  const int64_t template_stages_;
  const int64_t layers_;
  std::map<WorkerId, Member> members_;
  std::map<int32_t, double> measuring_until_s_;  // By host.
  size_t next_change_ = 0;
  uint64_t generation_ = 0;

  std::optional<Plan> plan_;  // In force, or the last one; its live workers hold `steps_done_`.
  bool has_state_ = false;    // Training has begun once.
  double step_s_ = 0;
  std::vector<ChurnPlans::Slot> slots_;  // The work in a step.
  uint64_t steps_done_ = 0;
  uint64_t durable_step_ = 0;
  SnapshotSchedule schedule_;
  std::vector<WorkerId> owners_, snapshot_peers_;
  Snapshot snapshot_;

  std::optional<Plan> next_plan_;  // While the plan changes.
  uint64_t next_first_step_ = 0;
  std::optional<Plan> candidate_;  // The planner's, that is being thought about.
  std::optional<Plan> proposal_;   // It follows at the next commit.

  double quiet_s_ = 0;        // Devices have ended what was cut off.
  double commit_s_ = kNever;  // When what is named happens.
  double resume_s_ = kNever;
  double ask_s_ = kNever;
  double answer_s_ = kNever;
  double stopped_since_s_ = kNever;  // kNever: a step is in progress.
  ChurnOutcome outcome_;
};

}  // namespace skein::plans
