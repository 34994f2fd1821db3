#pragma once

#include <cstdint>

namespace skein::plans {

/// A counter-based random function: the value at `(seed, stream, counter)` depends on nothing else,
/// so what is drawn is the same however the work is partitioned. Mixing is that of SplitMix64
/// (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA'14).
uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t counter);

/// Uniform in [0, 1), from the upper 53 bits of `random_bits`.
double random_uniform(uint64_t seed, uint64_t stream, uint64_t counter);

/// Normal with mean 0 and variance 1, by Box and Muller from counters `2 * counter` and
/// `2 * counter + 1` of the stream.
double random_normal(uint64_t seed, uint64_t stream, uint64_t counter);

/// Names a stream: FNV-1a of the text, for example of a parameter's name.
uint64_t random_stream(const char* text, uint64_t length);

/// A sequence of `random_bits` of one stream, for code that draws one value after another.
class Rng {
 public:
  explicit Rng(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  uint64_t bits() { return random_bits(seed_, stream_, counter_++); }
  double uniform() { return random_uniform(seed_, stream_, counter_++); }
  /// Uniform in [0, bound); `bound` > 0.
  uint64_t below(uint64_t bound) { return bits() % bound; }

 private:
  uint64_t seed_;
  uint64_t stream_;
  uint64_t counter_ = 0;
};

}  // namespace skein::plans
