#include "plans/planner/plan_draft.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::plans {
namespace {

std::vector<ReplicaPlan> replicas_of(const DraftRank& rank) {
  std::vector<ReplicaPlan> replicas;
  int64_t row = 0;
  for (size_t r = 0; r < rank.devices.size(); ++r) {
    const WorkerId worker{static_cast<uint32_t>(rank.devices[r]) + 1};
    replicas.push_back({ReplicaId{}, worker, {row, rank.rows[r]}});
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

PlanDraft straight_draft(std::vector<int64_t> cuts, std::vector<std::vector<int32_t>> devices,
                         int64_t microbatch_rows) {
  PlanDraft draft;
  draft.cuts = std::move(cuts);
  draft.microbatch_rows = microbatch_rows;
  for (std::vector<int32_t>& own : devices) {
    draft.rank_of_stage.push_back(static_cast<int32_t>(draft.ranks.size()));
    const auto count = static_cast<int64_t>(own.size());
    draft.ranks.push_back({std::move(own), even_row_counts(microbatch_rows, count)});
  }
  return draft;
}

Plan listless_plan(const PlanDraft& draft, const PlanRequest& request) {
  Plan plan;
  plan.schedule = draft.schedule;
  plan.generation = request.generation;
  plan.microbatch_rows = draft.microbatch_rows;
  plan.microbatch_count = request.global_batch_rows / draft.microbatch_rows;
  plan.recompute = draft.recompute;
  for (int32_t s = 0; s < draft.stage_count(); ++s) {
    plan.stages.push_back(
        {draft.layers(s), draft.rank_of_stage[static_cast<size_t>(s)], replicas_of(draft.rank(s))});
  }
  number_replicas(plan.stages);
  plan.groups = reduction_groups(plan.stages, request.profile.tied_bytes > 0);
  return plan;
}

PlanDraft draft_of(const Plan& plan) {
  PlanDraft draft;
  draft.schedule = plan.schedule;
  draft.microbatch_rows = plan.microbatch_rows;
  draft.recompute = plan.recompute;
  draft.ranks.resize(plan.actions.size());
  for (const StagePlan& stage : plan.stages) {
    draft.cuts.push_back(stage.layers.begin);
    draft.rank_of_stage.push_back(stage.rank);
    DraftRank& rank = draft.ranks[static_cast<size_t>(stage.rank)];
    rank = {};
    for (const ReplicaPlan& replica : stage.replicas) {
      rank.devices.push_back(static_cast<int32_t>(replica.worker.value) - 1);
      rank.rows.push_back(replica.rows.count);
    }
  }
  draft.cuts.push_back(plan.stages.back().layers.end);
  return draft;
}

std::string draft_text(const PlanDraft& draft, int64_t global_batch_rows) {
  std::string text =
      absl::StrCat(std::string(to_text(draft.schedule)),
                   " M=", global_batch_rows / draft.microbatch_rows, " B=", draft.microbatch_rows);
  if (draft.recompute) absl::StrAppend(&text, " recompute");
  for (int32_t s = 0; s < draft.stage_count(); ++s) {
    absl::StrAppend(&text, s == 0 ? ": " : " | ", draft.layers(s).begin, "-",
                    draft.layers(s).end - 1, " x", draft.rank(s).devices.size());
  }
  return text;
}

}  // namespace skein::plans
