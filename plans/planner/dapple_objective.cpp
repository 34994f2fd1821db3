#include "plans/planner/dapple_objective.hpp"

#include <algorithm>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

/// Walks from the last stage to the first: a stage takes over from the pivot behind it if its
/// steady phase is longer than the pivot's and all that lies between them.
size_t pivot_of(std::span<const DappleStage> stages, double rounds) {
  size_t pivot = stages.size() - 1;
  double between_us = 0;
  for (size_t s = stages.size() - 1; s-- > 0;) {
    const double own_us = rounds * (stages[s].forward_us + stages[s].backward_us);
    const double pivot_us = rounds * (stages[pivot].forward_us + stages[pivot].backward_us);
    if (own_us > pivot_us + between_us) {
      pivot = s;
      between_us = 0;
    } else {
      between_us += stages[s].forward_us + stages[s].backward_us;
    }
  }
  return pivot;
}

}  // namespace

DappleLength dapple_length(std::span<const DappleStage> stages, int64_t microbatch_count) {
  SKEIN_CHECK(!stages.empty() && microbatch_count >= 1) << stages.size() << microbatch_count;
  const auto rounds = static_cast<double>(microbatch_count - 1);
  DappleLength length;
  const size_t pivot = pivot_of(stages, rounds);
  length.pivot = static_cast<int32_t>(pivot);
  for (size_t s = 0; s <= pivot; ++s) length.warm_up_us += stages[s].forward_us;
  length.steady_us = rounds * (stages[pivot].forward_us + stages[pivot].backward_us);
  double k_us = 0;  // K_s, from the pivot to the first stage.
  for (size_t s = pivot + 1; s-- > 0;) {
    k_us += stages[s].backward_us;
    length.ending_us = std::max(length.ending_us, stages[s].reduce_us + k_us);
  }
  k_us = 0;
  for (size_t s = pivot + 1; s < stages.size(); ++s) {
    length.ending_us = std::max(length.ending_us, stages[s].reduce_us + k_us);
    k_us -= stages[s].backward_us;
  }
  return length;
}

}  // namespace skein::plans
