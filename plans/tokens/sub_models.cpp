#include "plans/tokens/sub_models.hpp"

#include <algorithm>
#include <cmath>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

constexpr double kSaturated = 1.1;  // Times the least that a row takes.
const double kAlike = std::log(2);  // Neighbours within it belong together.

struct Bin {
  LayerRange layers;
  double log_sum = 0;
  double mean() const { return log_sum / static_cast<double>(layers.end - layers.begin); }
};

double distance(const Bin& a, const Bin& b) { return std::abs(a.mean() - b.mean()); }

}  // namespace

std::vector<int64_t> threshold_rows(const Profile& profile) {
  std::vector<int64_t> thresholds;
  for (size_t layer = 0; layer < profile.layers.size(); ++layer) {
    const auto row_us = [&](int64_t rows) {
      return layer_times(profile, static_cast<int64_t>(layer), rows).total_us() /
             static_cast<double>(rows);
    };
    const double least_us = row_us(profile.rows.back());
    const auto found = std::find_if(profile.rows.begin(), profile.rows.end(), [&](int64_t rows) {
      return row_us(rows) <= kSaturated * least_us;
    });
    thresholds.push_back(*found);
  }
  return thresholds;
}

std::vector<LayerRange> bin_sub_models(std::span<const int64_t> thresholds, size_t most) {
  SKEIN_CHECK(!thresholds.empty() && most >= 1) << thresholds.size();
  std::vector<Bin> bins;
  for (size_t layer = 0; layer < thresholds.size(); ++layer) {
    SKEIN_CHECK(thresholds[layer] > 0) << "layer " << layer;
    const auto begin = static_cast<int64_t>(layer);
    bins.push_back({{begin, begin + 1}, std::log(static_cast<double>(thresholds[layer]))});
  }
  while (bins.size() > 1) {
    size_t closest = 0;
    for (size_t b = 1; b + 1 < bins.size(); ++b) {
      if (distance(bins[b], bins[b + 1]) < distance(bins[closest], bins[closest + 1])) closest = b;
    }
    if (bins.size() <= most && distance(bins[closest], bins[closest + 1]) > kAlike) break;
    bins[closest].layers.end = bins[closest + 1].layers.end;
    bins[closest].log_sum += bins[closest + 1].log_sum;
    bins.erase(bins.begin() + static_cast<ptrdiff_t>(closest) + 1);
  }
  std::vector<LayerRange> sub_models;
  for (const Bin& bin : bins) sub_models.push_back(bin.layers);
  return sub_models;
}

}  // namespace skein::plans
