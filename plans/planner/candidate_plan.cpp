#include "plans/planner/candidate_plan.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::plans {
namespace {

std::vector<ReplicaPlan> replicas_of(const CandidatePlan& candidate, int32_t stage) {
  const CandidateRank& rank = candidate.rank(stage);
  const int32_t number = candidate.rank_of_stage[static_cast<size_t>(stage)];
  std::vector<ReplicaPlan> replicas;
  int64_t row = 0;
  for (size_t r = 0; r < rank.devices.size(); ++r) {
    const WorkerId worker{static_cast<uint32_t>(rank.devices[r]) + 1};
    replicas.push_back({ReplicaId{}, worker, {row, rank.rows[r]}, number});
    row += rank.rows[r];
  }
  return replicas;
}

}  // namespace

std::vector<int64_t> even_row_counts(int64_t rows, int64_t count) {
  std::vector<int64_t> counts;
  for (int64_t r = 0; r < count; ++r) counts.push_back(even_rows(rows, r, count).count);
  return counts;
}

CandidatePlan straight_candidate_plan(std::vector<int64_t> cuts,
                                      std::vector<std::vector<int32_t>> devices,
                                      int64_t microbatch_rows) {
  CandidatePlan candidate;
  candidate.cuts = std::move(cuts);
  candidate.microbatch_rows = microbatch_rows;
  for (std::vector<int32_t>& own : devices) {
    candidate.rank_of_stage.push_back(static_cast<int32_t>(candidate.ranks.size()));
    const auto count = static_cast<int64_t>(own.size());
    candidate.ranks.push_back({std::move(own), even_row_counts(microbatch_rows, count)});
  }
  return candidate;
}

Plan listless_plan(const CandidatePlan& candidate, const PlanRequest& request) {
  Plan plan;
  plan.schedule = candidate.schedule;
  plan.generation = request.generation;
  plan.microbatch_rows = candidate.microbatch_rows;
  plan.microbatch_count = request.global_batch_rows / candidate.microbatch_rows;
  plan.recompute = candidate.recompute;
  for (int32_t s = 0; s < candidate.stage_count(); ++s) {
    plan.stages.push_back({candidate.layers(s), replicas_of(candidate, s)});
  }
  number_replicas(plan.stages);
  plan.groups = reduction_groups(plan.stages, request.profile.tied_bytes > 0);
  return plan;
}

CandidatePlan candidate_of(const Plan& plan) {
  CandidatePlan candidate;
  candidate.schedule = plan.schedule;
  candidate.microbatch_rows = plan.microbatch_rows;
  candidate.recompute = plan.recompute;
  candidate.ranks.resize(plan.actions.size());
  for (const StagePlan& stage : plan.stages) {
    candidate.cuts.push_back(stage.layers.begin);
    candidate.rank_of_stage.push_back(stage.rank());
    CandidateRank& rank = candidate.ranks[static_cast<size_t>(stage.rank())];
    rank = {};
    for (const ReplicaPlan& replica : stage.replicas) {
      rank.devices.push_back(static_cast<int32_t>(replica.worker.value) - 1);
      rank.rows.push_back(replica.rows.count);
    }
  }
  candidate.cuts.push_back(plan.stages.back().layers.end);
  return candidate;
}

std::string candidate_text(const CandidatePlan& candidate, int64_t global_batch_rows) {
  std::string text = absl::StrCat(std::string(to_text(candidate.schedule)),
                                  " M=", global_batch_rows / candidate.microbatch_rows,
                                  " B=", candidate.microbatch_rows);
  if (candidate.recompute) absl::StrAppend(&text, " recompute");
  for (int32_t s = 0; s < candidate.stage_count(); ++s) {
    absl::StrAppend(&text, s == 0 ? ": " : " | ", candidate.layers(s).begin, "-",
                    candidate.layers(s).end - 1, " x", candidate.rank(s).devices.size());
  }
  return text;
}

}  // namespace skein::plans
