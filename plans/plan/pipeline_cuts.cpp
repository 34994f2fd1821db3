#include "plans/plan/pipeline_cuts.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plans/base/status_macros.hpp"
#include "plans/plan/pipeline_plan.hpp"
#include "plans/plan/plan_ranks.hpp"
#include "plans/sync/policy_kind.hpp"

namespace skein::plans {
namespace {

absl::Status check_cuts(const std::vector<PipelineCuts>& pipelines, int64_t layer_count) {
  if (pipelines.empty()) return absl::InvalidArgumentError("there is no pipeline replica");
  for (size_t n = 0; n < pipelines.size(); ++n) {
    const PipelineCuts& each = pipelines[n];
    int64_t before = 0;
    bool ascends = each.workers.size() == each.cuts.size() + 1;
    for (int64_t cut : each.cuts) {
      ascends = ascends && cut > before;
      before = cut;
    }
    if (!ascends || before >= layer_count) {
      return absl::InvalidArgumentError(absl::StrCat(
          "pipeline replica ", n, " has ", each.cuts.size(), " cuts for ", each.workers.size(),
          " workers; they must ascend between layer 0 and ", layer_count));
    }
  }
  return absl::OkStatus();
}

/// Where layers lie on unlike workers of some pipeline replica.
std::vector<LayerRange> ranges_between_cuts(const std::vector<PipelineCuts>& pipelines,
                                            int64_t layer_count) {
  std::set<int64_t> ends = {layer_count};
  for (const PipelineCuts& each : pipelines) ends.insert(each.cuts.begin(), each.cuts.end());
  std::vector<LayerRange> ranges;
  int64_t begin = 0;
  for (int64_t end : ends) {
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

/// Each text once, in the order in which they come first: "2 times a, b".
std::string counted_text(const std::vector<std::string>& texts) {
  std::vector<std::pair<std::string, int>> counts;
  for (const std::string& text : texts) {
    const auto known = std::find_if(counts.begin(), counts.end(),
                                    [&](const auto& other) { return other.first == text; });
    if (known == counts.end()) {
      counts.emplace_back(text, 1);
    } else {
      ++known->second;
    }
  }
  return absl::StrJoin(counts, ", ", [](std::string* out, const auto& each) {
    if (each.second > 1) absl::StrAppend(out, each.second, " times ");
    out->append(each.first);
  });
}

}  // namespace

LayerRange layers_of(const PipelineCuts& pipeline, size_t i, int64_t layer_count) {
  return {i == 0 ? 0 : pipeline.cuts[i - 1],
          i == pipeline.cuts.size() ? layer_count : pipeline.cuts[i]};
}

absl::StatusOr<Plan> make_plan_of_cuts(const JobSpec& job,
                                       const std::vector<PipelineCuts>& pipelines,
                                       uint64_t generation) {
  const int64_t layers = layer_count(job.model);
  SKEIN_RETURN_IF_ERROR(check_cuts(pipelines, layers));
  SKEIN_ASSIGN_OR_RETURN(const ScheduleKind kind,
                         parse_schedule_kind(job.parallelism.pipeline_parallel_schedule));
  std::vector<RowRange> rows;
  for (const PipelineCuts& each : pipelines) {
    const int64_t count = each.rows > 0 ? each.rows : pipeline_rows(job);
    rows.push_back({rows.empty() ? 0 : rows.back().end(), count});
  }
  Plan plan;
  plan.mode = kLocalMode;
  plan.generation = generation;
  plan.microbatch_count = microbatch_count(job);
  plan.microbatch_rows = rows.back().end();
  plan.recompute = job.training.recompute;
  // Pipeline replicas of the same cuts follow the same lists.
  std::map<std::vector<int64_t>, int32_t> first_rank;
  int32_t ranks = 0;
  for (const PipelineCuts& each : pipelines) {
    if (first_rank.emplace(each.cuts, ranks).second)
      ranks += static_cast<int32_t>(each.workers.size());
  }
  for (const LayerRange& range : ranges_between_cuts(pipelines, layers)) {
    StagePlan& stage = plan.stages.emplace_back();
    stage.layers = range;
    for (size_t n = 0; n < pipelines.size(); ++n) {
      const PipelineCuts& each = pipelines[n];
      const auto place = std::upper_bound(each.cuts.begin(), each.cuts.end(), range.begin);
      const auto i = static_cast<size_t>(place - each.cuts.begin());
      stage.replicas.push_back({ReplicaId{}, each.workers[i], rows[n],
                                first_rank.at(each.cuts) + static_cast<int32_t>(i)});
    }
  }
  SKEIN_RETURN_IF_ERROR(check_tied_embedding(job, static_cast<int64_t>(plan.stages.size())));
  number_replicas(plan.stages);
  plan.groups = reduction_groups(plan.stages, job.model.tied_head);
  SKEIN_RETURN_IF_ERROR(set_schedule(plan, kind));
  SKEIN_RETURN_IF_ERROR(validate(plan, job.model));
  return plan;
}

std::string cuts_text(const Plan& plan) {
  std::vector<std::string> texts;
  for (const PipelineCuts& each : cuts_of(plan)) {
    std::vector<int64_t> layers;
    for (size_t i = 0; i < each.workers.size(); ++i) {
      layers.push_back(layers_of(each, i, plan.stages.back().layers.end).size());
    }
    texts.push_back(absl::StrJoin(layers, "+"));
  }
  return counted_text(texts);
}

std::string claims_text(const Plan& plan) {
  const std::vector<PipelineCuts> pipelines = cuts_of(plan);
  const bool is_sized = std::any_of(pipelines.begin(), pipelines.end(), [&](const auto& each) {
    return each.rows != pipelines.front().rows;
  });
  if (!is_sized) return "";
  std::vector<std::string> texts;
  for (const PipelineCuts& each : pipelines) {
    texts.push_back(absl::StrCat(each.rows * plan.microbatch_count));
  }
  return counted_text(texts);
}

std::vector<PipelineCuts> cuts_of(const Plan& plan) {
  std::vector<PipelineCuts> pipelines(plan.stages.front().replicas.size());
  for (const StagePlan& stage : plan.stages) {
    for (size_t n = 0; n < pipelines.size(); ++n) {
      const WorkerId worker = stage.replicas[n].worker;
      PipelineCuts& own = pipelines[n];
      own.rows = stage.replicas[n].rows.count;
      if (!own.workers.empty() && own.workers.back() == worker) continue;
      if (!own.workers.empty()) own.cuts.push_back(stage.layers.begin);
      own.workers.push_back(worker);
    }
  }
  return pipelines;
}

}  // namespace skein::plans
