#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/base/outcome.hpp"
#include "plans/modes/claim_pool.hpp"

namespace skein::plans {

/// Outputs that a token may be made of, and tokens that a level may have: these are named in
/// messages, and those are kept for each step.
inline constexpr int64_t kTokenInputsMax = 4096;
inline constexpr int64_t kTokensMax = 65'536;

/// A piece of a step: the sub-model of a level on a range of the step's samples.
struct TokenId {
  uint32_t level = 0;  // From 0, where the data come in.
  uint32_t index = 0;  // Its place among those of its level, in the order of samples.
  auto operator<=>(const TokenId&) const = default;
};

/// How a step is cut into tokens.
struct TokenShape {
  uint64_t samples = 0;  // Those of a step, > 0.
  /// [levels], at least one; each > 0 and a multiple of the one before.
  std::vector<uint64_t> samples_of_token;

  uint32_t levels() const { return static_cast<uint32_t>(samples_of_token.size()); }
  uint32_t count(uint32_t level) const;
};

/// The tokens of one step (Fela, Geng et al., ICDE'20, section on the token server, from memory):
/// each sample passes each level exactly once, whoever pulls which token. A worker's loss ends the
/// pool, and the step begins anew with another one. A deeper token is made of the outputs of the
/// tokens of the level above it that have its samples. Its backward stays with whoever had its
/// forward, and becomes due when the deeper token that has used its output is done. Metadata only.
/// A state machine without clock or I/O; not thread-safe.
class TokenPool {
 public:
  enum class State {
    kWaiting,  // Some of its inputs are not there.
    kReady,    // To be claimed.
    kClaimed,  // Its forward is with its holder.
    kHeld,     // Its output is with its holder, who waits for the gradient of it.
    kDue,      // Its backward may run: the gradient is there, or, on the last level, the loss.
    kDone,     // Its gradient is in its holder's sum.
  };
  struct Token {
    State state = State::kWaiting;
    std::optional<WorkerId> holder;  // From `kClaimed` on.
    uint64_t ready_since = 0;        // The number of its turn among all that became ready.
  };
  using Tokens = std::vector<TokenId>;

  explicit TokenPool(TokenShape shape);

  const TokenShape& shape() const { return shape_; }
  const Token& at(TokenId id) const { return tokens_[id.level][id.index]; }
  /// Those that can be claimed, by level.
  const std::set<uint32_t>& ready(uint32_t level) const { return ready_[level]; }
  SampleClaim samples_of(TokenId id) const;
  /// What its forward reads; empty on the first level.
  Tokens inputs_of(TokenId id) const;
  /// Who reads its output; none on the last level.
  std::optional<TokenId> consumer_of(TokenId id) const;

  /// `id` is ready.
  void claim(TokenId id, WorkerId worker);
  /// The forward is over. Those that are ready now.
  Outcome<Tokens> on_output(WorkerId worker, TokenId id);
  /// The backward is over. Those whose backward is due now, each with its holder.
  Outcome<Tokens> on_done(WorkerId worker, TokenId id);

  bool is_done(uint32_t level) const { return done_[level] == shape_.count(level); }
  /// Samples whose gradient the worker has in its sum for the level: its weight in the reduction.
  uint64_t samples_done(uint32_t level, WorkerId worker) const;

  /// A full sweep; ends the process if something does not hold.
  void check_invariants() const;

 private:
  Token& token(TokenId id) { return tokens_[id.level][id.index]; }
  void set(TokenId id, State state);
  bool has_inputs(TokenId id) const;

  TokenShape shape_;
  std::vector<std::vector<Token>> tokens_;  // [levels][index]
  std::vector<std::set<uint32_t>> ready_;   // [levels]
  std::vector<uint32_t> done_;              // [levels]
  uint64_t turns_ = 0;
};

}  // namespace skein::plans
