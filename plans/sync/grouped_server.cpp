#include "plans/sync/grouped_server.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {

GroupedServerPolicy::GroupedServerPolicy(const PipelineLayout& layout, const PipelineGroups& groups,
                                         bool has_group_servers, uint64_t first_step)
    : ServerPolicy(layout), has_group_servers_(has_group_servers) {
  open(groups);
  for (uint32_t pipeline = 0; pipeline < layout.pipelines; ++pipeline) {
    SKEIN_CHECK(groups[pipeline] >= 0) << "pipeline replica " << pipeline << " has no group";
    table_.change({pipeline, true, first_step});
    barriers_[group_of_[pipeline]].enter(pipeline, 0);
  }
}

void GroupedServerPolicy::open(const PipelineGroups& groups) {
  SKEIN_CHECK(groups.size() == table_.layout().pipelines) << groups.size();
  group_of_ = last_group_of_ = groups;
  group_count_ = *std::max_element(groups.begin(), groups.end()) + 1;
  SKEIN_CHECK(group_count_ > 0);
  for (int32_t group = 0; group < group_count_; ++group) {
    barriers_.emplace_back(table_.layout().stages, has_group_servers_ ? group + 1 : 0);
  }
}

GroupDecisions GroupedServerPolicy::on_membership(const MembershipChange& change,
                                                  uint64_t /*now_us*/) {
  GroupDecisions decisions;
  if (!table_.change(change)) return decisions;
  if (change.joins) {
    join(change.pipeline);
  } else {
    for (StepBarrier& barrier : barriers_) barrier.leave(change.pipeline);
    group_of_[change.pipeline] = -1;
  }
  advance_all(decisions);
  return decisions;
}

void GroupedServerPolicy::join(uint32_t pipeline) {
  const auto open = barriers_.end() - group_count_;
  auto group = std::min_element(open, barriers_.end(), [](const auto& a, const auto& b) {
    return a.pipeline_count() < b.pipeline_count();
  });
  if (last_group_of_[pipeline] >= 0) group = open + last_group_of_[pipeline];
  group->enter(pipeline, 0);
  group_of_[pipeline] = last_group_of_[pipeline] = static_cast<int32_t>(group - open);
  versions_.join(pipeline);
}

bool GroupedServerPolicy::is_regrouping() const { return barriers_.front().is_closed(); }

PipelineGroups GroupedServerPolicy::groups() const { return group_of_; }

GroupDecisions GroupedServerPolicy::regroup(const PipelineGroups& groups) {
  GroupDecisions decisions;
  if (is_regrouping()) return decisions;
  std::vector<std::pair<uint32_t, uint64_t>> entering;
  for (StepBarrier& barrier : barriers_) {
    const auto steps = barrier.close();
    entering.insert(entering.end(), steps.begin(), steps.end());
  }
  open(groups);
  const size_t first = barriers_.size() - group_count_;
  for (uint32_t pipeline = 0; pipeline < groups.size(); ++pipeline) {
    if (!table_.is_live(pipeline)) group_of_[pipeline] = last_group_of_[pipeline] = -1;
  }
  for (const auto& [pipeline, steps] : entering) {
    SKEIN_CHECK(group_of_[pipeline] >= 0) << "pipeline replica " << pipeline << " has no group";
    barriers_[first + group_of_[pipeline]].enter(pipeline, steps);
  }
  advance_all(decisions);
  return decisions;
}

void GroupedServerPolicy::advance_all(GroupDecisions& decisions) {
  for (uint32_t stage = 0; stage < table_.layout().stages; ++stage) advance(stage, decisions);
}

void GroupedServerPolicy::advance(uint32_t stage, GroupDecisions& decisions) {
  for (StepBarrier& barrier : barriers_) {
    const auto pipelines = barrier.begin_round(stage, table_);
    if (!pipelines) continue;
    GroupStart start = table_.start(stage, *pipelines, Average::kServer, 1.0 / table_.live_count());
    start.server = pipelines->size() > 1 ? barrier.server() : 0;
    versions_.push(start, 1);
    decisions.starts.push_back(std::move(start));
  }
  std::erase_if(barriers_, [](const StepBarrier& barrier) { return barrier.is_over(); });
}

}  // namespace skein::plans
