#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/tokens/token_pool.hpp"

namespace skein::plans {

/// Fela's policies (from memory), each of which may be left out.
struct TokenPolicy {
  /// ADS: the deepest level first, in it the token with most inputs at the worker, so that deep
  /// levels are reduced while others still compute. Without it: as tokens became ready.
  bool is_depth_first = true;
  /// HF: a worker takes from its own bucket as long as there is something in it, and then helps
  /// whose bucket is fullest. Without it: there is one bucket for all.
  bool has_own_buckets = true;
};

/// Who may train the sub-model of each level, ascending: all who hold it. CTD: of a sub-model whose
/// reduction costs much, only a few.
using LevelWorkers = std::vector<std::vector<WorkerId>>;

/// Whose bucket each token is in: on the first level so many samples for each worker as its speed
/// is a share of all, one after the other; below it, among those who may train it, the bucket of
/// whoever holds the outputs of most of its samples; if none of them holds any, of each in turn.
class TokenBuckets {
 public:
  /// `speeds`: parallel to the workers of the first level; > 0.
  TokenBuckets(const TokenShape& shape, const LevelWorkers& level_workers,
               const std::vector<double>& speeds);
  WorkerId owner_of(const TokenPool& pool, TokenId id) const;
  /// The tokens [begin, end) of the first level that are in the worker's bucket.
  std::pair<uint32_t, uint32_t> first_level_of(WorkerId worker) const;
  bool may_train(uint32_t level, WorkerId worker) const;

 private:
  LevelWorkers level_workers_;
  std::vector<WorkerId> first_owners_;  // By token of the first level.
};

/// A worker's wish for a token.
struct TokenWish {
  WorkerId worker;
  /// It has nothing left to compute: it may take from the buckets of others. Who asks ahead of that
  /// would keep from them what they come to sooner.
  bool helps = true;
};

/// What a worker had of a step.
struct TokenUse {
  uint32_t ahead = 1;    // So many it was granted at most before it had computed them.
  uint32_t granted = 0;  // In the whole step.
  /// It held one for later that another worker, which had none and got none, might have computed.
  bool kept_from_others = false;
};
/// How many it is granted at most in the next step before it has computed them, from one to `most`.
/// One fewer if it kept one from others and came to no more than twice what it may be granted at
/// once: nobody else can have that any more, however slow it is, and of so few tokens one takes
/// longer than inputs travel. Else one more if it came to more than it may be granted at once, so
/// that a worker that is fast again has its inputs ahead again. Pure (ours).
uint32_t ahead_in_next_step(const TokenUse& use, uint32_t most);

/// Which token that worker is to have next; none: there is none for it now. A pure function. Those
/// of the first level go in the order of their samples.
/// Cost   linear in the tokens below the first level that are ready and their inputs; if it helps,
///        in those of the first level, too.
std::optional<TokenId> choose_token(const TokenPool& pool, const TokenPolicy& policy,
                                    const TokenBuckets& buckets, const TokenWish& wish);

}  // namespace skein::plans
