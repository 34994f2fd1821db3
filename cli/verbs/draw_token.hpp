#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "plans/base/rng.hpp"

namespace skein::cli {

/// From which tokens one is drawn.
struct Sampling {
  double temperature = 0.8;  // 0: always the likeliest; of equal ones the first.
  int64_t top_k = 40;        // Among so many likeliest; 0: all.
  /// In (0, 1]: of these, the likeliest that together have at least so much of their probability
  /// (nucleus sampling, Holtzman et al., ICLR'20).
  double top_p = 1;
};

/// InvalidArgument names the option that is out of range.
absl::Status check(const Sampling& sampling);

/// One draw from softmax(logits / temperature) among the tokens that are left. One random number,
/// none at temperature 0. DataLoss if a logit is not a number.
absl::StatusOr<int32_t> draw_token(std::span<const float> logits, const Sampling& sampling,
                                   plans::Rng& rng);

}  // namespace skein::cli
