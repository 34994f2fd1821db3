#include "net/reduce/top_k.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>

#include "plans/base/check.hpp"

namespace skein::net {
namespace {

constexpr uint32_t kInfinityBits = 0x7f800000;
constexpr size_t kBlock = 4096;    // Floats that stay in the first-level cache for a whole pass.
constexpr size_t kThresholds = 7;  // Counted in one pass: as many as hide behind memory.
constexpr size_t kSample = 2048;   // Values from which the first thresholds come.
constexpr size_t kBandShare = 64;  // Among n / 64 values or less the cut is found exactly.
constexpr int kPassesMax = 16;     // Each but the first takes 3 of 31 bits off the range.
constexpr size_t kChunk = 32;      // Floats that are passed over together.

/// Magnitudes in the order of their bits, which is that of their values.
uint32_t magnitude(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffff; }

/// The k-th largest magnitude is in [low, high).
struct Band {
  uint32_t low = 0;
  uint32_t high = kInfinityBits;
  size_t reach_low = 0;   // Values of `low` or more: k or more of them.
  size_t reach_high = 0;  // Values of `high` or more: less than k.
};

/// What is selected: magnitudes above `bits`, and the first `ties` that equal it.
struct Cut {
  uint32_t bits = 0;
  size_t ties = 0;
};

using Thresholds = std::array<uint32_t, kThresholds>;

/// By itself, as the compiler interchanges the loop with one around it and then cannot vectorise.
[[gnu::noinline]] size_t count_at_least(std::span<const float> values, uint32_t threshold) {
  uint32_t count = 0;
  for (float value : values) count += magnitude(value) >= threshold ? 1 : 0;
  return count;
}

/// How many values reach each threshold.
std::array<size_t, kThresholds> count_reaching(std::span<const float> values,
                                               const Thresholds& thresholds) {
  std::array<size_t, kThresholds> counts{};
  for (size_t begin = 0; begin < values.size(); begin += kBlock) {
    const auto block = values.subspan(begin, std::min(kBlock, values.size() - begin));
    for (size_t t = 0; t < kThresholds; ++t) counts[t] += count_at_least(block, thresholds[t]);
  }
  return counts;
}

/// The largest magnitude of the kChunk values.
uint32_t largest_of_chunk(const float* values) {
  uint32_t largest = 0;
  for (size_t i = 0; i < kChunk; ++i) largest = std::max(largest, magnitude(values[i]));
  return largest;
}

/// Thresholds around the place of the k-th magnitude in a sample, at about 1 and 3 standard
/// deviations of that place; the next one above the middle, so that many equal values are a band of
/// their own; and the smallest above 0.
Thresholds sampled_thresholds(std::span<const float> values, size_t k) {
  const size_t stride = (values.size() + kSample - 1) / kSample;
  std::vector<uint32_t> sample;
  for (size_t i = 0; i < values.size(); i += stride) sample.push_back(magnitude(values[i]));
  std::sort(sample.begin(), sample.end(), std::greater<>());
  const double place = static_cast<double>(k) / static_cast<double>(stride);
  const double deviation = std::sqrt(place + 1);
  auto at = [&](double deviations) {
    const double index = place + deviations * deviation;
    return sample[static_cast<size_t>(std::clamp(index, 0.0, double(sample.size() - 1)))];
  };
  return {at(-3), at(-1), at(0), at(0) + 1, at(1), at(3), 1};
}

/// Thresholds that cut the band into even parts, in the logarithm of the magnitude, nearly.
Thresholds even_thresholds(const Band& band) {
  Thresholds thresholds;
  for (size_t t = 0; t < kThresholds; ++t) {
    const uint64_t part = uint64_t{band.high - band.low} * (t + 1) / (kThresholds + 1);
    thresholds[t] = band.low + static_cast<uint32_t>(part);
  }
  return thresholds;
}

Band find_band(std::span<const float> values, size_t k) {
  Band band;
  band.reach_low = values.size();
  const size_t band_max = values.size() / kBandShare;
  for (int pass = 0; pass < kPassesMax; ++pass) {
    if (band.high - band.low <= 1 || band.reach_low - band.reach_high <= band_max) break;
    const Thresholds thresholds = pass == 0 ? sampled_thresholds(values, k) : even_thresholds(band);
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
  return band;
}

/// Calls `visit(index, bits)` for all values of chunks of which any reaches `low`, in order.
template <class Visit>
void for_chunks_reaching(std::span<const float> values, uint32_t low, Visit visit) {
  size_t i = 0;
  for (; i + kChunk <= values.size(); i += kChunk) {
    if (largest_of_chunk(values.data() + i) < low) continue;
    for (size_t j = 0; j < kChunk; ++j) visit(i + j, magnitude(values[i + j]));
  }
  for (; i < values.size(); ++i) visit(i, magnitude(values[i]));
}

Cut find_cut(std::span<const float> values, size_t k) {
  const Band band = find_band(values, k);
  const size_t missing = k - band.reach_high;  // To be selected from the band, 1 or more.
  if (band.high - band.low <= 1) return {band.low, missing};
  std::vector<uint32_t> bits(band.reach_low - band.reach_high + 1);  // One more to be written over.
  size_t count = 0;
  for_chunks_reaching(values, band.low, [&](size_t, uint32_t each) {
    bits[count] = each;
    count += each >= band.low && each < band.high;
  });
  SKEIN_CHECK(missing <= count && count + 1 == bits.size()) << missing << " of " << count;
  const auto last = bits.begin() + static_cast<std::ptrdiff_t>(missing - 1);
  std::nth_element(bits.begin(), last, bits.begin() + static_cast<std::ptrdiff_t>(count),
                   std::greater<>());
  const auto above = std::count_if(bits.begin(), last, [&](uint32_t each) { return each > *last; });
  return {*last, missing - static_cast<size_t>(above)};
}

}  // namespace

void select_top_k(std::span<const float> values, size_t k, std::vector<uint32_t>& indices) {
  SKEIN_CHECK(values.size() <= UINT32_MAX) << values.size() << " values";
  k = std::min(k, values.size());
  indices.assign(k == 0 ? 0 : k + 1, 0);  // One more to be written over.
  if (k == 0) return;
  Cut cut = find_cut(values, k);
  size_t count = 0;
  for_chunks_reaching(values, cut.bits, [&](size_t index, uint32_t bits) {
    const bool is_tie = bits == cut.bits && cut.ties > 0;
    cut.ties -= is_tie;
    indices[count] = static_cast<uint32_t>(index);
    count += bits > cut.bits || is_tie;
  });
  SKEIN_CHECK(count == k) << count << " selected of " << k;
  indices.resize(k);
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
