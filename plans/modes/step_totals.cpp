#include "plans/modes/step_totals.hpp"

#include <algorithm>
#include <cmath>

#include "plans/base/units.hpp"

namespace skein::plans {

CommitTotals step_totals(const Plan& plan, const std::vector<StageSync>& stages,
                         uint64_t end_step) {
  CommitTotals totals;
  totals.end_step = end_step;
  double norm_squared = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    norm_squared += stages[s].norm_squared();
    double busy = 0;
    double wait = 0;
    uint32_t stash = 0;
    for (const ReplicaPlan& replica : plan.stages[s].replicas) {
      const ReadyReport& report = stages[s].report(replica.id);
      totals.loss_sum += report.loss_sum;
      totals.loss_tokens += report.loss_tokens;
      totals.snapshot_us = std::max(totals.snapshot_us, report.snapshot_us);
      busy += static_cast<double>(report.busy_us) * kSecondsPerMicrosecond;
      wait += static_cast<double>(report.device_wait_us) * kSecondsPerMicrosecond;
      stash = std::max(stash, report.stash_peak);
    }
    const auto count = static_cast<double>(plan.stages[s].replicas.size());
    totals.stage_busy_seconds.push_back(busy / count);
    totals.stage_device_wait_seconds.push_back(wait / count);
    totals.stage_stash_peak.push_back(stash);
  }
  totals.gradient_norm = std::sqrt(norm_squared);
  return totals;
}

}  // namespace skein::plans
