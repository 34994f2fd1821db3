#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace skein::net {

/// Adasum of the vectors of a group whose members each own some chunks of them, and have all
/// members' parts of these: each adds up the dot products of its chunks, all tell each other, and
/// then each combines its chunks as `adasum_coefficients` says. So the vectors travel as for a
/// mean, and the dot products of all pairs of members besides. Source of the operator: Maleki et
/// al., MLSys'21. Differs: the paper's ranks combine in pairs, level by level; that is the same but
/// for rounding.
///
/// The vectors begin with tensors, each of which is combined for itself; what follows these is a
/// weighted mean. All members end with the same bits. Not thread-safe.
class AdasumChunks {
 public:
  struct Options {
    std::vector<size_t> tensors;  // Floats of each.
    uint32_t member_count = 0;    // >= 1.
    uint32_t chunk_floats = 0;    // >= 1.
  };
  explicit AdasumChunks(Options options);

  using Parts = std::span<const std::span<const float>>;
  /// All parts, by member, of a chunk of ours. Once for each, before `dots`.
  void add(uint32_t chunk, Parts parts);

  /// Floats of what one member says.
  static size_t dots_floats(size_t tensor_count, uint32_t member_count);
  /// What we say of our chunks: `dots_floats` of them.
  std::vector<float> dots() const;
  /// What `member`, or we ourselves, say. Of another size, or a repeat: nothing happens.
  void on_dots(uint32_t member, std::span<const float> dots);
  size_t dots_count() const { return said_.size(); }

  /// The result of a chunk of ours, once all owners of chunks have said their dots.
  void reduce(uint32_t chunk, Parts parts, std::span<const double> weights, std::span<float> out);

 private:
  size_t pairs() const { return pairs_of(options_.member_count); }
  static size_t pairs_of(size_t members) { return members * (members + 1) / 2; }
  /// Calls `visit` with each tensor's number, or its count for what follows them, and with the
  /// piece of the chunk that it has.
  template <class Visit>
  void for_each_piece(uint32_t chunk, size_t floats, Visit visit) const;
  void find_coefficients();

  const Options options_;
  std::vector<double> own_;                        // [tensors, pairs]: of our chunks.
  std::map<uint32_t, std::vector<double>> said_;   // By member.
  std::vector<std::vector<double>> coefficients_;  // [tensors][members], once they are found.
};

}  // namespace skein::net
