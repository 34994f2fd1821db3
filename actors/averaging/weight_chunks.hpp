#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "net/data/data_plane.hpp"
#include "plans/base/ids.hpp"

namespace skein::actors {

/// Whose chunk it is and which one: what `TensorKey::microbatch` says of weights that travel.
struct ChunkPlace {
  uint32_t sender = 0;  // As its group, or its stage, counts. < kChunkSendersMax
  uint32_t chunk = 0;   // < kChunksMax
};
inline constexpr uint64_t kChunksMax = 1u << 20;
inline constexpr uint64_t kChunkSendersMax = 1u << 12;
/// Weights are copied as soon as they arrive; so many chunks may wait for that.
inline constexpr uint64_t kPullsMax = 16;
ChunkPlace place_of(const net::TensorKey& key);

/// One replica's end of the streams on which the weights of its stage travel, in chunks of equally
/// many floats.
struct WeightStreams {
  std::shared_ptr<net::DataPlane> plane;
  uint64_t generation = 0;
  plans::ReplicaId self;
  std::map<plans::ReplicaId, std::string> addresses;  // Data planes of the stage's replicas.
  /// Called on any thread.
  std::function<void(const net::TensorKey&, net::TensorHandle)> on_chunk;

  void open(net::schema::TensorKind kind, uint32_t chunk_floats, uint64_t tensors_max) const;
  /// `values` is a whole chunk, and stays alive through `owner` until it is sent.
  void send(net::schema::TensorKind kind, plans::ReplicaId to, uint64_t number,
            const ChunkPlace& place, std::span<const float> values,
            std::shared_ptr<const void> owner) const;
  /// It is for us, in this generation, and of the right size.
  bool fits(const net::TensorKey& key, const net::TensorHandle& chunk, uint32_t chunk_floats) const;
};

}  // namespace skein::actors
