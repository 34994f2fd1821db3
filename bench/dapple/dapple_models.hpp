#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plans/profile/profile.hpp"

namespace skein::bench {

/// A model of DAPPLE's evaluation (PPoPP'21, section 6) on a V100.
struct DappleModel {
  std::string name;
  int64_t global_batch_rows = 0;
  plans::Profile profile;  // At the number of rows it was profiled with.
};

/// ResNet-50, VGG-19, GNMT-16, BERT-48, XLNet-36, AmoebaNet-36, as in the paper's table of plans.
///
/// Totals and per-layer figures are those of the profiles that the authors released (HPGO): times,
/// parameter bytes, profile batch. What they leave open is filled in by a rule that is stated with
/// each model; nothing was fitted to the published plans.
std::vector<DappleModel> dapple_models();

}  // namespace skein::bench
