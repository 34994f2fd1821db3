#include "plans/planner/local_search.hpp"

#include <utility>

#include "plans/planner/candidate_moves.hpp"

namespace skein::plans {
namespace {

/// Smaller gains are rounding noise, and chains of them would go on for ever.
constexpr double kGainMin = 1e-6;
/// More improvements in a row than any search has needed; bounds the loop.
constexpr int kImprovementsMax = 10'000;

}  // namespace

RatedCandidate local_search(CostModel& model, RatedCandidate start, const CandidateMeasure& measure,
                            const std::function<bool()>& may_go_on) {
  for (int i = 0; i < kImprovementsMax; ++i) {
    RatedCandidate better = start;
    const double cutoff_us = start.step_us * (1 - kGainMin);
    visit_neighbours(model, start.candidate, [&](const CandidatePlan& neighbour) {
      if (!may_go_on()) return false;
      const double step_us = measure(neighbour, cutoff_us);
      if (step_us >= cutoff_us) return true;
      better = {neighbour, step_us};
      return false;
    });
    if (better.step_us >= cutoff_us) break;
    start = std::move(better);
  }
  return start;
}

}  // namespace skein::plans
