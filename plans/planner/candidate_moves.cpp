#include "plans/planner/candidate_moves.hpp"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "plans/planner/row_split.hpp"
#include "plans/planner/stage_groups.hpp"

namespace skein::plans {
namespace {

/// With more stages than this, only devices of stages next to each other are swapped.
constexpr size_t kSwapAllStagesMax = 8;

class Neighbourhood {
 public:
  Neighbourhood(CostModel& model, const CandidatePlan& candidate, const CandidateVisitor& visit)
      : model_(model), candidate_(candidate), visit_(visit) {}

  void run() {
    const bool is_straight = candidate_.ranks.size() == candidate_.rank_of_stage.size();
    const bool wanted = move_cuts() && change_schedule() && change_rows() && shift_rows();
    if (!wanted || !is_straight) return;
    if (move_devices() && change_membership() && split_stages() && merge_stages()) {
      if (swap_devices()) reverse_replicas();
    }
  }

 private:
  const PlanRequest& request() const { return model_.request(); }
  size_t stages() const { return candidate_.rank_of_stage.size(); }

  /// A device's kind: devices of one kind are interchangeable.
  std::tuple<int32_t, double, int64_t> kind(int32_t device) const {
    const ClusterDevice& own = model_.cluster().devices[static_cast<size_t>(device)];
    return {own.host, model_.speed(device), own.memory_bytes};
  }

  bool move_cuts() {
    const int64_t L = candidate_.cuts.back();
    for (size_t c = 1; c < stages(); ++c) {
      for (int64_t step = 1; step < L; step *= 2) {
        for (const int64_t moved : {candidate_.cuts[c] - step, candidate_.cuts[c] + step}) {
          if (moved <= candidate_.cuts[c - 1] || moved >= candidate_.cuts[c + 1]) continue;
          CandidatePlan changed = candidate_;
          changed.cuts[c] = moved;
          if (!visit_(changed)) return false;
        }
      }
    }
    return true;
  }

  bool change_schedule() {
    for (const ScheduleKind kind : request().schedules) {
      if (kind == candidate_.schedule) continue;
      CandidatePlan changed = candidate_;
      changed.schedule = kind;
      if (!visit_(changed)) return false;
    }
    return true;
  }

  bool change_rows() {
    for (const bool recompute : {false, true}) {
      if (recompute && !request().may_recompute) continue;
      for (const int64_t rows : request().microbatch_rows) {
        if (rows == candidate_.microbatch_rows && recompute == candidate_.recompute) continue;
        CandidatePlan changed = candidate_;
        changed.recompute = recompute;
        changed.microbatch_rows = rows;
        if (rows == candidate_.microbatch_rows || split_all(changed)) {
          if (!visit_(changed)) return false;
        }
      }
    }
    return true;
  }

  bool split_all(CandidatePlan& changed) {
    for (CandidateRank& rank : changed.ranks) {
      if (static_cast<int64_t>(rank.devices.size()) > changed.microbatch_rows) return false;
      rank.rows = split_rows(model_, rank.devices, changed.microbatch_rows);
    }
    return true;
  }

  /// From each replica to the next and the first of another kind.
  bool shift_rows() {
    for (size_t k = 0; k < candidate_.ranks.size(); ++k) {
      const size_t count = candidate_.ranks[k].rows.size();
      for (size_t a = 0; a < count; ++a) {
        for (size_t b = 0; b < count; ++b) {
          if (a == b || candidate_.ranks[k].rows[a] < 2) continue;
          const bool near = b == a + 1 || b + 1 == a;
          if (!near && count > kSwapAllStagesMax) continue;
          CandidatePlan changed = candidate_;
          --changed.ranks[k].rows[a];
          ++changed.ranks[k].rows[b];
          if (!visit_(changed)) return false;
        }
      }
    }
    return true;
  }

  /// Visits a candidate plan whose ranks have changed: with its cuts, and rebalanced.
  bool visit_both(CandidatePlan changed) {
    if (!visit_(changed)) return false;
    std::vector<int64_t> cuts = changed.cuts;
    rebalance(model_, changed);
    return changed.cuts == cuts || visit_(changed);
  }

  void set_devices(CandidatePlan& changed, size_t rank, std::vector<int32_t> devices) {
    changed.ranks[rank] = rank_of(model_, std::move(devices), changed.microbatch_rows);
  }

  /// Positions of a rank's devices, the first and last of each kind.
  std::vector<size_t> distinct(const CandidateRank& rank) const {
    std::set<size_t> positions;
    std::set<std::tuple<int32_t, double, int64_t>> seen;
    for (size_t i = 0; i < rank.devices.size(); ++i) {
      if (seen.insert(kind(rank.devices[i])).second) positions.insert(i);
    }
    seen.clear();
    for (size_t i = rank.devices.size(); i-- > 0;) {
      if (seen.insert(kind(rank.devices[i])).second) positions.insert(i);
    }
    return {positions.begin(), positions.end()};
  }

  bool move_devices() {
    for (size_t s = 0; s + 1 < stages(); ++s) {
      if (!move_device(s, s + 1) || !move_device(s + 1, s)) return false;
    }
    return true;
  }

  bool move_device(size_t from, size_t to) {
    const CandidateRank& source = candidate_.ranks[from];
    const auto room = static_cast<int64_t>(candidate_.ranks[to].devices.size());
    if (source.devices.size() < 2 || room + 1 > candidate_.microbatch_rows) return true;
    for (const size_t position : distinct(source)) {
      std::vector<int32_t> left = source.devices;
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(position));
      std::vector<int32_t> grown = candidate_.ranks[to].devices;
      grown.insert(to > from ? grown.begin() : grown.end(), source.devices[position]);
      CandidatePlan changed = candidate_;
      set_devices(changed, from, std::move(left));
      set_devices(changed, to, std::move(grown));
      if (!visit_both(std::move(changed))) return false;
    }
    return true;
  }

  /// Devices that no stage has, one of each kind.
  std::vector<int32_t> unused() const {
    std::vector<bool> used(model_.cluster().devices.size(), false);
    for (const CandidateRank& rank : candidate_.ranks) {
      for (int32_t device : rank.devices) used[static_cast<size_t>(device)] = true;
    }
    std::set<std::tuple<int32_t, double, int64_t>> seen;
    std::vector<int32_t> unused;
    for (size_t device = 0; device < used.size(); ++device) {
      const auto id = static_cast<int32_t>(device);
      if (!used[device] && seen.insert(kind(id)).second) unused.push_back(id);
    }
    return unused;
  }

  bool change_membership() {
    const std::vector<int32_t> spare = unused();
    for (size_t s = 0; s < stages(); ++s) {
      const CandidateRank& rank = candidate_.ranks[s];
      for (const int32_t device : spare) {
        std::vector<int32_t> grown = rank.devices;
        grown.push_back(device);
        CandidatePlan changed = candidate_;
        if (static_cast<int64_t>(grown.size()) <= candidate_.microbatch_rows) {
          set_devices(changed, s, std::move(grown));
          if (!visit_both(changed)) return false;
        }
        for (const size_t position : distinct(rank)) {  // In the place of one of the stage.
          std::vector<int32_t> replaced = rank.devices;
          replaced[position] = device;
          changed = candidate_;
          set_devices(changed, s, std::move(replaced));
          if (!visit_both(std::move(changed))) return false;
        }
      }
      if (rank.devices.size() < 2) continue;
      for (const size_t position : distinct(rank)) {
        std::vector<int32_t> left = rank.devices;
        left.erase(left.begin() + static_cast<std::ptrdiff_t>(position));
        CandidatePlan changed = candidate_;
        set_devices(changed, s, std::move(left));
        if (!visit_both(std::move(changed))) return false;
      }
    }
    return true;
  }

  /// Halves of the layers, and parts of the devices; or a spare device takes half of the layers.
  bool split_stages() {
    for (size_t s = 0; s < stages(); ++s) {
      const LayerRange layers = candidate_.layers(static_cast<int32_t>(s));
      const std::vector<int32_t>& devices = candidate_.ranks[s].devices;
      if (layers.size() < 2) continue;
      const size_t step = std::max<size_t>(1, devices.size() / 8);
      for (size_t first = 1; first < devices.size(); first += step) {
        const auto middle = devices.begin() + static_cast<std::ptrdiff_t>(first);
        if (!split_stage(s, {devices.begin(), middle}, {middle, devices.end()})) return false;
      }
      for (const int32_t spare : unused()) {
        if (!split_stage(s, devices, {spare})) return false;
        if (!split_stage(s, {spare}, devices)) return false;
      }
    }
    return true;
  }

  bool split_stage(size_t s, std::vector<int32_t> first, std::vector<int32_t> second) {
    const LayerRange layers = candidate_.layers(static_cast<int32_t>(s));
    CandidatePlan changed = candidate_;
    const double share =
        static_cast<double>(first.size()) / static_cast<double>(first.size() + second.size());
    const int64_t own = std::clamp<int64_t>(
        static_cast<int64_t>(static_cast<double>(layers.size()) * share), 1, layers.size() - 1);
    changed.cuts.insert(changed.cuts.begin() + static_cast<std::ptrdiff_t>(s + 1),
                        layers.begin + own);
    changed.rank_of_stage.push_back(static_cast<int32_t>(stages()));
    changed.ranks.insert(changed.ranks.begin() + static_cast<std::ptrdiff_t>(s), CandidateRank{});
    set_devices(changed, s, std::move(first));
    set_devices(changed, s + 1, std::move(second));
    return visit_both(std::move(changed));
  }

  bool merge_stages() {
    for (size_t s = 0; s + 1 < stages(); ++s) {
      std::vector<int32_t> devices = candidate_.ranks[s].devices;
      const std::vector<int32_t>& second = candidate_.ranks[s + 1].devices;
      devices.insert(devices.end(), second.begin(), second.end());
      if (static_cast<int64_t>(devices.size()) > candidate_.microbatch_rows) continue;
      CandidatePlan changed = candidate_;
      changed.cuts.erase(changed.cuts.begin() + static_cast<std::ptrdiff_t>(s + 1));
      changed.rank_of_stage.pop_back();
      changed.ranks.erase(changed.ranks.begin() + static_cast<std::ptrdiff_t>(s));
      set_devices(changed, s, std::move(devices));
      if (!visit_both(std::move(changed))) return false;
    }
    return true;
  }

  bool swap_devices() {
    const size_t reach = stages() <= kSwapAllStagesMax ? stages() : 1;
    for (size_t a = 0; a < stages(); ++a) {
      for (size_t b = a + 1; b < stages() && b - a <= reach; ++b) {
        CandidatePlan changed = candidate_;
        std::swap(changed.ranks[a], changed.ranks[b]);
        if (!visit_both(std::move(changed))) return false;
        for (const size_t i : distinct(candidate_.ranks[a])) {
          for (const size_t j : distinct(candidate_.ranks[b])) {
            if (!swap(a, i, b, j)) return false;
          }
        }
      }
    }
    return true;
  }

  bool swap(size_t a, size_t i, size_t b, size_t j) {
    std::vector<int32_t> first = candidate_.ranks[a].devices;
    std::vector<int32_t> second = candidate_.ranks[b].devices;
    if (kind(first[i]) == kind(second[j])) return true;
    std::swap(first[i], second[j]);
    CandidatePlan changed = candidate_;
    set_devices(changed, a, std::move(first));
    set_devices(changed, b, std::move(second));
    return visit_both(std::move(changed));
  }

  bool reverse_replicas() {
    for (CandidateRank rank : candidate_.ranks) {
      if (rank.devices.size() < 2) continue;
      const auto at =
          static_cast<size_t>(std::find(candidate_.ranks.begin(), candidate_.ranks.end(), rank) -
                              candidate_.ranks.begin());
      std::reverse(rank.devices.begin(), rank.devices.end());
      std::reverse(rank.rows.begin(), rank.rows.end());
      CandidatePlan changed = candidate_;
      changed.ranks[at] = std::move(rank);
      if (!visit_(changed)) return false;
    }
    return true;
  }

  CostModel& model_;
  const CandidatePlan& candidate_;
  const CandidateVisitor& visit_;
};

}  // namespace

void visit_neighbours(CostModel& model, const CandidatePlan& candidate,
                      const CandidateVisitor& visit) {
  Neighbourhood(model, candidate, visit).run();
}

}  // namespace skein::plans
