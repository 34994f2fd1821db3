#include "plans/collectives/weight_slices.hpp"

#include <algorithm>
#include <array>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

/// Enough for slices that hardly differ and for sending while others are added up.
constexpr uint64_t kChunksAimed = 64;
/// 4 KiB: below it, a chunk's header and message would cost more than its values.
constexpr uint64_t kChunkFloatsMin = 1024;
/// 256 KiB: the parts that an owner adds up at once stay in a processor's cache.
constexpr uint64_t kChunkFloatsMax = 65536;
/// Sums that are kept in double at a time: 8 KiB.
constexpr size_t kBlockFloats = 1024;

}  // namespace

uint32_t weight_chunk_floats(uint64_t floats_max) {
  return static_cast<uint32_t>(
      std::clamp(floats_max / kChunksAimed, kChunkFloatsMin, kChunkFloatsMax));
}

uint64_t weight_chunk_count(uint64_t floats, uint32_t chunk_floats) {
  return floats / chunk_floats + (floats % chunk_floats > 0 ? 1 : 0);
}

uint64_t weight_parts_max(uint64_t chunk_count, uint32_t members_max) {
  uint64_t most = 0;
  for (uint64_t members = 2; members <= members_max; ++members) {
    const uint64_t own = (chunk_count + members - 1) / members;
    most = std::max(most, own * (members - 1));
  }
  return most;
}

void add_weighted(std::span<const std::span<const float>> parts, std::span<const double> weights,
                  std::span<float> out) {
  SKEIN_CHECK(parts.size() == weights.size()) << parts.size() << " parts, " << weights.size();
  for (size_t begin = 0; begin < out.size(); begin += kBlockFloats) {
    const size_t count = std::min(kBlockFloats, out.size() - begin);
    std::array<double, kBlockFloats> sums{};
    for (size_t m = 0; m < parts.size(); ++m) {
      const std::span<const float> part = parts[m].subspan(begin, count);
      for (size_t i = 0; i < count; ++i) sums[i] += weights[m] * static_cast<double>(part[i]);
    }
    for (size_t i = 0; i < count; ++i) out[begin + i] = static_cast<float>(sums[i]);
  }
}

uint32_t chunk_owner(uint32_t chunk, uint32_t chunk_count, uint32_t owner_count) {
  return static_cast<uint32_t>(uint64_t{chunk} * owner_count / chunk_count);
}

ChunkRange chunks_owned_by(uint32_t owner, uint32_t chunk_count, uint32_t owner_count) {
  // The first chunk c with c * k / C >= k'.
  const auto first_of = [&](uint64_t k) {
    return static_cast<uint32_t>((k * chunk_count + owner_count - 1) / owner_count);
  };
  return {first_of(owner), first_of(uint64_t{owner} + 1)};
}

WeightSlices::WeightSlices(const Options& options)
    : options_(options), averages_missing_(options.chunk_count) {
  SKEIN_CHECK(options.member_count >= 2 && options.self < options.member_count)
      << "member " << options.self << " of " << options.member_count;
  own_ = owned_by(options.self);
  const size_t own_count = own_.end - own_.begin;
  has_part_.resize(own_count * options.member_count);
  others_missing_.assign(own_count, options.member_count - 1);
  has_average_.resize(options.chunk_count);
}

WeightSlices::Part WeightSlices::on_part(uint32_t member, uint32_t chunk) {
  if (member >= options_.member_count || member == options_.self) return Part::kUnfit;
  if (chunk < own_.begin || chunk >= own_.end) return Part::kUnfit;
  const size_t own = chunk - own_.begin;
  const size_t place = own * options_.member_count + member;
  if (has_part_[place]) return Part::kUnfit;
  has_part_[place] = true;
  if (--others_missing_[own] > 0) return Part::kKept;
  has_average_[chunk] = true;
  --averages_missing_;
  return Part::kComplete;
}

bool WeightSlices::on_average(uint32_t member, uint32_t chunk) {
  if (member == options_.self || chunk >= options_.chunk_count) return false;
  if (owner_of(chunk) != member || has_average_[chunk]) return false;
  has_average_[chunk] = true;
  --averages_missing_;
  return true;
}

}  // namespace skein::plans
