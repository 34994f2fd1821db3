#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/modes/claim_pool.hpp"
#include "plans/sync/pipeline_layout.hpp"

namespace skein::plans {

/// One iteration of a pipeline replica: all of its replicas are ready.
struct PipelineIteration {
  uint32_t pipeline = 0;
  uint64_t step = 0;                        // The pipeline replica's own.
  SampleClaim claim;                        // That it has trained on.
  std::map<uint32_t, ReadyReport> reports;  // By stage.

  double loss_sum() const;
  uint64_t loss_tokens() const;
  double gradient_norm() const;
  uint64_t step_us() const;  // From its begin until the last stage was ready.
};

/// What the pipeline replicas have done in a round.
struct RoundTotals {
  double loss_sum = 0;
  uint64_t loss_tokens = 0;
  double norm_sum = 0;                 // The iterations' gradient norms.
  uint64_t iterations = 0;             // Over all pipeline replicas.
  std::vector<double> busy_seconds;    // [stages], of all pipeline replicas.
  std::vector<double> wait_seconds;    // [stages], the same: devices were with other jobs.
  std::vector<uint32_t> stash_peak;    // [stages]
  std::vector<uint64_t> samples;       // [pipeline replicas]
  std::vector<uint32_t> weight_delay;  // [stages], the largest.
};

RoundTotals totals_of(const PipelineLayout& layout,
                      const std::vector<PipelineIteration>& iterations);

}  // namespace skein::plans
