#include "plans/planner/pipedream_planner.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"
#include "plans/planner/equal_devices.hpp"

namespace skein::plans {
namespace {

/// Steps of the recurrences, a few ns each.
constexpr int64_t kBudget = 50'000'000;
constexpr double kNever = std::numeric_limits<double>::infinity();

/// A stage of a solution: layers and how many units (devices or hosts) hold copies of it.
struct Part {
  LayerRange layers;
  int64_t units = 0;
};

/// One level: unit times for every range of layers, a bandwidth between units.
class Level {
 public:
  /// `unit_us(range)`: a micro-batch on one unit. `begin`: first layer of the recurrence.
  Level(const Profile& profile, const LayerSums& sums, int64_t units, LinkSpeed link, int64_t rows)
      : profile_(profile), sums_(sums), units_(units), link_(link), rows_(rows) {}

  /// Plans layers [begin, L), giving for each end j and each number of units the slowest part.
  template <class UnitTime>
  void solve(int64_t begin, const UnitTime& unit_us) {
    begin_ = begin;
    const int64_t L = sums_.layer_count();
    cells_.assign(static_cast<size_t>((L - begin + 1) * (units_ + 1)), {});
    for (int64_t j = begin + 1; j <= L; ++j) {
      for (int64_t m = 1; m <= units_; ++m) solve_cell(j, m, unit_us);
    }
  }

  double slowest_us(int64_t end, int64_t units) const { return at(end, units).slowest_us; }

  std::vector<Part> parts(int64_t end, int64_t units) const {
    std::vector<Part> parts;
    while (end > begin_) {
      const Cell& cell = at(end, units);
      parts.push_back({{cell.cut, end}, cell.units});
      end = cell.cut;
      units -= cell.units;
    }
    std::reverse(parts.begin(), parts.end());
    return parts;
  }

 private:
  struct Cell {
    double slowest_us = kNever;
    int64_t cut = 0;
    int64_t units = 0;
  };
  size_t index(int64_t end, int64_t units) const {
    return static_cast<size_t>((end - begin_) * (units_ + 1) + units);
  }
  const Cell& at(int64_t end, int64_t units) const { return cells_[index(end, units)]; }

  template <class UnitTime>
  void solve_cell(int64_t j, int64_t m, const UnitTime& unit_us) {
    Cell& cell = cells_[index(j, m)];
    cell = {part_us(unit_us({begin_, j}), weights_us({begin_, j}), m), begin_, m};
    for (int64_t k = j - 1; k > begin_ && m > 1; --k) {
      const double one_us = unit_us({k, j});
      if (one_us >= cell.slowest_us * static_cast<double>(m)) continue;
      const double sum_us = weights_us({k, j});
      const double transfer_us =
          2 * sent_us(static_cast<double>(rows_ * cut_row_bytes(profile_, k)));
      // Fewer units cannot be faster than the fastest so far.
      const auto own_min = static_cast<int64_t>(one_us / cell.slowest_us);
      for (int64_t own = std::max<int64_t>(1, own_min); own < m; ++own) {
        const double slowest_us =
            std::max({at(k, m - own).slowest_us, part_us(one_us, sum_us, own), transfer_us});
        if (slowest_us <= cell.slowest_us) cell = {slowest_us, k, own};  // The earlier cut wins.
      }
    }
  }

  double part_us(double one_us, double weights_us, int64_t units) const {
    if (units > rows_) return kNever;
    const auto m = static_cast<double>(units);
    return (one_us + 4 * (m - 1) * weights_us / m) / m;
  }
  double weights_us(const LayerRange& layers) const {
    return sent_us(static_cast<double>(sums_.parameter_bytes(layers)));
  }
  double sent_us(double bytes) const { return bytes / link_.bytes_per_second * 1e6; }

  const Profile& profile_;
  const LayerSums& sums_;
  int64_t units_;
  LinkSpeed link_;
  int64_t rows_;
  int64_t begin_ = 0;
  std::vector<Cell> cells_;  // By end and number of units.
};

/// What a search over levels decides: stages with the devices of each.
struct Layout {
  std::vector<int64_t> cuts{0};
  std::vector<std::vector<int32_t>> devices;
  double slowest_us = 0;
};

class Search {
 public:
  Search(EqualDevices& ground, const EqualDevices::Attempt& attempt)
      : ground_(ground), attempt_(attempt) {
    for (int64_t layer = 0; layer <= ground.layer_count(); ++layer) {
      passed_us_.push_back(
          ground.model().even_times({0, layer}, attempt.rows, 1, ground.speed()).total_us());
    }
  }

  absl::StatusOr<std::optional<Found>> run() {
    const int64_t L = ground_.layer_count();
    const bool hierarchical = has_two_levels();
    const auto inner = static_cast<int64_t>(ground_.by_host().front().size());
    const auto outer = static_cast<int64_t>(ground_.by_host().size());
    const int64_t P = ground_.device_count();
    const int64_t steps = hierarchical
                              ? L * L * L / 6 * inner * inner / 2 + L * L / 2 * outer * outer / 2
                              : L * L / 2 * P * P / 2;
    if (steps > kBudget) {
      return absl::InvalidArgumentError(absl::StrCat(
          "PipeDream's recurrence over ", L, " layers on ", P, " devices is beyond its budget of ",
          kBudget, " steps; use the planner \"skein\""));
    }
    const Layout layout = hierarchical ? two_levels(inner, outer) : one_level(P);
    CandidatePlan candidate = ground_.candidate(layout.cuts, layout.devices, attempt_);
    const double objective_us =
        layout.slowest_us * static_cast<double>(ground_.microbatch_count(attempt_));
    if (!ground_.is_possible(candidate, attempt_, objective_us)) return std::nullopt;
    return Found{candidate, objective_us,
                 absl::StrCat("fastest slowest stage: ",
                              candidate_text(candidate, ground_.request().global_batch_rows))};
  }

 private:
  bool has_two_levels() const {
    const auto& by_host = ground_.by_host();
    const size_t inner = by_host.front().size();
    return by_host.size() > 1 && inner > 1 &&
           std::all_of(by_host.begin(), by_host.end(),
                       [&](const auto& devices) { return devices.size() == inner; });
  }

  double device_us(const LayerRange& layers) const {
    return passed_us_[static_cast<size_t>(layers.end)] -
           passed_us_[static_cast<size_t>(layers.begin)];
  }
  Level level(int64_t units, const LinkSpeed& link) {
    return Level(ground_.request().profile, ground_.model().sums(), units, link, attempt_.rows);
  }
  const ClusterHost& host() { return ground_.model().cluster().hosts.front(); }

  Layout one_level(int64_t count) {
    const bool one_host = ground_.by_host().size() == 1;
    Level only = level(count, one_host ? host().inside : host().network);
    only.solve(0, [&](const LayerRange& layers) { return device_us(layers); });
    Layout layout;
    const int64_t L = ground_.layer_count();
    layout.slowest_us = only.slowest_us(L, count);
    const std::vector<int32_t> all = ground_.devices();
    size_t next = 0;
    for (const Part& part : only.parts(L, count)) {
      layout.cuts.push_back(part.layers.end);
      std::vector<int32_t>& own = layout.devices.emplace_back();
      for (int64_t i = 0; i < part.units; ++i) own.push_back(all[next++]);
    }
    return layout;
  }

  Layout two_levels(int64_t inner, int64_t outer) {
    const int64_t L = ground_.layer_count();
    std::vector<Level> inside;  // [L] by first layer.
    for (int64_t begin = 0; begin < L; ++begin) {
      inside.push_back(level(inner, host().inside));
      inside.back().solve(begin, [&](const LayerRange& layers) { return device_us(layers); });
    }
    auto host_us = [&](const LayerRange& layers) {
      return inside[static_cast<size_t>(layers.begin)].slowest_us(layers.end, inner);
    };
    Level between = level(outer, host().network);
    between.solve(0, host_us);
    Layout layout;
    layout.slowest_us = between.slowest_us(L, outer);
    size_t first_host = 0;
    for (const Part& part : between.parts(L, outer)) {
      const auto begin = static_cast<size_t>(part.layers.begin);
      size_t taken = 0;
      for (const Part& stage : inside[begin].parts(part.layers.end, inner)) {
        layout.cuts.push_back(stage.layers.end);
        std::vector<int32_t>& own = layout.devices.emplace_back();
        for (size_t h = first_host; h < first_host + static_cast<size_t>(part.units); ++h) {
          for (int64_t i = 0; i < stage.units; ++i) {
            own.push_back(ground_.by_host()[h][taken + static_cast<size_t>(i)]);
          }
        }
        taken += static_cast<size_t>(stage.units);
      }
      first_host += static_cast<size_t>(part.units);
    }
    return layout;
  }

  EqualDevices& ground_;
  EqualDevices::Attempt attempt_;
  std::vector<double> passed_us_;  // [L + 1] F + B of the layers in front, on one device.
};

}  // namespace

absl::StatusOr<PlannedPipeline> plan_pipedream(const PlanRequest& request) {
  return plan_with_equal_devices(request, [](EqualDevices& ground, const auto& attempt) {
    return Search(ground, attempt).run();
  });
}

}  // namespace skein::plans
