#include "plans/sync/progressive_groups.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

std::vector<uint32_t> slowest_first(std::span<const double> step_us) {
  std::vector<uint32_t> pipelines;
  for (uint32_t pipeline = 0; pipeline < step_us.size(); ++pipeline) {
    if (step_us[pipeline] > 0) pipelines.push_back(pipeline);
  }
  std::stable_sort(pipelines.begin(), pipelines.end(),
                   [&](uint32_t a, uint32_t b) { return step_us[a] > step_us[b]; });
  return pipelines;
}

int32_t group_count(const PipelineGroups& groups) {
  return groups.empty() ? 0 : *std::max_element(groups.begin(), groups.end()) + 1;
}

}  // namespace

double predicted_slowdown(std::span<const double> step_us, const PipelineGroups& groups) {
  SKEIN_CHECK(step_us.size() == groups.size()) << step_us.size() << " " << groups.size();
  struct Group {
    double size = 0, step_us_max = 0;
  };
  std::map<int32_t, Group> sums;
  std::vector<double> sorted;
  for (size_t pipeline = 0; pipeline < groups.size(); ++pipeline) {
    if (groups[pipeline] < 0) continue;
    Group& group = sums[groups[pipeline]];
    group.size += 1;
    group.step_us_max = std::max(group.step_us_max, step_us[pipeline]);
    sorted.push_back(step_us[pipeline]);
  }
  if (sorted.empty()) return 1;
  std::sort(sorted.begin(), sorted.end());
  const double healthy_us = sorted[(sorted.size() - 1) / 2];
  double rate = 0;
  for (const auto& [index, group] : sums) rate += group.size / group.step_us_max;
  return static_cast<double>(sorted.size()) / healthy_us / rate;
}

PipelineGroups group_by_speed(std::span<const double> step_us, int32_t group_count) {
  const std::vector<uint32_t> order = slowest_first(step_us);
  SKEIN_CHECK(group_count >= 1 && static_cast<size_t>(group_count) <= order.size()) << group_count;
  PipelineGroups groups(step_us.size(), -1);
  for (size_t place = 0; place < order.size(); ++place) {
    // The groups [g N / G, (g + 1) N / G): none is larger than one before it by more than one, and
    // the first has N / G rounded down.
    groups[order[place]] = static_cast<int32_t>(((place + 1) * group_count - 1) / order.size());
  }
  return groups;
}

PipelineGroups fewest_groups(std::span<const double> step_us, double slowdown_max,
                             int32_t count_max) {
  const auto pipelines = static_cast<int32_t>(slowest_first(step_us).size());
  PipelineGroups best;
  double best_slowdown = 0;
  for (int32_t count = 1; count <= std::min(pipelines, count_max); ++count) {
    PipelineGroups groups = group_by_speed(step_us, count);
    const double slowdown = predicted_slowdown(step_us, groups);
    if (slowdown <= slowdown_max) return groups;
    if (best.empty() || slowdown < best_slowdown) {
      best = std::move(groups);
      best_slowdown = slowdown;
    }
  }
  return best;
}

void AccuracyBound::on_loss(double loss, int32_t group_count) {
  if (rise_max_ <= 0) return;
  const bool is_lowest = std::isfinite(loss) && (!lowest_ || loss < *lowest_);
  const bool has_risen = !std::isfinite(loss) || (lowest_ && loss > *lowest_ * (1 + rise_max_));
  if (is_lowest) {
    lowest_ = loss;
    count_max_ = count_max_ > kAnyCount / 2 ? kAnyCount : 2 * count_max_;
  } else if (has_risen && group_count <= count_max_) {  // Else fewer groups are on their way.
    count_max_ = std::max(1, group_count / 2);
  }
}

void RegroupTrigger::on_loss(double loss, const PipelineGroups& now) {
  bound_.on_loss(loss, group_count(now));
}

std::optional<PipelineGroups> RegroupTrigger::better(std::span<const double> step_us,
                                                     const PipelineGroups& now) const {
  const double slowdown = predicted_slowdown(step_us, now);
  const int32_t count_max = bound_.count_max();
  if (options_.group_count > 0) {
    const auto pipelines = static_cast<int32_t>(slowest_first(step_us).size());
    PipelineGroups moved =
        group_by_speed(step_us, std::min({options_.group_count, pipelines, count_max}));
    const bool has_other_count = group_count(now) != group_count(moved);
    if (has_other_count || predicted_slowdown(step_us, moved) * options_.margin <= slowdown) {
      return moved;
    }
    return std::nullopt;
  }
  if (group_count(now) > count_max) {
    return fewest_groups(step_us, options_.slowdown_max, count_max);
  }
  if (slowdown > options_.slowdown_max * options_.margin) {
    PipelineGroups more = fewest_groups(step_us, options_.slowdown_max, count_max);
    if (predicted_slowdown(step_us, more) * options_.margin <= slowdown) return more;
    return std::nullopt;
  }
  PipelineGroups fewer = fewest_groups(step_us, options_.slowdown_max / options_.margin, count_max);
  if (group_count(fewer) >= group_count(now)) return std::nullopt;
  if (predicted_slowdown(step_us, fewer) * options_.margin > options_.slowdown_max) {
    return std::nullopt;
  }
  return fewer;
}

std::optional<PipelineGroups> RegroupTrigger::observe(std::span<const double> step_us,
                                                      const PipelineGroups& now) {
  std::optional<PipelineGroups> groups = better(step_us, now);
  if (groups && group_count(now) > bound_.count_max()) {
    wishes_ = 0;
    return groups;
  }
  wishes_ = groups ? wishes_ + 1 : 0;
  if (wishes_ < options_.patience) return std::nullopt;
  wishes_ = 0;
  return groups;
}

}  // namespace skein::plans
