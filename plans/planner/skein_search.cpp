#include "plans/planner/skein_search.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/planner/device_orders.hpp"
#include "plans/planner/order_partition.hpp"
#include "plans/planner/stage_groups.hpp"

namespace skein::plans {
namespace {

/// About 10 ns each: 0.15 s, and 0.5 ms more per device.
constexpr int64_t kWork = 14'000'000;
constexpr int64_t kWorkPerDevice = 50'000;
/// Shares of the budget after which partitions and each search end.
constexpr double kPartitionShare = 0.4;
/// Numbers of rows that partitions are made for; local search tries the others.
constexpr size_t kRowChoicesMax = 6;
constexpr size_t kRowChoicesMaxLarge = 4;  // With more devices than this:
constexpr size_t kLargeDevices = 32;
/// Local searches, the best candidate of each number of stages first.
constexpr size_t kSearches = 8;
/// Variants with virtual stages are made of so many candidates.
constexpr size_t kVirtualBases = 4;

bool is_cheap(ScheduleKind kind) {
  return kind == ScheduleKind::k1F1B || kind == ScheduleKind::k1F1BPB;
}

/// Spread over all that may be chosen, the ends among them.
std::vector<int64_t> row_choices(const PlanRequest& request) {
  const std::vector<int64_t>& all = request.microbatch_rows;
  const bool is_large = request.cluster.devices.size() > kLargeDevices;
  const size_t choices = is_large ? kRowChoicesMaxLarge : kRowChoicesMax;
  if (all.size() <= choices) return all;
  std::vector<int64_t> some;
  for (size_t i = 0; i < choices; ++i) {
    some.push_back(all[i * (all.size() - 1) / (choices - 1)]);
  }
  return some;
}

/// 1 .. 16, then about a third more each time.
std::vector<int64_t> stage_counts(int64_t stages_max) {
  std::vector<int64_t> counts;
  for (int64_t stages = 1; stages <= stages_max; stages += stages < 16 ? 1 : stages / 3) {
    counts.push_back(stages);
  }
  if (counts.back() != stages_max) counts.push_back(stages_max);
  return counts;
}

struct Question {
  int64_t rows = 0;
  bool recompute = false;
};

std::vector<Question> questions(const PlanRequest& request) {
  std::vector<Question> questions;
  for (const bool recompute : {false, true}) {
    if (recompute && !request.may_recompute) continue;
    for (const int64_t rows : row_choices(request)) questions.push_back({rows, recompute});
  }
  return questions;
}

void add_order(CandidateTiming& timing, CandidatePool& pool, const std::vector<int32_t>& order,
               const Question& question, const std::string& origin) {
  CostModel& model = timing.model();
  for (const bool one_stash : {false, true}) {
    if (one_stash && !is_memory_limited(model.cluster())) continue;
    const PartitionQuestion partition{question.rows, question.recompute, one_stash};
    for (CandidatePlan& candidate : partitions_of_order(model, order, partition)) {
      pool.add_with_schedules(std::move(candidate), origin);
    }
  }
  const int64_t stages_max =
      std::min(model.sums().layer_count(), static_cast<int64_t>(order.size()));
  for (const int64_t stages : stage_counts(stages_max)) {
    for (CandidatePlan& candidate : grouped_stages(model, order, question.rows, stages)) {
      candidate.recompute = question.recompute;
      pool.add_with_schedules(std::move(candidate), origin);
    }
  }
}

/// The best candidates, those with a number of stages of their own first.
std::vector<Candidate> starts(const CandidatePool& pool) {
  std::vector<Candidate> first;
  std::vector<Candidate> others;
  std::set<std::pair<int32_t, int64_t>> seen;
  for (const Candidate& candidate : pool.candidates()) {
    const bool is_new =
        seen.emplace(candidate.candidate.stage_count(), candidate.candidate.microbatch_rows).second;
    (is_new ? first : others).push_back(candidate);
  }
  first.insert(first.end(), others.begin(), others.end());
  if (first.size() > kSearches) first.resize(kSearches);
  return first;
}

}  // namespace

int64_t search_budget(const PlanRequest& request) {
  return kWork + kWorkPerDevice * static_cast<int64_t>(request.cluster.devices.size());
}

void CandidatePool::add(const CandidatePlan& candidate, const std::string& origin) {
  if (candidate.cuts.empty() || !seen_.insert(candidate).second) return;
  const double worst_us = candidates_.size() < capacity_ ? std::numeric_limits<double>::infinity()
                                                         : candidates_.back().step_us;
  const absl::StatusOr<double> step_us = timing_.step_us_below(candidate, worst_us);
  if (!step_us.ok() || *step_us >= worst_us) return;
  const auto at =
      std::upper_bound(candidates_.begin(), candidates_.end(), *step_us,
                       [](double value, const Candidate& each) { return value < each.step_us; });
  candidates_.insert(at, {candidate, *step_us, origin});
  if (candidates_.size() > capacity_) candidates_.pop_back();
}

void CandidatePool::add_with_schedules(CandidatePlan candidate, const std::string& origin) {
  const std::vector<ScheduleKind>& allowed = timing_.model().request().schedules;
  const bool any_cheap = std::any_of(allowed.begin(), allowed.end(), is_cheap);
  for (const ScheduleKind kind : allowed) {
    if (any_cheap && !is_cheap(kind)) continue;
    candidate.schedule = kind;
    add(candidate, origin);
  }
}

void add_partitions(CandidateTiming& timing, CandidatePool& pool) {
  const PlanRequest& request = timing.model().request();
  const auto limit =
      static_cast<int64_t>(kPartitionShare * static_cast<double>(search_budget(request)));
  for (const std::vector<int32_t>& order : device_orders(timing.model())) {
    for (const Question& question : questions(request)) {
      if (timing.work() > limit) return;
      add_order(timing, pool, order, question, "a partition of an order of the devices");
    }
  }
}

void add_virtual_stages(CandidateTiming& timing, CandidatePool& pool) {
  const std::vector<Candidate> all = pool.candidates();
  size_t bases = 0;
  for (const Candidate& base : all) {
    if (base.candidate.ranks.size() < 2 ||
        base.candidate.ranks.size() != base.candidate.rank_of_stage.size()) {
      continue;
    }
    if (++bases > kVirtualBases) break;
    for (const ScheduleKind kind : timing.model().request().schedules) {
      const bool loops = kind == ScheduleKind::kInterleaved1F1B;
      if (!loops && kind != ScheduleKind::kGreedy) continue;
      for (const int32_t per_rank : {2, 3, 4}) {
        for (const bool folds : {false, true}) {
          if (folds && (loops || per_rank != 2)) continue;
          CandidatePlan candidate =
              with_virtual_stages(timing.model(), base.candidate, per_rank, folds);
          candidate.schedule = kind;
          pool.add(candidate, absl::StrCat(base.origin, ", ", per_rank, " stages per rank"));
        }
      }
    }
  }
}

void improve_candidates(CandidateTiming& timing, CandidatePool& pool) {
  const int64_t budget = search_budget(timing.model().request());
  const CandidateMeasure measure = [&](const CandidatePlan& candidate, double cutoff_us) {
    const absl::StatusOr<double> step_us = timing.step_us_below(candidate, cutoff_us);
    return step_us.ok() ? *step_us : std::numeric_limits<double>::infinity();
  };
  const std::vector<Candidate> chosen = starts(pool);
  for (size_t i = 0; i < chosen.size(); ++i) {
    // What is left is shared by the searches that are left.
    const int64_t own = (budget - timing.work()) / static_cast<int64_t>(chosen.size() - i);
    const int64_t limit = timing.work() + own;
    const RatedCandidate better =
        local_search(timing.model(), {chosen[i].candidate, chosen[i].step_us}, measure,
                     [&] { return timing.work() < limit; });
    pool.add(better.candidate, absl::StrCat(chosen[i].origin, ", improved"));
  }
}

}  // namespace skein::plans
