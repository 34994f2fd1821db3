#include "plans/coordinator/timing_watch.hpp"

#include <algorithm>
#include <utility>

namespace skein::plans {
namespace {

using BusyTimes = std::map<ReplicaId, uint64_t>;  // Microseconds.

/// Where all do every step together, that step. Else the first pass of each pipeline replica in
/// the commit, the second of each, and so on, as long as all have one.
std::vector<BusyTimes> steps_of(const ModeTimings& timings) {
  if (!timings.step_reports.empty()) {
    BusyTimes busy_us;
    for (const auto& [replica, report] : timings.step_reports) busy_us[replica] = report.busy_us;
    return {std::move(busy_us)};
  }
  std::map<uint32_t, std::vector<const BusyTimes*>> of_pipeline;
  for (const ModeTimings::Pass& pass : timings.passes) {
    of_pipeline[pass.pipeline_replica].push_back(&pass.busy_us);
  }
  std::vector<BusyTimes> steps;
  for (bool all_have_one = !of_pipeline.empty(); all_have_one;) {
    BusyTimes step;
    for (const auto& [pipeline, passes] : of_pipeline) {
      step.insert(passes[steps.size()]->begin(), passes[steps.size()]->end());
    }
    steps.push_back(std::move(step));
    all_have_one = std::all_of(of_pipeline.begin(), of_pipeline.end(),
                               [&](const auto& each) { return each.second.size() > steps.size(); });
  }
  return steps;
}

}  // namespace

TimingWatch::Observation TimingWatch::on_commit(uint64_t steps_done, const ModeTimings& timings) {
  Observation observation;
  if (!follows_speeds()) return observation;
  for (const BusyTimes& busy_us : steps_of(timings)) {
    const std::vector<SpeedChange> changes = speeds_.on_step(steps_done, busy_us);
    if (!job_.elastic.watch_speeds || changes.empty()) continue;
    observation.changes = changes;
    break;  // What is expected now is to be known first.
  }
  if (!mitigates_) return observation;
  pace_.on_changes(observation.changes);
  observation.due = pace_.take(steps_done);
  return observation;
}

}  // namespace skein::plans
