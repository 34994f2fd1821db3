#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/job/job_spec.hpp"
#include "plans/plan/plan.hpp"

namespace skein::plans {

/// One pipeline replica: its workers, which layers each of them has, and how large its claims are.
struct PipelineCuts {
  std::vector<WorkerId> workers;  // In the order of the layers, >= 1.
  std::vector<int64_t> cuts;      // [workers - 1] first layer of each but the first one, ascending.
  int64_t rows = 0;               // A micro-batch's; 0: `pipeline_rows` of the job.
  bool operator==(const PipelineCuts&) const = default;
};

/// The layers of its i-th worker.
LayerRange layers_of(const PipelineCuts& pipeline, size_t i, int64_t layer_count);

/// A plan of these pipeline replicas, in this order. Its stages lie between all cuts of all of
/// them: so a stage is a range of layers that each pipeline replica holds whole, on one worker, and
/// averages by itself. InvalidArgument   if cuts do not ascend inside the model or a worker is
/// there twice; as `validate` of the plan and `check_tied_embedding`.
absl::StatusOr<Plan> make_plan_of_cuts(const JobSpec& job,
                                       const std::vector<PipelineCuts>& pipelines,
                                       uint64_t generation);

/// "5+5, 2 times 4+6": the layers of the workers of each pipeline replica.
std::string cuts_text(const Plan& plan);

/// "12, 2 times 4": the samples of a claim of each pipeline replica; empty if all are of one size.
std::string claims_text(const Plan& plan);

/// The pipeline replicas of such a plan, or of one with the same cuts everywhere, with their rows.
std::vector<PipelineCuts> cuts_of(const Plan& plan);

}  // namespace skein::plans
