#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace skein::plans {

/// The samples [first, first + count) of the data order.
struct SampleClaim {
  uint64_t first = 0;
  uint64_t count = 0;
  bool operator==(const SampleClaim&) const = default;
};

/// Hands out the samples of a round, one range at a time, so that each sample is finished exactly
/// once, whoever dies. A pipeline replica may hold several claims. Not thread-safe.
///
/// What a dead pipeline replica has not finished goes back to the pool and is given first, the
/// lowest range first. "Finished" is what this pool was told: a pipeline replica that dies between
/// its update and the word of it has its range done again by another one; and so has one whose work
/// is `undo`ne.
///
/// While nothing is left to give, others may still hold claims, and one of them may die: whoever
/// got none asks again as long as the pool is not `is_over`.
class ClaimPool {
 public:
  struct Holder {
    uint32_t pipeline = 0;
    uint64_t count = 0;
  };
  /// What is given and what is not. Every sample of [first, end) is in exactly one of: fresh, or
  /// returned, or held, or finished.
  struct State {
    uint64_t first = 0;                        // The round's first sample.
    uint64_t end = 0;                          // Behind its last one; >= `fresh`.
    uint64_t fresh = 0;                        // The first sample that was never given; >= `first`.
    std::map<uint64_t, uint64_t> returned;     // Counts by first sample; all below `fresh`.
    std::map<uint64_t, Holder> held;           // By first sample; all below `fresh`.
    std::map<uint32_t, uint64_t> by_pipeline;  // Samples finished.
  };

  /// Samples [first, end).
  ClaimPool(uint64_t first, uint64_t end);

  /// At most `samples_max` > 0; fewer where a range ends. None: there is nothing to give now.
  std::optional<SampleClaim> claim(uint32_t pipeline, uint64_t samples_max);
  /// The pipeline replica's iteration over the range that begins at `first` has been applied.
  /// False, and nothing changes, if the pipeline replica does not hold it (a repeat, or it was
  /// taken for dead).
  bool finish(uint32_t pipeline, uint64_t first);
  /// What the pipeline replica has finished is gone with it, and is to be given again.
  void undo(uint32_t pipeline, SampleClaim claim);
  /// The pipeline replica has died or left: its claims are there to be given again.
  void forget(uint32_t pipeline);

  /// Nothing that was never given is given from `end` on, or from behind what has been given if
  /// that is more.
  void limit(uint64_t end);

  bool is_over() const;
  const State& state() const { return state_; }
  /// Full sweep over what `State` says of itself.
  void check_invariants() const;

 private:
  State state_;
};

}  // namespace skein::plans
