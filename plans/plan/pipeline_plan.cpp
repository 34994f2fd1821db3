#include "plans/plan/pipeline_plan.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"
#include "plans/plan/layout_plan.hpp"
#include "plans/sync/policy_kind.hpp"

namespace skein::plans {

int64_t pipeline_rows(const JobSpec& job) {
  const int64_t rows = job.training.micro_batch_size;
  int64_t share = std::max<int64_t>(1, rows / job.parallelism.data_parallel_replicate_degree);
  while (rows % share != 0) --share;
  return share;
}

absl::StatusOr<Plan> make_pipeline_plan(const JobSpec& job, const std::vector<WorkerId>& workers,
                                        uint64_t generation) {
  const auto available = static_cast<int64_t>(workers.size());
  SKEIN_ASSIGN_OR_RETURN(const int64_t wanted, layout_worker_count(job, available));
  JobSpec pipelines_job = job;
  ParallelismSpec& parallelism = pipelines_job.parallelism;
  int64_t stages = wanted / parallelism.data_parallel_replicate_degree;
  if (stages > available) {
    stages = available;
    parallelism.layout.clear();
    parallelism.virtual_stages = 1;
  }
  const int64_t pipelines = available / stages;
  SKEIN_RETURN_IF_ERROR(check_tied_embedding(job, stages * parallelism.virtual_stages));
  parallelism.pipeline_parallel_degree = stages;
  parallelism.data_parallel_replicate_degree = pipelines;
  const int64_t microbatches = microbatch_count(job);
  pipelines_job.training.micro_batch_size = pipeline_rows(job) * pipelines;
  pipelines_job.training.global_batch_size = microbatches * pipelines_job.training.micro_batch_size;
  SKEIN_ASSIGN_OR_RETURN(Plan plan,
                         make_layout_plan(pipelines_job, workers, generation, kLocalMode));
  return plan;
}

PipelineLayout pipeline_layout(const Plan& plan) {
  return {static_cast<uint32_t>(plan.stages.front().replicas.size()),
          static_cast<uint32_t>(plan.stages.size())};
}

uint64_t pipeline_samples(const JobSpec& job) {
  return static_cast<uint64_t>(microbatch_count(job) * pipeline_rows(job));
}

}  // namespace skein::plans
