#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace skein::plans {

/// Floats of one chunk of vectors of up to `floats_max` floats: a function of what all replicas of
/// a stage know. The last chunk of a vector is padded to it.
uint32_t weight_chunk_floats(uint64_t floats_max);

/// Chunks of a vector; 0 of an empty one.
uint64_t weight_chunk_count(uint64_t floats, uint32_t chunk_floats);

/// Parts that the members of a group of at most `members_max` send to one of them, at most.
uint64_t weight_parts_max(uint64_t chunk_count, uint32_t members_max);

/// out[i] = sum over m of weights[m] * parts[m][i], added up in double in the order of the members,
/// then rounded. All spans of one length; `out` is overwritten.
void add_weighted(std::span<const std::span<const float>> parts, std::span<const double> weights,
                  std::span<float> out);

/// Chunks [begin, end).
struct ChunkRange {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool operator==(const ChunkRange&) const = default;
};

/// Chunk c of C belongs to owner c * k / C of k: contiguous slices, of C / k chunks each, rounded
/// up or down; none for some if C < k.
uint32_t chunk_owner(uint32_t chunk, uint32_t chunk_count, uint32_t owner_count);
ChunkRange chunks_owned_by(uint32_t owner, uint32_t chunk_count, uint32_t owner_count);

/// What one member of a group that averages weights still awaits. Not thread-safe.
///
/// The members own the chunks. A direct reduce-scatter and all-gather: everybody sends its part of
/// a chunk to the owner, which averages the parts and sends the average to everybody. Members that
/// own no chunk (C < k) only send parts and take averages.
class WeightSlices {
 public:
  struct Options {
    uint32_t chunk_count = 0;
    uint32_t member_count = 0;  // >= 2.
    uint32_t self = 0;          // < member_count.
  };
  explicit WeightSlices(const Options& options);

  uint32_t chunk_count() const { return options_.chunk_count; }
  uint32_t owner_of(uint32_t chunk) const {
    return chunk_owner(chunk, options_.chunk_count, options_.member_count);
  }
  ChunkRange owned_by(uint32_t member) const {
    return chunks_owned_by(member, options_.chunk_count, options_.member_count);
  }

  enum class Part {
    kUnfit,     // A repeat, of no other member, or of no chunk of ours: to be dropped.
    kKept,      // Parts of others are still missing.
    kComplete,  // The last one: the average can be made, and counts as there.
  };
  Part on_part(uint32_t member, uint32_t chunk);
  /// False, and nothing changes, if it is a repeat or not `member`'s to send.
  bool on_average(uint32_t member, uint32_t chunk);

  /// The averages of all chunks are there; so no part is awaited, either.
  bool is_done() const { return averages_missing_ == 0; }

 private:
  Options options_;
  ChunkRange own_;
  std::vector<bool> has_part_;            // [own chunks, members]
  std::vector<uint32_t> others_missing_;  // [own chunks]
  std::vector<bool> has_average_;         // [chunks]
  uint32_t averages_missing_ = 0;
};

}  // namespace skein::plans
