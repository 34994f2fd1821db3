#include "actors/averaging/weight_chunks.hpp"

#include <algorithm>
#include <utility>

namespace skein::actors {
namespace {

constexpr uint32_t kChunkBits = 20;
static_assert(kChunksMax == uint64_t{1} << kChunkBits);
static_assert(kChunkSendersMax == uint64_t{1} << (32 - kChunkBits));

}  // namespace

ChunkPlace place_of(const net::TensorKey& key) {
  return {key.microbatch >> kChunkBits, key.microbatch & static_cast<uint32_t>(kChunksMax - 1)};
}

void WeightStreams::open(net::schema::TensorKind kind, uint32_t chunk_floats,
                         uint64_t tensors_max) const {
  net::TensorInbox::StreamSpec stream;
  stream.generation = generation;
  stream.receiver = self.value;
  stream.kind = kind;
  stream.row_count = 1;
  stream.row_floats = chunk_floats;
  stream.tensors_max = static_cast<uint32_t>(std::clamp<uint64_t>(tensors_max, 1, UINT32_MAX));
  stream.on_tensor = on_chunk;
  plane->inbox().open(std::move(stream));
}

void WeightStreams::send(net::schema::TensorKind kind, plans::ReplicaId to, uint64_t number,
                         const ChunkPlace& place, std::span<const float> values,
                         std::shared_ptr<const void> owner) const {
  net::DataPlane::Rows rows;
  rows.key = {generation, to.value, kind, number, place.sender << kChunkBits | place.chunk};
  rows.sender = self.value;
  rows.row_count = 1;
  rows.payload = values;
  rows.owner = std::move(owner);
  plane->send(addresses.at(to), std::move(rows));
}

bool WeightStreams::fits(const net::TensorKey& key, const net::TensorHandle& chunk,
                         uint32_t chunk_floats) const {
  return chunk && chunk->size() == chunk_floats && key.generation == generation &&
         key.receiver == self.value;
}

}  // namespace skein::actors
