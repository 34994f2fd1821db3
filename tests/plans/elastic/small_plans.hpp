#pragma once

#include <cstdint>
#include <vector>

#include "plans/job/job_spec.hpp"
#include "plans/plan/plan.hpp"

namespace skein::plans {

std::vector<WorkerId> ids(const std::vector<uint32_t>& values);
/// Workers 1 to `count`.
std::vector<WorkerId> first_ids(uint32_t count);
std::vector<WorkerId> without(std::vector<WorkerId> workers, const std::vector<WorkerId>& lost);
/// All ways to lose one or two of the workers and keep at least one.
std::vector<std::vector<WorkerId>> losses_of(const std::vector<WorkerId>& workers);

/// 4 micro-batches of 4 rows, validated.
JobSpec small_job(int64_t blocks, bool tied_head);
/// Small jobs of all kinds of layouts: even and written out, with and without replicas, open and
/// fixed numbers of ranks, virtual stages. Not each can be planned on each number of workers.
std::vector<JobSpec> small_jobs(int64_t blocks);

/// The plan has only these workers.
bool uses_only(const Plan& plan, const std::vector<WorkerId>& workers);
/// True if `worker` computes `layer`.
bool holds(const Plan& plan, WorkerId worker, int64_t layer);
/// Elements of the parameters that workers of `plan` hold and did not hold in `current`.
int64_t moved_elements(const Plan& plan, const Plan& current, const ModelSpec& model);

}  // namespace skein::plans
