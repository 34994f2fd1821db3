#include "cli/verbs/draw_token.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"

namespace skein::cli {

absl::Status check(const Sampling& sampling) {
  if (!(sampling.temperature >= 0 && std::isfinite(sampling.temperature))) {
    return absl::InvalidArgumentError("--temperature must be a number of 0 or more");
  }
  if (sampling.top_k < 0) return absl::InvalidArgumentError("--top-k must be 0 or more");
  if (sampling.top_p > 0 && sampling.top_p <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError("--top-p must be above 0 and at most 1");
}

absl::StatusOr<int32_t> draw_token(std::span<const float> logits, const Sampling& sampling,
                                   plans::Rng& rng) {
  for (size_t token = 0; token < logits.size(); ++token) {
    if (std::isfinite(logits[token])) continue;
    return absl::DataLossError(absl::StrCat("the model gives token ", token, " the logit ",
                                            logits[token],
                                            "; its weights are no numbers, or too large"));
  }
  if (sampling.temperature == 0) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  size_t kept = logits.size();
  if (sampling.top_k > 0) kept = std::min(kept, static_cast<size_t>(sampling.top_k));
  std::partial_sort(
      order.begin(), order.begin() + static_cast<int64_t>(kept), order.end(),
      [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  std::vector<double> weights(kept);
  for (size_t i = 0; i < kept; ++i) {
    weights[i] = std::exp((logits[order[i]] - logits[order[0]]) / sampling.temperature);
  }
  double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  double nucleus = 0;
  for (size_t i = 0; i < kept && sampling.top_p < 1; ++i) {
    nucleus += weights[i];
    if (nucleus < sampling.top_p * sum) continue;
    kept = i + 1;
    sum = nucleus;
  }
  double left = rng.uniform() * sum;
  for (size_t i = 0; i < kept; ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[kept - 1];
}

}  // namespace skein::cli
