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

/// All that a pool knows; what has to survive.
struct ClaimState {
  struct Holder {
    uint32_t pipeline = 0;
    uint64_t count = 0;
    bool operator==(const Holder&) const = default;
  };
  uint64_t samples = 0;                   // After which the run is over.
  uint64_t samples_each = 0;              // Samples of a claim, > 0; the last one may be shorter.
  uint64_t fresh = 0;                     // First sample that was never given.
  std::map<uint64_t, uint64_t> returned;  // Counts by first sample.
  std::map<uint64_t, Holder> held;        // By first sample.
  std::map<uint32_t, uint64_t> by_pipeline;  // Samples finished: the samples per shard.
  bool operator==(const ClaimState&) const = default;
};

/// Hands out the samples of an asynchronous run, one range per iteration of a pipeline replica, so
/// that each sample is finished exactly once, whoever dies. A pipeline replica holds as many claims
/// as it has iterations in its pipeline. Not thread-safe.
///
/// What a dead pipeline replica has not finished goes back to the pool and is given first, the
/// lowest range first. "Finished" is what this pool was told: a pipeline replica that dies between
/// its update and the word of it has its range done again by another one; and so has one whose work
/// is `undo`ne.
///
/// When nothing is left to give, a pipeline replica drains its pipeline and ends; but as long as
/// others hold claims, one of them may die. So the run is over only when `is_over`, and a pipeline
/// replica that has ended asks again when `forget` returns true.
class ClaimPool {
 public:
  ClaimPool(uint64_t samples, uint64_t samples_each);
  /// Goes on from there: its pipeline replicas still hold what they held, until they are forgotten.
  explicit ClaimPool(ClaimState state);

  /// None: there is nothing to give now.
  std::optional<SampleClaim> claim(uint32_t pipeline);
  /// The pipeline replica's iteration over the range that begins at `first` has been applied.
  /// False, and nothing changes, if the pipeline replica does not hold it (a repeat, or it was
  /// taken for dead).
  bool finish(uint32_t pipeline, uint64_t first);
  /// What the pipeline replica has finished is gone with it, and is to be given again.
  void undo(uint32_t pipeline, SampleClaim claim);
  /// The pipeline replica has died or left. True: its claims are there to be given again.
  bool forget(uint32_t pipeline);

  /// Nothing that was never given is given beyond `samples`, or what has been given if that is
  /// more.
  void limit(uint64_t samples);

  bool is_over() const;
  uint64_t finished_samples() const;
  const ClaimState& state() const { return state_; }

 private:
  ClaimState state_;
};

}  // namespace skein::plans
