#include "net/reduce/top_k.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "plans/base/check.hpp"

namespace skein::net {
namespace {

constexpr uint32_t kInfinityBits = 0x7f800000;
constexpr size_t kBlock = 4096;    // Floats that stay in the first-level cache for a whole pass.
constexpr size_t kThresholds = 7;  // Counted in one pass: as many as hide behind memory.
constexpr int kPassesMax = 16;     // Each takes 3 of 31 bits off the range, the first maybe none.
constexpr size_t kBandShare = 64;  // A band of n / 64 values is sorted out exactly.

/// Magnitudes in the order of their bits, which is that of their values.
uint32_t magnitude(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffff; }

/// Values in [low, high) may be selected, those of `high` and above are.
struct Band {
  uint32_t low = 0;
  uint32_t high = 0;
  size_t reach_low = 0;   // Values at `low` or above: k or more.
  size_t reach_high = 0;  // Values at `high` or above: less than k.
};

using Thresholds = std::array<uint32_t, kThresholds>;

/// How many values reach each threshold.
std::array<size_t, kThresholds> count_reaching(std::span<const float> values,
                                               const Thresholds& thresholds) {
  std::array<size_t, kThresholds> counts{};
  for (size_t begin = 0; begin < values.size(); begin += kBlock) {
    const auto block = values.subspan(begin, std::min(kBlock, values.size() - begin));
    for (size_t t = 0; t < kThresholds; ++t) {
      const auto threshold = static_cast<int32_t>(thresholds[t]);
      int32_t count = 0;
      for (float value : block) count += static_cast<int32_t>(magnitude(value)) >= threshold;
      counts[t] += static_cast<size_t>(count);
    }
  }
  return counts;
}

/// The whole range, and the bits of the mean magnitude, which few values of most gradients exceed.
Band whole_range(std::span<const float> values, uint32_t& mean) {
  constexpr size_t kLanes = 8;
  std::array<uint32_t, kLanes> largest{};
  std::array<double, kLanes> sums{};
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t bits = magnitude(values[i]);
    largest[i % kLanes] = std::max(largest[i % kLanes], bits);
    sums[i % kLanes] += std::bit_cast<float>(bits);
  }
  double sum = 0;
  for (double each : sums) sum += each;
  mean = std::bit_cast<uint32_t>(static_cast<float>(sum / static_cast<double>(values.size())));
  const uint32_t top = *std::max_element(largest.begin(), largest.end());
  return {0, top + 1, values.size(), 0};
}

void narrow(std::span<const float> values, size_t k, const Thresholds& thresholds, Band& band) {
  const auto counts = count_reaching(values, thresholds);
  for (size_t t = 0; t < kThresholds; ++t) {
    if (counts[t] >= k && thresholds[t] > band.low) {
      band.low = thresholds[t];
      band.reach_low = counts[t];
    }
    if (counts[t] < k && thresholds[t] < band.high) {
      band.high = thresholds[t];
      band.reach_high = counts[t];
    }
  }
}

/// Thresholds that cut [from, to) into even parts.
Thresholds evenly(uint32_t from, uint32_t to) {
  Thresholds thresholds;
  for (size_t t = 0; t < kThresholds; ++t) {
    const uint64_t part = uint64_t{to - from} * (t + 1) / (kThresholds + 1);
    thresholds[t] = from + static_cast<uint32_t>(part);
  }
  return thresholds;
}

Band find_band(std::span<const float> values, size_t k) {
  uint32_t mean = 0;
  Band band = whole_range(values, mean);
  const size_t band_max = std::max(k / 4, values.size() / kBandShare);
  uint32_t from = std::min(mean, band.high - 1);
  for (int pass = 0; pass < kPassesMax; ++pass) {
    if (band.high - band.low <= 1 || band.reach_low - band.reach_high <= band_max) break;
    Thresholds thresholds = evenly(from, band.high);
    if (from > band.low) thresholds[0] = from;
    narrow(values, k, thresholds, band);
    from = band.low;
  }
  return band;
}

}  // namespace

void select_top_k(std::span<const float> values, size_t k, std::vector<uint32_t>& indices) {
  SKEIN_CHECK(values.size() <= UINT32_MAX) << values.size() << " values";
  indices.clear();
  k = std::min(k, values.size());
  if (k == 0) return;
  const Band band = find_band(values, k);
  struct Candidate {
    uint32_t bits;
    uint32_t index;
  };
  std::vector<Candidate> candidates;
  candidates.reserve(band.reach_low - band.reach_high);
  indices.reserve(k);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t bits = magnitude(values[i]);
    if (bits < band.low) continue;
    if (bits >= band.high) {
      indices.push_back(static_cast<uint32_t>(i));
    } else {
      candidates.push_back({bits, static_cast<uint32_t>(i)});
    }
  }
  const size_t missing = k - indices.size();
  SKEIN_CHECK(missing <= candidates.size()) << missing << " of " << candidates.size();
  std::nth_element(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(missing),
                   candidates.end(), [](const Candidate& a, const Candidate& b) {
                     return a.bits != b.bits ? a.bits > b.bits : a.index < b.index;
                   });
  for (size_t i = 0; i < missing; ++i) indices.push_back(candidates[i].index);
  std::sort(indices.begin(), indices.end());
}

bool are_finite(std::span<const float> values) {
  uint32_t largest = 0;
  for (float value : values) largest = std::max(largest, magnitude(value));
  return largest < kInfinityBits;
}

size_t top_k_count(double density, size_t floats) {
  const double wanted = std::ceil(density * static_cast<double>(floats));
  return std::clamp<size_t>(static_cast<size_t>(std::max(wanted, 0.0)), floats == 0 ? 0 : 1,
                            floats);
}

}  // namespace skein::net
