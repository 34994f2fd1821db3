#include "small_plans.hpp"

#include <algorithm>

#include "plans/base/check.hpp"

namespace skein::plans {

std::vector<WorkerId> ids(const std::vector<uint32_t>& values) {
  std::vector<WorkerId> workers;
  for (uint32_t value : values) workers.push_back({value});
  return workers;
}

std::vector<WorkerId> first_ids(uint32_t count) {
  std::vector<WorkerId> workers;
  for (uint32_t n = 1; n <= count; ++n) workers.push_back({n});
  return workers;
}

std::vector<WorkerId> without(std::vector<WorkerId> workers, const std::vector<WorkerId>& lost) {
  std::erase_if(workers, [&](WorkerId worker) {
    return std::find(lost.begin(), lost.end(), worker) != lost.end();
  });
  return workers;
}

std::vector<std::vector<WorkerId>> losses_of(const std::vector<WorkerId>& workers) {
  std::vector<std::vector<WorkerId>> losses;
  for (size_t a = 0; a < workers.size() && workers.size() > 1; ++a) {
    losses.push_back({workers[a]});
    for (size_t b = a + 1; b < workers.size() && workers.size() > 2; ++b) {
      losses.push_back({workers[a], workers[b]});
    }
  }
  return losses;
}

JobSpec small_job(int64_t blocks, bool tied_head) {
  JobSpec job;
  job.model.layers = blocks;
  job.model.channels = 16;
  job.model.heads = 2;
  job.model.tied_head = tied_head;
  job.training.micro_batch_size = 4;
  job.training.global_batch_size = 16;
  SKEIN_CHECK(validate(job).ok()) << validate(job);
  return job;
}

std::vector<JobSpec> small_jobs(int64_t blocks) {
  std::vector<ParallelismSpec> layouts;
  for (int64_t degree = 0; degree <= 4; ++degree) {
    for (int64_t pipelines = 1; pipelines <= 3; ++pipelines) {
      ParallelismSpec& layout = layouts.emplace_back();
      layout.pipeline_parallel_degree = degree;
      layout.data_parallel_replicate_degree = pipelines;
      layout.pipeline_parallel_schedule = pipelines == 2 ? "ZBH1" : "1F1B";
    }
  }
  for (int64_t degree : {0, 2}) {
    ParallelismSpec& layout = layouts.emplace_back();
    layout.pipeline_parallel_degree = degree;
    layout.virtual_stages = 2;
    layout.pipeline_parallel_schedule = "Interleaved1F1B";
  }
  layouts.emplace_back().replicas = {1, 3};
  layouts.emplace_back().layout = {blocks - 1, 1};
  std::vector<JobSpec> jobs;
  for (const ParallelismSpec& layout : layouts) {
    for (bool tied_head : {false, true}) {
      jobs.push_back(small_job(blocks, tied_head));
      jobs.back().parallelism = layout;
    }
  }
  return jobs;
}

bool uses_only(const Plan& plan, const std::vector<WorkerId>& workers) {
  for (const StagePlan& stage : plan.stages) {
    for (const ReplicaPlan& replica : stage.replicas) {
      if (std::find(workers.begin(), workers.end(), replica.worker) == workers.end()) return false;
    }
  }
  return true;
}

bool holds(const Plan& plan, WorkerId worker, int64_t layer) {
  for (const StagePlan& stage : plan.stages) {
    if (!stage.layers.contains(layer)) continue;
    for (const ReplicaPlan& replica : stage.replicas) {
      if (replica.worker == worker) return true;
    }
  }
  return false;
}

int64_t moved_elements(const Plan& plan, const Plan& current, const ModelSpec& model) {
  int64_t elements = 0;
  for (const StagePlan& stage : plan.stages) {
    for (const ReplicaPlan& replica : stage.replicas) {
      for (int64_t layer = stage.layers.begin; layer < stage.layers.end; ++layer) {
        if (holds(current, replica.worker, layer)) continue;
        for (const ParameterSpec& parameter : layer_parameters(model, layer, stage.layers)) {
          elements += element_count(parameter);
        }
      }
    }
  }
  return elements;
}

}  // namespace skein::plans
