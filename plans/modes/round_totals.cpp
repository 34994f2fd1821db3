#include "plans/modes/round_totals.hpp"

#include <algorithm>
#include <cmath>

#include "plans/base/units.hpp"

namespace skein::plans {
double PipelineIteration::loss_sum() const {
  double sum = 0;
  for (const auto& [stage, report] : reports) sum += report.loss_sum;
  return sum;
}

uint64_t PipelineIteration::loss_tokens() const {
  uint64_t tokens = 0;
  for (const auto& [stage, report] : reports) tokens += report.loss_tokens;
  return tokens;
}

double PipelineIteration::gradient_norm() const {
  double squared = 0;
  for (const auto& [stage, report] : reports) squared += report.norm_squared;
  return std::sqrt(squared);
}

uint64_t PipelineIteration::step_us() const {
  uint64_t longest = 0;
  for (const auto& [stage, report] : reports) longest = std::max(longest, report.own_step_us());
  return longest;
}

RoundTotals totals_of(const PipelineLayout& layout,
                      const std::vector<PipelineIteration>& iterations) {
  RoundTotals totals;
  totals.busy_seconds.resize(layout.stages);
  totals.wait_seconds.resize(layout.stages);
  totals.stash_peak.resize(layout.stages);
  totals.weight_delay.resize(layout.stages);
  totals.samples.resize(layout.pipelines);
  totals.iterations = iterations.size();
  for (const PipelineIteration& each : iterations) {
    totals.loss_sum += each.loss_sum();
    totals.loss_tokens += each.loss_tokens();
    totals.norm_sum += each.gradient_norm();
    totals.samples[each.pipeline] += each.claim.count;
    for (const auto& [stage, report] : each.reports) {
      totals.busy_seconds[stage] += static_cast<double>(report.busy_us) * kSecondsPerMicrosecond;
      totals.wait_seconds[stage] +=
          static_cast<double>(report.device_wait_us) * kSecondsPerMicrosecond;
      totals.stash_peak[stage] = std::max(totals.stash_peak[stage], report.stash_peak);
      totals.weight_delay[stage] = std::max(totals.weight_delay[stage], report.weight_delay);
    }
  }
  return totals;
}

}  // namespace skein::plans
