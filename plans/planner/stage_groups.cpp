#include "plans/planner/stage_groups.hpp"

#include <algorithm>
#include <utility>

#include "plans/planner/device_orders.hpp"
#include "plans/planner/row_split.hpp"
#include "plans/planner/stage_cuts.hpp"

namespace skein::plans {
namespace {

/// Speed of a rank for a whole micro-batch.
double rank_speed(CostModel& model, const CandidateRank& rank, int64_t rows) {
  double slowest_us = 0;
  for (size_t r = 0; r < rank.devices.size(); ++r) {
    slowest_us =
        std::max(slowest_us, model.sums().model_us(rank.rows[r]) / model.speed(rank.devices[r]));
  }
  return slowest_us > 0 ? model.sums().model_us(rows) / slowest_us : 1.0;
}

/// Where runs of about the same speed in sum end. Each has a device at least.
std::vector<size_t> even_speed_ends(CostModel& model, const std::vector<int32_t>& order,
                                    size_t stages) {
  double all = 0;
  for (int32_t device : order) all += model.speed(device);
  std::vector<size_t> ends;
  double passed = 0;
  size_t at = 0;
  for (size_t s = 1; s <= stages; ++s) {
    const size_t first = at;
    const double due = all * static_cast<double>(s) / static_cast<double>(stages);
    const size_t left = stages - s;  // A device for each of them must remain.
    while (at < order.size() - left) {
      const double own = model.speed(order[at]);
      if (at > first && s < stages && passed + own / 2 > due) break;
      passed += own;
      ++at;
    }
    ends.push_back(at);
  }
  return ends;
}

CandidatePlan grouped(CostModel& model, const std::vector<int32_t>& order, int64_t rows,
                      const std::vector<size_t>& ends) {
  CandidatePlan candidate;
  candidate.microbatch_rows = rows;
  size_t begin = 0;
  for (size_t end : ends) {
    if (static_cast<int64_t>(end - begin) > rows) return {};
    candidate.rank_of_stage.push_back(static_cast<int32_t>(candidate.ranks.size()));
    candidate.ranks.push_back(rank_of(model,
                                      {order.begin() + static_cast<std::ptrdiff_t>(begin),
                                       order.begin() + static_cast<std::ptrdiff_t>(end)},
                                      rows));
    begin = end;
  }
  rebalance(model, candidate);
  return candidate;
}

}  // namespace

void rebalance(CostModel& model, CandidatePlan& candidate) {
  std::vector<double> of_rank;
  for (const CandidateRank& rank : candidate.ranks) {
    of_rank.push_back(rank_speed(model, rank, candidate.microbatch_rows));
  }
  std::vector<double> speeds;
  for (int32_t rank : candidate.rank_of_stage) speeds.push_back(of_rank[static_cast<size_t>(rank)]);
  candidate.cuts = balanced_cuts(model.sums(), candidate.microbatch_rows, speeds);
}

std::vector<CandidatePlan> grouped_stages(CostModel& model, const std::vector<int32_t>& order,
                                          int64_t rows, int64_t stages) {
  std::vector<CandidatePlan> candidates;
  const auto count = static_cast<size_t>(stages);
  const std::vector<size_t> by_speed = even_speed_ends(model, order, count);
  std::vector<size_t> by_number;
  for (size_t s = 1; s <= count; ++s) by_number.push_back(s * order.size() / count);
  std::vector<std::vector<size_t>> all{by_speed, by_number, by_speed, by_number};
  snap_to_hosts(model.cluster(), order, all[2]);
  snap_to_hosts(model.cluster(), order, all[3]);
  for (auto ends = all.begin(); ends != all.end(); ++ends) {
    if (std::find(all.begin(), ends, *ends) != ends) continue;
    candidates.push_back(grouped(model, order, rows, *ends));
  }
  std::erase_if(candidates, [](const CandidatePlan& candidate) { return candidate.cuts.empty(); });
  return candidates;
}

CandidatePlan with_virtual_stages(CostModel& model, const CandidatePlan& candidate,
                                  int32_t per_rank, bool folds) {
  CandidatePlan changed = candidate;
  const auto R = static_cast<int32_t>(candidate.ranks.size());
  if (int64_t{R} * per_rank > model.sums().layer_count()) return {};
  changed.rank_of_stage.clear();
  for (int32_t s = 0; s < R * per_rank; ++s) {
    const bool backwards = folds && s / R % 2 == 1;
    changed.rank_of_stage.push_back(backwards ? R - 1 - s % R : s % R);
  }
  rebalance(model, changed);
  return changed;
}

}  // namespace skein::plans
