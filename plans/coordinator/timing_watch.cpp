#include "plans/coordinator/timing_watch.hpp"

namespace skein::plans {

TimingWatch::Observation TimingWatch::on_commit(uint64_t steps_done, const ModeTimings& timings) {
  Observation observation;
  // Replicas that wait for nobody hold up nobody.
  if (!job_.elastic.watch_speeds || timings.step_reports.empty()) return observation;
  observation.changes = speeds_.on_step(steps_done, timings.step_reports);
  if (!mitigates_) return observation;
  pace_.on_changes(observation.changes);
  observation.due = pace_.take(steps_done);
  return observation;
}

}  // namespace skein::plans
