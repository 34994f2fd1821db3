#include "plans/sync/grouped_server.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {

GroupedServerPolicy::GroupedServerPolicy(const ColumnLayout& layout, const ColumnGroups& groups,
                                         int32_t first_server, uint64_t first_step)
    : ServerPolicy(layout), first_server_(first_server) {
  open(groups);
  for (uint32_t column = 0; column < layout.columns; ++column) {
    SKEIN_CHECK(groups[column] >= 0) << "column " << column << " has no group";
    table_.change({column, true, first_step});
    barriers_[group_of_[column]].enter(column, 0);
  }
}

void GroupedServerPolicy::open(const ColumnGroups& groups) {
  SKEIN_CHECK(groups.size() == table_.layout().columns) << groups.size();
  group_of_ = groups;
  group_count_ = *std::max_element(groups.begin(), groups.end()) + 1;
  SKEIN_CHECK(group_count_ > 0);
  for (int32_t group = 0; group < group_count_; ++group) {
    barriers_.emplace_back(table_.layout().stages, first_server_ + group);
  }
}

GroupDecisions GroupedServerPolicy::on_membership(const MembershipChange& change,
                                                  uint64_t /*now_us*/) {
  GroupDecisions decisions;
  if (!table_.change(change)) return decisions;
  if (change.joins) {
    join(change.column);
  } else {
    for (StepBarrier& barrier : barriers_) barrier.leave(change.column);
    group_of_[change.column] = -1;
  }
  advance_all(decisions);
  return decisions;
}

void GroupedServerPolicy::join(uint32_t column) {
  const auto open = barriers_.end() - group_count_;
  const auto smallest = std::min_element(open, barriers_.end(), [](const auto& a, const auto& b) {
    return a.column_count() < b.column_count();
  });
  smallest->enter(column, 0);
  group_of_[column] = static_cast<int32_t>(smallest - open);
  versions_.join(column);
}

bool GroupedServerPolicy::is_regrouping() const { return barriers_.front().is_closed(); }

ColumnGroups GroupedServerPolicy::groups() const { return group_of_; }

GroupDecisions GroupedServerPolicy::regroup(const ColumnGroups& groups) {
  GroupDecisions decisions;
  if (is_regrouping()) return decisions;
  std::vector<std::pair<uint32_t, uint64_t>> entering;
  for (StepBarrier& barrier : barriers_) {
    const auto steps = barrier.close();
    entering.insert(entering.end(), steps.begin(), steps.end());
  }
  open(groups);
  const size_t first = barriers_.size() - group_count_;
  for (uint32_t column = 0; column < groups.size(); ++column) {
    if (!table_.is_live(column)) group_of_[column] = -1;
  }
  for (const auto& [column, steps] : entering) {
    SKEIN_CHECK(group_of_[column] >= 0) << "column " << column << " has no group";
    barriers_[first + group_of_[column]].enter(column, steps);
  }
  advance_all(decisions);
  return decisions;
}

void GroupedServerPolicy::advance_all(GroupDecisions& decisions) {
  for (uint32_t stage = 0; stage < table_.layout().stages; ++stage) advance(stage, decisions);
}

void GroupedServerPolicy::advance(uint32_t stage, GroupDecisions& decisions) {
  for (StepBarrier& barrier : barriers_) {
    const auto columns = barrier.begin_round(stage, table_);
    if (!columns) continue;
    GroupStart start =
        table_.start(stage, *columns, Combination::kServer, 1.0 / table_.live_count());
    start.server = barrier.server();
    versions_.push(start, 1);
    decisions.starts.push_back(std::move(start));
  }
  std::erase_if(barriers_, [](const StepBarrier& barrier) { return barrier.is_over(); });
}

}  // namespace skein::plans
