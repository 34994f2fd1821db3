#include "plans/sync/progressive_groups.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

std::vector<uint32_t> slowest_first(std::span<const double> step_us) {
  std::vector<uint32_t> columns;
  for (uint32_t column = 0; column < step_us.size(); ++column) {
    if (step_us[column] > 0) columns.push_back(column);
  }
  std::stable_sort(columns.begin(), columns.end(),
                   [&](uint32_t a, uint32_t b) { return step_us[a] > step_us[b]; });
  return columns;
}

int32_t group_count(const ColumnGroups& groups) {
  return groups.empty() ? 0 : *std::max_element(groups.begin(), groups.end()) + 1;
}

}  // namespace

double predicted_slowdown(std::span<const double> step_us, const ColumnGroups& groups) {
  SKEIN_CHECK(step_us.size() == groups.size()) << step_us.size() << " " << groups.size();
  struct Group {
    double size = 0, step_us_max = 0;
  };
  std::map<int32_t, Group> sums;
  std::vector<double> sorted;
  for (size_t column = 0; column < groups.size(); ++column) {
    if (groups[column] < 0) continue;
    Group& group = sums[groups[column]];
    group.size += 1;
    group.step_us_max = std::max(group.step_us_max, step_us[column]);
    sorted.push_back(step_us[column]);
  }
  if (sorted.empty()) return 1;
  std::sort(sorted.begin(), sorted.end());
  const double healthy_us = sorted[(sorted.size() - 1) / 2];
  double rate = 0;
  for (const auto& [index, group] : sums) rate += group.size / group.step_us_max;
  return static_cast<double>(sorted.size()) / healthy_us / rate;
}

ColumnGroups group_by_speed(std::span<const double> step_us, int32_t group_count) {
  const std::vector<uint32_t> order = slowest_first(step_us);
  SKEIN_CHECK(group_count >= 1 && static_cast<size_t>(group_count) <= order.size()) << group_count;
  ColumnGroups groups(step_us.size(), -1);
  for (size_t place = 0; place < order.size(); ++place) {
    // The groups [g N / G, (g + 1) N / G): none is larger than one before it by more than one, and
    // the first has N / G rounded down.
    groups[order[place]] = static_cast<int32_t>(((place + 1) * group_count - 1) / order.size());
  }
  return groups;
}

ColumnGroups fewest_groups(std::span<const double> step_us, double slowdown_max) {
  const auto columns = static_cast<int32_t>(slowest_first(step_us).size());
  ColumnGroups best;
  double best_slowdown = 0;
  for (int32_t count = 1; count <= columns; ++count) {
    ColumnGroups groups = group_by_speed(step_us, count);
    const double slowdown = predicted_slowdown(step_us, groups);
    if (slowdown <= slowdown_max) return groups;
    if (best.empty() || slowdown < best_slowdown) {
      best = std::move(groups);
      best_slowdown = slowdown;
    }
  }
  return best;
}

std::optional<ColumnGroups> RegroupTrigger::better(std::span<const double> step_us,
                                                   const ColumnGroups& now) const {
  const double slowdown = predicted_slowdown(step_us, now);
  if (slowdown > options_.slowdown_max * options_.margin) {
    ColumnGroups more = fewest_groups(step_us, options_.slowdown_max);
    if (predicted_slowdown(step_us, more) * options_.margin <= slowdown) return more;
    return std::nullopt;
  }
  ColumnGroups fewer = fewest_groups(step_us, options_.slowdown_max / options_.margin);
  if (group_count(fewer) >= group_count(now)) return std::nullopt;
  if (predicted_slowdown(step_us, fewer) * options_.margin > options_.slowdown_max) {
    return std::nullopt;
  }
  return fewer;
}

std::optional<ColumnGroups> RegroupTrigger::observe(std::span<const double> step_us,
                                                    const ColumnGroups& now) {
  std::optional<ColumnGroups> groups = better(step_us, now);
  wishes_ = groups ? wishes_ + 1 : 0;
  if (wishes_ < options_.patience) return std::nullopt;
  wishes_ = 0;
  return groups;
}

}  // namespace skein::plans
