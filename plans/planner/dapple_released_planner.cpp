#include "plans/planner/dapple_released_planner.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"
#include "plans/planner/equal_devices.hpp"
#include "plans/planner/straight_planner.hpp"
#include "plans/planner/two_stage_planner.hpp"

namespace skein::plans {
namespace {

/// Steps of the recurrence, below a microsecond each.
constexpr int64_t kBudget = 4'000'000;

/// The first j layers cut into stages so that the slowest block is as fast as possible.
struct State {
  double block_us = std::numeric_limits<double>::infinity();
  std::vector<int64_t> cuts;
  std::vector<std::vector<int32_t>> devices;
};
using Memo = std::map<Occupancy, State>;

class SlowestBlock {
 public:
  SlowestBlock(EqualDevices& ground, const EqualDevices::Attempt& attempt)
      : ground_(ground), attempt_(attempt), memo_(static_cast<size_t>(ground.layer_count()) + 1) {}

  /// Every way to end that the recurrence found: the pipelines of all numbers of devices.
  absl::StatusOr<std::vector<State>> run() {
    const int64_t L = ground_.layer_count();
    const int64_t P = ground_.device_count();
    absl::Status beyond = absl::InvalidArgumentError(absl::StrCat(
        "the slowest-block recurrence over ", L, " layers on ", P,
        " devices is beyond its budget of ", kBudget, " steps; use the planner \"skein\""));
    // With several hosts it reaches each pair of layers and devices in several ways.
    if (L * L / 2 * P * P / 2 > kBudget / 2) return beyond;
    memo_[0][Occupancy(ground_.by_host().size(), 0)] = {0, {0}, {}};
    for (int64_t j = 0; j < L; ++j) {
      for (const auto& [used, state] : memo_[static_cast<size_t>(j)]) {
        extend(state, used);
        if (steps_ > kBudget) return beyond;
      }
    }
    std::vector<State> ends;
    for (const auto& [used, state] : memo_.back()) ends.push_back(state);
    return ends;
  }

 private:
  void extend(const State& state, const Occupancy& used) {
    const auto free = static_cast<int32_t>(free_devices(ground_.by_host(), used).size());
    for (int32_t count = 1; count <= free; ++count) {
      for (const PlacementPolicy policy : kPlacementPolicies) {
        Occupancy after = used;
        const std::vector<int32_t> devices = place_devices(ground_.by_host(), policy, count, after);
        extend_on(state, after, devices);
      }
    }
  }

  void extend_on(const State& state, const Occupancy& after, const std::vector<int32_t>& devices) {
    const int64_t begin = state.cuts.back();
    const auto count = static_cast<int64_t>(devices.size());
    double block_us = state.block_us;
    if (!state.devices.empty()) block_us = std::max(block_us, transfer_us(state, devices));
    for (int64_t end = begin + 1; end <= ground_.layer_count(); ++end) {
      ++steps_;
      const double own_us = ground_.model()
                                .even_times({begin, end}, attempt_.rows, count, ground_.speed())
                                .total_us();
      const double slowest_us = std::max(block_us, own_us);
      State& next = memo_[static_cast<size_t>(end)][after];
      if (slowest_us >= next.block_us) continue;
      next = state;
      next.block_us = slowest_us;
      next.cuts.push_back(end);
      next.devices.push_back(devices);
    }
  }

  double transfer_us(const State& state, const std::vector<int32_t>& to) {
    auto rank = [&](const std::vector<int32_t>& devices) {
      return CandidateRank{devices,
                           even_row_counts(attempt_.rows, static_cast<int64_t>(devices.size()))};
    };
    return ground_.model()
        .cut_cost(state.cuts.back(), rank(state.devices.back()), rank(to))
        .total_us();
  }

  EqualDevices& ground_;
  EqualDevices::Attempt attempt_;
  std::vector<Memo> memo_;  // [L + 1]
  int64_t steps_ = 0;
};

/// Copies of a pipeline, each on devices of its own, as replicas of its stages.
std::vector<std::vector<int32_t>> copies_of(const State& state, int64_t copies,
                                            const std::vector<int32_t>& all) {
  std::vector<std::vector<int32_t>> devices(state.devices.size());
  size_t next = 0;
  for (int64_t copy = 0; copy < copies; ++copy) {
    for (size_t s = 0; s < devices.size(); ++s) {
      for (size_t i = 0; i < state.devices[s].size(); ++i) devices[s].push_back(all[next++]);
    }
  }
  return devices;
}

/// The released length formula.
double released_length_us(EqualDevices& ground, const CandidatePlan& candidate,
                          const EqualDevices::Attempt& attempt) {
  const std::vector<DappleStage> stages = ground.dapple_stages(candidate);
  double block_us = 0;
  double total_us = 0;
  for (const DappleStage& stage : stages) {
    const double both_us = stage.forward_us + stage.backward_us;
    block_us = std::max(block_us, both_us);
    total_us += both_us;  // Network stages are the sum of the transfers.
  }
  double reduce_us = 0;
  for (size_t i = 0; i < stages.size(); i += 2) {
    reduce_us = std::max(reduce_us, stages[i].reduce_us - static_cast<double>(i / 2) * block_us);
  }
  const auto rounds = static_cast<double>(ground.microbatch_count(attempt) - 1);
  return block_us * rounds + total_us + reduce_us;
}

absl::StatusOr<std::optional<Found>> search(EqualDevices& ground,
                                            const EqualDevices::Attempt& attempt) {
  std::optional<Found> best;
  auto consider = [&](const CandidatePlan& candidate, const std::string& family) {
    for (const CandidateRank& rank : candidate.ranks) {
      if (static_cast<int64_t>(rank.devices.size()) > attempt.rows) return;
    }
    const double length_us = released_length_us(ground, candidate, attempt);
    if (best && length_us >= best->objective_us) return;
    if (!ground.is_possible(candidate, attempt, length_us)) return;
    best = Found{candidate, length_us,
                 absl::StrCat("shortest by the released formula: ", family, ", ",
                              candidate_text(candidate, ground.request().global_batch_rows))};
  };
  SKEIN_ASSIGN_OR_RETURN(const std::vector<State> ends, SlowestBlock(ground, attempt).run());
  const std::vector<int32_t> all = ground.devices();
  for (const State& state : ends) {
    int64_t devices = 0;
    for (const std::vector<int32_t>& own : state.devices) {
      devices += static_cast<int64_t>(own.size());
    }
    const int64_t copies = ground.device_count() / devices;
    consider(ground.candidate(state.cuts,
                              copies == 1 ? state.devices : copies_of(state, copies, all), attempt),
             absl::StrCat("slowest block with ", copies, " copies"));
  }
  consider(straight_candidate(ground, attempt), "straight");
  SKEIN_ASSIGN_OR_RETURN(const std::optional<Found> two,
                         best_two_stage(ground, attempt, [&](const CandidatePlan& candidate) {
                           return released_length_us(ground, candidate, attempt);
                         }));
  if (two) consider(two->candidate, "two stages");
  return best;
}

}  // namespace

absl::StatusOr<PlannedPipeline> plan_dapple_released(const PlanRequest& request) {
  return plan_with_equal_devices(request, search);
}

}  // namespace skein::plans
