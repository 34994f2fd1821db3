#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actors/averaging/weight_chunks.hpp"
#include "net/data/data_plane.hpp"
#include "plans/base/ids.hpp"
#include "plans/sync/group_scheduler.hpp"

namespace skein::actors {

/// One replica's part in the groups that average weights. Not an actor: owned by one, and touched
/// only from its handlers.
///
/// A direct reduce-scatter and all-gather over the data plane, in chunks (`plans::WeightSlices`
/// says whose they are): each member sends its part of a chunk to the owner, who adds the parts up
/// in the order of the members and sends the average to the others. So all members end with the
/// same bits. One exchange of F floats among k members costs each of them 2 (k - 1) / k * F floats
/// out and as many in, and less than one chunk of padding per vector. While it runs, it holds F
/// floats that are sent and F that come in, beside the chunks that are being added up.
///
/// Where the group is to reduce tensors by Adasum, the owners tell each other the dot products of
/// their chunks first (`net::AdasumChunks`); until they have, they hold the parts of all of theirs.
///
/// A replica is in one group at a time, and numbers ascend: a group is over when it is done or
/// aborted, and when one with a higher number begins or is aborted. Parts may come before
/// `begin`, whose word is on another way: they are kept. Averages cannot, as they need our part.
/// Chunks that are late, repeated or of a wrong shape are dropped.
class WeightExchange {
 public:
  struct Options {
    WeightStreams streams;  // Its `on_chunk` brings the chunk to ours.
    size_t floats_max =
        0;  // The largest vector that is exchanged has so many; the same on all members.
    /// Floats of the tensors with which a vector begins that is reduced by Adasum; empty: none is.
    std::vector<size_t> tensors = {};
  };
  /// Opens the streams.
  explicit WeightExchange(Options options);
  ~WeightExchange();
  WeightExchange(const WeightExchange&) = delete;
  WeightExchange& operator=(const WeightExchange&) = delete;

  struct Done {
    uint64_t number = 0;
    std::vector<float> values;  // sum of weight * contribution; or Adasum, where that is wanted.
  };
  enum class How { kMean, kAdasum };

  /// Our part of group `number` begins. A group that is over or under way is not begun again.
  ///
  /// `members`  >= 2, ascending, self among them, all with an address.
  /// `values`   our contribution, <= `floats_max`; those of all members are equally long.
  /// Returns    the result if nothing is awaited: all values are ours to average and the others'
  ///            parts were early.
  std::optional<Done> begin(uint64_t number, const std::vector<plans::GroupMember>& members,
                            std::vector<float> values, How how = How::kMean);
  /// Returns the result if this was the last chunk that was awaited.
  std::optional<Done> on_chunk(const net::TensorKey& key, net::TensorHandle chunk);
  /// The group will not come about (a member died): its chunks are dropped, also late ones. May
  /// come before the group's `begin`, which then changes nothing.
  void abort(uint64_t number);

 private:
  struct Group;
  /// Values of a chunk, padded, and who keeps them.
  struct Chunk {
    std::shared_ptr<const void> owner;
    std::span<const float> values;
  };
  /// Parts of groups that have not begun, by number and by what the key says of member and chunk.
  using Early = std::map<std::pair<uint64_t, uint32_t>, net::TensorHandle>;

  bool is_over(uint64_t number) const { return newest_ && number < *newest_; }
  void keep_early(const net::TensorKey& key, net::TensorHandle chunk);
  void take(const net::TensorKey& key, const net::TensorHandle& chunk);
  void send_parts();
  /// All parts of one of our chunks are there.
  void on_parts(uint32_t chunk);
  void say_dots();
  void try_reduce();
  void add_up(uint32_t chunk);
  std::vector<std::span<const float>> parts_of(uint32_t chunk) const;
  std::vector<double> weights() const;
  Chunk own_part(uint32_t chunk) const;
  void keep_average(uint32_t chunk, std::span<const float> average);
  void send(net::schema::TensorKind kind, uint32_t to, uint32_t chunk, Chunk content);
  std::optional<Done> finish();

  const Options options_;
  const uint32_t chunk_floats_;
  const uint64_t parts_max_;        // That one group may send us.
  const uint32_t dots_floats_;      // That travel in the largest group; 0: there is no Adasum.
  std::unique_ptr<Group> group_;    // None between groups.
  std::optional<uint64_t> newest_;  // Number of the newest group that was begun or aborted.
  Early early_;                     // At most `parts_max_`.
};

}  // namespace skein::actors
