#include "plans/planner/stage_cuts.hpp"

#include <algorithm>
#include <numeric>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

/// Halvings of the interval of the answer: a relative precision of 1e-9 is good enough for times.
constexpr int kHalvings = 30;

/// Which ends the first stages can have if no stage takes longer than a limit.
class Reach {
 public:
  Reach(LayerSums& sums, int64_t rows, std::span<const double> speeds)
      : speeds_(speeds), layers_(static_cast<size_t>(sums.layer_count())) {
    for (int64_t layer = 0; layer <= sums.layer_count(); ++layer) {
      sum_us_.push_back(sums.times({0, layer}, rows).total_us());
    }
    ends_.assign(speeds.size() + 1, std::vector<char>(layers_ + 1, 0));
    ends_[0][0] = 1;
  }

  double whole_us() const { return sum_us_.back(); }
  size_t layers() const { return layers_; }

  /// Whether all layers can be placed. Stage s ends at e if it can begin at some b < e within the
  /// limit; the last such b is the shortest stage, so that one alone decides.
  bool is_enough(double limit_us) {
    for (size_t s = 0; s < speeds_.size(); ++s) {
      std::fill(ends_[s + 1].begin(), ends_[s + 1].end(), 0);
      const size_t end_max = layers_ - (speeds_.size() - 1 - s);
      size_t last_begin = kNone;
      bool any = false;
      for (size_t end = s + 1; end <= end_max; ++end) {
        if (ends_[s][end - 1] != 0) last_begin = end - 1;
        if (last_begin == kNone) continue;
        const bool fits = sum_us_[end] - sum_us_[last_begin] <= limit_us * speeds_[s];
        ends_[s + 1][end] = fits ? 1 : 0;
        any = any || fits;
      }
      if (!any) return false;
    }
    return ends_.back()[layers_] != 0;
  }

  /// The cuts behind the last answer, which was yes; later stages are as short as they can be.
  std::vector<int64_t> cuts() const {
    std::vector<int64_t> cuts(speeds_.size() + 1, 0);
    size_t end = layers_;
    for (size_t s = speeds_.size(); s > 0; --s) {
      cuts[s] = static_cast<int64_t>(end);
      do {
        --end;
      } while (ends_[s - 1][end] == 0);
    }
    return cuts;
  }

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);

  std::span<const double> speeds_;
  size_t layers_;
  std::vector<double> sum_us_;           // [L + 1]
  std::vector<std::vector<char>> ends_;  // [S + 1][L + 1]: the first s stages can end there.
};

}  // namespace

std::vector<int64_t> balanced_cuts(LayerSums& sums, int64_t rows,
                                   std::span<const double> stage_speed) {
  Reach reach(sums, rows, stage_speed);
  SKEIN_CHECK(!stage_speed.empty() && stage_speed.size() <= reach.layers())
      << stage_speed.size() << " stages of " << reach.layers() << " layers";
  const double speed_min = *std::min_element(stage_speed.begin(), stage_speed.end());
  const double speed_sum = std::accumulate(stage_speed.begin(), stage_speed.end(), 0.0);
  double low_us = reach.whole_us() / speed_sum * 0.999;
  double high_us = reach.whole_us() / speed_min * 1.001;  // Enough whatever the cuts are.
  for (int i = 0; i < kHalvings; ++i) {
    const double middle_us = (low_us + high_us) / 2;
    (reach.is_enough(middle_us) ? high_us : low_us) = middle_us;
  }
  SKEIN_CHECK(reach.is_enough(high_us)) << high_us;
  return reach.cuts();
}

}  // namespace skein::plans
