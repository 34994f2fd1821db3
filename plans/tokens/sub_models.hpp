#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plans/job/model_spec.hpp"
#include "plans/profile/profile.hpp"

namespace skein::plans {

/// For each layer the fewest rows with which a device is as good as saturated: a row takes at most
/// a tenth longer than with the most rows that were measured (Fela's threshold batch, from memory).
std::vector<int64_t> threshold_rows(const Profile& profile);

/// Cuts a model into at most `most` sub-models of consecutive layers whose thresholds are alike:
/// neighbours are put together, those first whose mean thresholds (of logarithms, by layer) are
/// closest, until there are no more than `most`, and as long as they are within a factor of two.
/// `thresholds`  [layers], each > 0; `most` >= 1.
std::vector<LayerRange> bin_sub_models(std::span<const int64_t> thresholds, size_t most);

}  // namespace skein::plans
