#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/tokens/token_simulation.hpp"

namespace skein::plans {

/// All that there is to try for 24 workers takes up to 60 million, for 1000 over 10,000 million. A
/// search of as much as this takes seconds (by what the simulator's loops do; not measured).
constexpr int64_t kTokenWorkMax = 100'000'000;

/// What may be chosen of a plan of tokens.
struct TokenSearch {
  std::vector<LayerRange> sub_models;
  uint64_t samples = 0;  // Those of a step, > 0.
  TokenPolicy policy;
  bool tunes_sizes = true;     // Otherwise tokens of all levels are alike, one for each worker.
  bool limits_workers = true;  // CTD. Otherwise everybody may train every level.
  /// The most that simulations may take together, as `simulation_work` counts it.
  int64_t work_max = kTokenWorkMax;
};

struct TunedTokens {
  TokenPlan plan;
  double step_us = 0;  // Simulated.
};

struct TokenTuning {
  std::vector<TunedTokens> tried;  // At least one, best first.
  int64_t work = 0;                // What simulating them took.
  size_t left_out = 0;             // Choices that `work_max` had no room for.
};

/// Fela's two phases (from memory), on the simulator. The first tries tokens of the first level of
/// an even share of the samples, half and a quarter of it, where the fastest worker is n times as
/// fast as the slowest one down to a quarter of an nth, and deeper ones that are, level by
/// level, as large or, step by step, at least twice as large, up to all samples (all sizes divide
/// these, and keep to `kTokensMax` and `kTokenInputsMax`): once with everybody on the deepest
/// level, and once with a single worker there, whose gradients nobody reduces (ours). The second
/// lets, from the deepest level up, fewer and fewer of the fastest workers train a level, for the
/// best of either kind.
///
/// Where all of that is more than `work_max`, a third of it is for each kind of the first phase,
/// and in these coarse tokens, which take least, go before fine ones. The second phase has the
/// rest: the best one up to half of it, the next up to half of what is left then. The coarsest of
/// either kind is tried in any case. The same search tries the same on every machine.
///
/// InvalidArgument   if there is no size that makes at most `kTokensMax` tokens. Else as
///                   `simulate_tokens`.
/// Cost              for n like workers and l levels, about 6 binomial(log2 n + l, l) simulations,
///                   and 6 l log2 n more; at most `work_max`, or what the coarsest take.
absl::StatusOr<TokenTuning> tune_tokens(const TokenSearch& search,
                                        const TokenSimulationOptions& options);

}  // namespace skein::plans
