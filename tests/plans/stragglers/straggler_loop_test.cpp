// The detector and the mitigation together, as a coordinator would use them, on a simulated
// cluster.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "../planner/planner_requests.hpp"
#include "plans/base/rng.hpp"
#include "plans/stragglers/straggler_detector.hpp"
#include "plans/stragglers/straggler_mitigation.hpp"

namespace skein::plans {
namespace {

constexpr double kNoise = 0.05;

/// A run whose devices change behind the planner's back.
class DriftingRun {
 public:
  DriftingRun(PlanRequest request, uint64_t seed)
      : known_(request), truth_(std::move(request)), seed_(seed) {
    plan_ = planners().front().make_plan(known_).value().plan;
  }

  void set_speed(size_t device, double speed) { truth_.cluster.devices[device].speed = speed; }

  void step() {
    std::map<WorkerId, WorkSample> samples;
    for (const SimulatedWorker& worker : simulated(truth_).workers) {
      const double noise = std::max(0.5, 1 + kNoise * random_normal(seed_, worker.id.value, step_));
      samples[worker.id].busy_us = worker.busy_us * noise;
    }
    for (const SimulatedWorker& worker : simulated(known_).workers) {
      samples[worker.id].expected_us = worker.busy_us;
    }
    const std::vector<SpeedChange> changes = detector_.on_step(step_++, samples);
    if (!changes.empty()) on_changes(changes);
  }

  double step_us() const { return simulated_us(plan_, truth_); }
  int reports() const { return reports_; }
  int mitigations() const { return mitigations_; }

 private:
  Simulation simulated(const PlanRequest& request) const {
    return simulate(plan_, request.profile, request.cluster, request.simulation).value();
  }

  void on_changes(const std::vector<SpeedChange>& changes) {
    MitigationOptions options;
    options.steps_left = 100'000;
    for (const SpeedChange& change : changes) {
      ++reports_;
      known_.cluster.devices[change.worker.value - 1].speed /= change.slowdown;
      if (change.slowdown > 1) options.stragglers.push_back(change.worker);
    }
    ++known_.generation;
    const Mitigation mitigation = choose_mitigation(plan_, known_, options).value();
    plan_ = mitigation.plan;
    mitigations_ += mitigation.kind == Mitigation::Kind::kNone ? 0 : 1;
    detector_.reset();
  }

  PlanRequest known_;
  PlanRequest truth_;
  uint64_t seed_;
  Plan plan_;
  StragglerDetector detector_;
  uint64_t step_ = 0;
  int reports_ = 0;
  int mitigations_ = 0;
};

TEST(StragglerLoop, SettlesWithinTwentyStepsOfASlowdownAndOfItsEnd) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    for (const int64_t rows : {1, 16}) {  // A pipeline; replicas.
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", up to " << rows << " rows");
      PlanRequest request = request_of(even_profile(16, {}), cluster_of({{1, 1, 1, 1}}), 64, rows);
      DriftingRun run(request, seed);
      const double before_us = run.step_us();
      for (int step = 0; step < 40; ++step) run.step();
      EXPECT_EQ(run.reports(), 0);
      run.set_speed(seed % 4, 0.25);
      const double slow_us = run.step_us();
      for (int step = 0; step < 20; ++step) run.step();
      EXPECT_EQ(run.reports(), 1);
      // Of 4 speeds 3.25 are left.
      EXPECT_LT(run.step_us(), 1.15 * before_us * 4 / 3.25);
      EXPECT_GT(slow_us, 2.5 * before_us);
      for (int step = 0; step < 100; ++step) run.step();
      EXPECT_EQ(run.reports(), 1);
      run.set_speed(seed % 4, 1);
      for (int step = 0; step < 20; ++step) run.step();
      EXPECT_EQ(run.reports(), 2);
      EXPECT_EQ(run.mitigations(), 2);
      EXPECT_LT(run.step_us(), 1.1 * before_us);
    }
  }
}

}  // namespace
}  // namespace skein::plans
