#include "plans/planner/layer_sums.hpp"

#include <cmath>

namespace skein::plans {

LayerSums::LayerSums(const Profile& profile) : profile_(profile) {
  parameters_.push_back(0);
  stashes_.push_back(0);
  inputs_.push_back(0);
  for (int64_t l = 0; l < static_cast<int64_t>(profile.layers.size()); ++l) {
    const LayerProfile& layer = profile.layers[static_cast<size_t>(l)];
    parameters_.push_back(parameters_.back() + layer.parameter_bytes);
    stashes_.push_back(stashes_.back() + layer.stash_row_bytes);
    inputs_.push_back(inputs_.back() + kept_row_bytes(profile, l));
  }
}

int64_t LayerSums::parameter_bytes(const LayerRange& layers) const {
  const bool both_copies = layers.size() == layer_count() && layer_count() > 1;
  return parameters_[at(layers.end)] - parameters_[at(layers.begin)] -
         (both_copies ? profile_.tied_bytes : 0);
}

int64_t LayerSums::stash_row_bytes(const LayerRange& layers, bool recompute) const {
  const std::vector<int64_t>& sums = recompute ? inputs_ : stashes_;
  const int64_t input = layers.begin > 0 ? kept_row_bytes(profile_, layers.begin - 1) : 0;
  return input + sums[at(layers.end)] - sums[at(layers.begin)];
}

int64_t LayerSums::state_bytes(const LayerRange& layers) const {
  return std::llround(static_cast<double>(parameter_bytes(layers)) * profile_.state_factor);
}

int64_t LayerSums::extra_row_bytes(const LayerRange& layers, bool recompute) const {
  return recompute ? stage_memory(profile_, layers, 1, true).extra_bytes : 0;
}

LayerSums::Sums& LayerSums::sums_for(int64_t rows) {
  if (rows > kFewRows) return many_rows_[rows];
  if (at(rows) >= few_rows_.size()) few_rows_.resize(at(rows) + 1);
  return few_rows_[at(rows)];
}

LayerTimes LayerSums::times(const LayerRange& layers, int64_t rows) {
  Sums& sums = sums_for(rows);
  if (sums.empty()) {
    LayerTimes sum;
    sums.push_back(sum);
    for (int64_t layer = 0; layer < layer_count(); ++layer) {
      const LayerTimes one = layer_times(profile_, layer, rows);
      sum.forward_us += one.forward_us;
      sum.backward_input_us += one.backward_input_us;
      sum.backward_weight_us += one.backward_weight_us;
      sums.push_back(sum);
    }
  }
  const LayerTimes& begin = sums[at(layers.begin)];
  const LayerTimes& end = sums[at(layers.end)];
  return {end.forward_us - begin.forward_us, end.backward_input_us - begin.backward_input_us,
          end.backward_weight_us - begin.backward_weight_us};
}

}  // namespace skein::plans
