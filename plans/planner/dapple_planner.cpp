#include "plans/planner/dapple_planner.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"
#include "plans/planner/equal_devices.hpp"

namespace skein::plans {
namespace {

/// Evaluations of the objective, below a microsecond each.
constexpr int64_t kBudget = 1'500'000;

/// "Comparable": the longest transfer both ways, as a share of the longest stage, from which PB is
/// taken. Origin: the paper's table of PB against PA, which gains from there on (BERT-48 at .06
/// nothing, VGG-19 at .16 a tenth).
constexpr double kComparableShare = 0.1;

absl::Status beyond_budget(const EqualDevices& ground, int64_t layers) {
  return absl::InvalidArgumentError(absl::StrCat(
      "DAPPLE's search over ", layers, " layers on ", ground.device_count(),
      " devices is beyond its budget of ", kBudget, " evaluations; use the planner \"skein\""));
}

/// The first j layers cut into stages; the rest of the model waits.
struct State {
  double length_us = std::numeric_limits<double>::infinity();  // With the rest as one stage.
  std::vector<int64_t> cuts;                  // The ends of the stages so far, j last.
  std::vector<std::vector<int32_t>> devices;  // The devices of the stages so far.
  std::vector<DappleStage> stages;            // Network stages between.
  bool has_rows = true;                       // Each replica so far has some.
};
using Memo = std::map<Occupancy, State>;

class Search {
 public:
  Search(EqualDevices& ground, const EqualDevices::Attempt& attempt)
      : ground_(ground), attempt_(attempt), memo_(static_cast<size_t>(ground.layer_count())) {}

  absl::StatusOr<std::optional<Found>> run() {
    const int64_t L = ground_.layer_count();
    const int64_t P = ground_.device_count();
    if (L * L / 2 * P * P / 2 > kBudget) return beyond_budget(ground_, L);
    State& start = memo_[0][Occupancy(ground_.by_host().size(), 0)];
    start.cuts = {0};
    start.length_us = 0;
    consider({0, L}, {ground_.devices()}, whole_length_us());
    for (int64_t j = 0; j < L; ++j) {
      for (const auto& [used, state] : memo_[static_cast<size_t>(j)]) {
        extend(state, used);
        if (evaluations_ > kBudget) return beyond_budget(ground_, L);
      }
    }
    if (!best_) return best_;
    choose_policy(best_->candidate);
    return best_;
  }

 private:
  double whole_length_us() {
    const std::vector<int32_t> all = ground_.devices();
    const DappleStage whole = ground_.dapple_stage({0, ground_.layer_count()},
                                                   ground_.device_count(), ring(all), attempt_);
    return dapple_length({&whole, 1}, ground_.microbatch_count(attempt_)).total_us();
  }

  /// A new stage in front of a last one, both with the fewest stashes they can do with.
  bool have_room(const LayerRange& layers, const std::vector<int32_t>& devices,
                 const std::vector<int32_t>& rest) {
    const int64_t stashes = std::min<int64_t>(2, ground_.microbatch_count(attempt_));
    return ground_.has_room(layers, devices, attempt_, stashes) &&
           ground_.has_room({layers.end, ground_.layer_count()}, rest, attempt_, 1);
  }
  bool is_enough(const std::vector<int32_t>& devices) const {
    return static_cast<int64_t>(devices.size()) <= attempt_.rows;
  }
  FlowTimes::Duration ring(const std::vector<int32_t>& devices) {
    return ground_.model().ring_cost(devices, 1.0);
  }
  FlowTimes::Duration cut(const std::vector<int32_t>& from, const std::vector<int32_t>& to) {
    const int64_t rows = attempt_.rows;
    auto rank = [&](const std::vector<int32_t>& devices) {
      return CandidateRank{devices, even_row_counts(rows, static_cast<int64_t>(devices.size()))};
    };
    return ground_.model().flows_between(rank(from), rank(to), 1.0);
  }

  void extend(const State& state, const Occupancy& used) {
    const auto free = static_cast<int32_t>(free_devices(ground_.by_host(), used).size());
    for (int32_t count = 1; count < free; ++count) {
      std::vector<Occupancy> tried;
      for (const PlacementPolicy policy : kPlacementPolicies) {
        Occupancy after = used;
        const std::vector<int32_t> devices = place_devices(ground_.by_host(), policy, count, after);
        // Policies that agree on the devices are one.
        if (std::find(tried.begin(), tried.end(), after) != tried.end()) continue;
        tried.push_back(after);
        extend_on(state, after, devices);
      }
    }
  }

  /// Tries every length of the new stage on these devices.
  void extend_on(const State& state, const Occupancy& after, const std::vector<int32_t>& devices) {
    const int64_t L = ground_.layer_count();
    const int64_t begin = state.cuts.back();
    const std::vector<int32_t> rest = free_devices(ground_.by_host(), after);
    const FlowTimes::Duration own_ring = ring(devices);
    const FlowTimes::Duration rest_ring = ring(rest);
    const FlowTimes::Duration out = cut(devices, rest);
    std::vector<DappleStage> stages = state.stages;
    if (!state.devices.empty()) {
      stages.push_back(network(begin, cut(state.devices.back(), devices)));
    }
    const size_t at = stages.size();
    stages.resize(at + 3);
    const bool has_rows = state.has_rows && is_enough(devices) && is_enough(rest);
    for (int64_t end = begin + 1; end < L; ++end) {
      const auto count = static_cast<int64_t>(devices.size());
      stages[at] = ground_.dapple_stage({begin, end}, count, own_ring, attempt_);
      stages[at + 1] = network(end, out);
      stages[at + 2] =
          ground_.dapple_stage({end, L}, static_cast<int64_t>(rest.size()), rest_ring, attempt_);
      const double length_us = dapple_length(stages, ground_.microbatch_count(attempt_)).total_us();
      ++evaluations_;
      remember(state, after, devices, end, length_us, stages);
      if (!has_rows || (best_ && length_us >= best_->objective_us)) continue;
      // Most candidate plans that lack memory are not made; one is, so that the error can say what
      // is lacking.
      if (ground_.lacks_memory() && !have_room({begin, end}, devices, rest)) continue;
      std::vector<int64_t> cuts = state.cuts;
      cuts.push_back(end);
      cuts.push_back(L);
      std::vector<std::vector<int32_t>> all = state.devices;
      all.push_back(devices);
      all.push_back(rest);
      consider(std::move(cuts), std::move(all), length_us);
    }
  }

  void remember(const State& from, const Occupancy& after, const std::vector<int32_t>& devices,
                int64_t end, double length_us, const std::vector<DappleStage>& stages) {
    State& state = memo_[static_cast<size_t>(end)][after];
    if (length_us >= state.length_us) return;
    state.length_us = length_us;
    state.cuts = from.cuts;
    state.cuts.push_back(end);
    state.devices = from.devices;
    state.devices.push_back(devices);
    state.has_rows = from.has_rows && is_enough(devices);
    state.stages.assign(stages.begin(), stages.end() - 2);
  }

  void consider(std::vector<int64_t> cuts, std::vector<std::vector<int32_t>> devices,
                double length_us) {
    CandidatePlan candidate = ground_.candidate(std::move(cuts), std::move(devices), attempt_);
    if (!ground_.is_possible(candidate, attempt_, length_us)) return;
    best_ = Found{candidate, length_us,
                  absl::StrCat("shortest of DAPPLE's search: ",
                               candidate_text(candidate, ground_.request().global_batch_rows))};
  }

  DappleStage network(int64_t layer, const FlowTimes::Duration& row_byte) const {
    const auto bytes = static_cast<double>(cut_row_bytes(ground_.request().profile, layer));
    const double transfer_us = bytes * row_byte.bytes_us + row_byte.latency_us;
    return {transfer_us, transfer_us, 0};
  }

  /// PA or PB: DAPPLE, section 3.2.
  void choose_policy(CandidatePlan& candidate) {
    const std::vector<ScheduleKind>& allowed = ground_.request().schedules;
    if (std::find(allowed.begin(), allowed.end(), ScheduleKind::k1F1BPB) == allowed.end()) return;
    double compute_us = 0;
    double network_us = 0;
    const std::vector<DappleStage> stages = ground_.dapple_stages(candidate);
    for (size_t i = 0; i < stages.size(); ++i) {
      double& longest_us = i % 2 == 0 ? compute_us : network_us;
      longest_us = std::max(longest_us, stages[i].forward_us + stages[i].backward_us);
    }
    if (network_us < kComparableShare * compute_us) return;
    candidate.schedule = ScheduleKind::k1F1BPB;
  }

  EqualDevices& ground_;
  EqualDevices::Attempt attempt_;
  std::vector<Memo> memo_;  // [L], by the number of layers cut off.
  std::optional<Found> best_;
  int64_t evaluations_ = 0;
};

}  // namespace

absl::StatusOr<PlannedPipeline> plan_dapple(const PlanRequest& request) {
  return plan_with_equal_devices(request, [](EqualDevices& ground, const auto& attempt) {
    return Search(ground, attempt).run();
  });
}

}  // namespace skein::plans
