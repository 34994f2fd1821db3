#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace skein::plans {

/// The samples [first, first + count) of the data order.
struct SampleLease {
  uint64_t first = 0;
  uint64_t count = 0;
  bool operator==(const SampleLease&) const = default;
};

/// All that a pool knows; what has to survive.
struct LeaseState {
  struct Holder {
    uint32_t column = 0;
    uint64_t count = 0;
    bool operator==(const Holder&) const = default;
  };
  uint64_t samples = 0;                    // After which the run is over.
  uint64_t samples_each = 0;               // Of a lease, > 0; the last one may be shorter.
  uint64_t fresh = 0;                      // First sample that was never given.
  std::map<uint64_t, uint64_t> returned;   // Counts by first sample.
  std::map<uint64_t, Holder> held;         // By first sample.
  std::map<uint32_t, uint64_t> by_column;  // Samples finished: the samples per shard.
  bool operator==(const LeaseState&) const = default;
};

/// Hands out the samples of an asynchronous run, one range per iteration of a column, so that each
/// sample is finished exactly once, whoever dies. A column holds as many leases as it has
/// iterations in its pipeline. Not thread-safe.
///
/// What a dead column has not finished goes back to the pool and is given first, the lowest range
/// first. "Finished" is what this pool was told: a column that dies between its update and the word
/// of it has its range done again by another one; and so has one whose work is `undo`ne.
///
/// When nothing is left to give, a column drains its pipeline and ends; but as long as others hold
/// leases, one of them may die. So the run is over only when `is_over`, and a column that has ended
/// asks again when `forget` returns true.
class LeasePool {
 public:
  LeasePool(uint64_t samples, uint64_t samples_each);
  /// Goes on from there: its columns still hold what they held, until they are forgotten.
  explicit LeasePool(LeaseState state);

  /// None: there is nothing to give now.
  std::optional<SampleLease> lease(uint32_t column);
  /// The column's iteration over the range that begins at `first` has been applied. False, and
  /// nothing changes, if the column does not hold it (a repeat, or it was taken for dead).
  bool finish(uint32_t column, uint64_t first);
  /// What the column has finished is gone with it, and is to be given again.
  void undo(uint32_t column, SampleLease lease);
  /// The column has died or left. True: its leases are there to be given again.
  bool forget(uint32_t column);

  /// Nothing that was never given is given beyond `samples`, or what has been given if that is
  /// more.
  void limit(uint64_t samples);

  bool is_over() const;
  uint64_t finished_samples() const;
  const LeaseState& state() const { return state_; }

 private:
  LeaseState state_;
};

}  // namespace skein::plans
