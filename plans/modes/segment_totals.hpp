#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/modes/lease_pool.hpp"
#include "plans/sync/column_layout.hpp"

namespace skein::plans {

/// One iteration of a column: all of its replicas are ready.
struct ColumnIteration {
  uint32_t column = 0;
  uint64_t step = 0;                        // The column's own.
  SampleLease lease;                        // That it has trained on.
  std::map<uint32_t, ReadyReport> reports;  // By stage.

  double loss_sum() const;
  uint64_t loss_tokens() const;
  double gradient_norm() const;
  uint64_t busy_us() const;  // Of the stage that took longest, > 0.
  uint64_t step_us() const;  // From its begin until the last stage was ready.
};

/// What the columns have done in a segment.
struct SegmentTotals {
  double loss_sum = 0;
  uint64_t loss_tokens = 0;
  double norm_sum = 0;               // Of the iterations' gradient norms.
  uint64_t iterations = 0;           // Of all columns.
  uint64_t staleness_max = 0;        // Of the groups.
  std::vector<double> busy_seconds;  // [stages], of all columns.
  std::vector<uint32_t> stash_peak;  // [stages]
  std::vector<uint64_t> samples;     // [columns]
};

/// Without the staleness, which is that of groups.
SegmentTotals totals_of(const ColumnLayout& layout, const std::vector<ColumnIteration>& iterations);

}  // namespace skein::plans
