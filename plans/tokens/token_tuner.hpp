#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/tokens/token_simulation.hpp"

namespace skein::plans {

/// What may be chosen of a plan of tokens.
struct TokenSearch {
  std::vector<LayerRange> sub_models;
  uint64_t samples = 0;  // Those of a step, > 0.
  TokenPolicy policy;
  bool tunes_sizes = true;     // Otherwise tokens of all levels are alike, one for each worker.
  bool limits_workers = true;  // CTD. Otherwise everybody may train every level.
};

struct TunedTokens {
  TokenPlan plan;
  double step_us = 0;  // Simulated.
};

/// Fela's two phases (from memory), on the simulator. The first tries tokens of the first level of
/// an even share of the samples, half and a quarter of it, and deeper ones that are, level by
/// level, as large or, step by step, at least twice as large, up to all samples (all sizes divide
/// these, and keep to `kTokensMax` and `kTokenInputsMax`): once with everybody on the deepest
/// level, and once with a single worker there, whose gradients nobody reduces (ours). The second
/// lets, from the deepest level up, fewer and fewer of the fastest workers train a level, for the
/// best of either kind.
/// Returns           all that was tried, at least one, best first.
/// InvalidArgument   if there is no size that makes at most `kTokensMax` tokens. Else as
///                   `simulate_tokens`.
/// Cost              for n workers and l levels, about 6 binomial(log2 n + l, l) simulations, and
///                   6 l log2 n more.
absl::StatusOr<std::vector<TunedTokens>> tune_tokens(const TokenSearch& search,
                                                     const TokenSimulationOptions& options);

}  // namespace skein::plans
