#include "plans/job/sample_order.hpp"

#include "plans/base/check.hpp"
#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

constexpr int kRounds = 4;  // Luby and Rackoff: four rounds give a strong pseudorandom permutation.

/// Bits of one half of the smallest even-width number that holds [0, count).
int half_bits(uint64_t count) {
  int half = 1;
  while (half < 32 && (uint64_t{1} << (2 * half)) < count) ++half;
  return half;
}

uint64_t feistel(uint64_t value, int half, uint64_t seed, uint64_t pass) {
  const uint64_t mask = (uint64_t{1} << half) - 1;
  uint64_t left = value >> half;
  uint64_t right = value & mask;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t mixed = random_bits(seed, pass * kRounds + static_cast<uint64_t>(round), right);
    const uint64_t next = left ^ (mixed & mask);
    left = right;
    right = next;
  }
  return (left << half) | right;
}

}  // namespace

uint64_t SampleOrder::window(uint64_t sample) const {
  SKEIN_CHECK(window_count > 0) << "no windows";
  const int half = half_bits(window_count);
  uint64_t value = sample % window_count;
  // The walk leaves the domain's surplus behind; it ends as the permutation is a cycle, and takes
  // fewer than four turns on average as the domain is at most four times too large.
  do {
    value = feistel(value, half, seed, sample / window_count);
  } while (value >= window_count);
  return value;
}

uint64_t first_sample(uint64_t step, uint64_t global_batch_size) {
  return step * global_batch_size;
}

}  // namespace skein::plans
