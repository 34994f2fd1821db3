#include "plans/base/rng.hpp"

#include <cmath>
#include <numbers>

#include "plans/base/fnv.hpp"

namespace skein::plans {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio, as in SplitMix64.

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t counter) {
  const uint64_t key = mix(mix(seed + kGolden) ^ stream);
  return mix(key + (counter + 1) * kGolden);
}

double random_uniform(uint64_t seed, uint64_t stream, uint64_t counter) {
  return static_cast<double>(random_bits(seed, stream, counter) >> 11) * 0x1.0p-53;
}

double random_normal(uint64_t seed, uint64_t stream, uint64_t counter) {
  // 1 - u lies in (0, 1], so the logarithm is finite.
  const double radius = std::sqrt(-2 * std::log(1 - random_uniform(seed, stream, 2 * counter)));
  return radius * std::cos(2 * std::numbers::pi * random_uniform(seed, stream, 2 * counter + 1));
}

uint64_t random_stream(const char* text, uint64_t length) {
  uint64_t hash = kFnvOffset;
  for (uint64_t i = 0; i < length; ++i) {
    hash = add_to_fnv(hash, static_cast<unsigned char>(text[i]));
  }
  return hash;
}

}  // namespace skein::plans
