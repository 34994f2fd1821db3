#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "plans/profile/profile.hpp"

namespace skein::plans {

/// Prefix sums over the layers of a profile, so that any range costs O(1). Not thread-safe: the
/// times for a number of rows are added up when they are first asked for. Borrows the profile.
class LayerSums {
 public:
  explicit LayerSums(const Profile& profile);
  LayerSums(const LayerSums&) = delete;
  LayerSums& operator=(const LayerSums&) = delete;

  int64_t layer_count() const { return static_cast<int64_t>(profile_.layers.size()); }
  const Profile& profile() const { return profile_; }

  /// As `range_times`, up to rounding.
  LayerTimes times(const LayerRange& layers, int64_t rows);
  /// F + B of the whole model for `rows` rows.
  double model_us(int64_t rows) { return times({0, layer_count()}, rows).total_us(); }

  /// As `plans::parameter_bytes`.
  int64_t parameter_bytes(const LayerRange& layers) const;
  /// Stash of one micro-batch of one row, as `stage_memory`.
  int64_t stash_row_bytes(const LayerRange& layers, bool recompute) const;
  /// State of a stage, and with recomputation the stash of the layer that is computed again, of one
  /// row; as `stage_memory`. The latter is O(layers).
  int64_t state_bytes(const LayerRange& layers) const;
  int64_t extra_row_bytes(const LayerRange& layers, bool recompute) const;

 private:
  static constexpr int64_t kFewRows = 4096;
  static size_t at(int64_t layer) { return static_cast<size_t>(layer); }

  const Profile& profile_;
  using Sums = std::vector<LayerTimes>;  // [L + 1] of the layers before.
  Sums& sums_for(int64_t rows);

  std::vector<Sums> few_rows_;         // By the number of rows.
  std::map<int64_t, Sums> many_rows_;  // Beyond `kFewRows`.
  std::vector<int64_t> parameters_;
  std::vector<int64_t> stashes_;
  std::vector<int64_t> inputs_;
};

}  // namespace skein::plans
