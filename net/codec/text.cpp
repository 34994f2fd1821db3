#include "net/codec/body_codec.hpp"

#include <algorithm>

#include "plans/text/text_messages.hpp"

namespace skein::net {
namespace {

/// In [1, max].
int64_t positive(Bounds& bounds, const char* field, uint64_t value, uint64_t max) {
  if (value == 0) bounds.refuse(field, "is 0, at least 1");
  return bounds.signed_count(field, value, max);
}

}  // namespace

void read(schema::TextRequest::Reader from, Bounds& bounds, plans::TextRequest& to) {
  to.folder = bounds.text("folder", from.getFolder(), kPathBytesMax);
  to.digest = from.getDigest();  // Any 64 bits.
  to.positions = positive(bounds, "positions", from.getPositions(), kSamplesMax);
  to.added = positive(bounds, "added", from.getAdded(), plans::kTextStepMax);
}

void write(const plans::TextRequest& from, schema::TextRequest::Builder to) {
  to.setFolder(from.folder);
  to.setDigest(from.digest);
  to.setPositions(static_cast<uint64_t>(from.positions));
  to.setAdded(static_cast<uint64_t>(from.added));
}

void read(schema::TextRoom::Reader from, Bounds& bounds, plans::TextRoom& to) {
  to.room.free_bytes = bounds.signed_count("freeBytes", from.getFreeBytes(), kBytesMax);
  to.room.fixed_bytes = bounds.signed_count("fixedBytes", from.getFixedBytes(), kBytesMax);
  to.is_host_memory = from.getIsHostMemory();
  const auto layers = from.getLayerBytes();
  const unsigned count = bounds.size("layerBytes", layers.size(), kLayersMax);
  to.room.layer_bytes.reserve(count);
  uint64_t sum = 0;
  for (unsigned i = 0; i < count; ++i) {
    const auto in = bounds.element("layerBytes", i);
    // All of them together fit into 64 bits.
    to.room.layer_bytes.push_back(bounds.signed_count("", layers[i], kLayerBytesMax));
    sum += static_cast<uint64_t>(to.room.layer_bytes.back());
  }
  to.room.shared_bytes =
      bounds.signed_count("sharedBytes", from.getSharedBytes(), std::min(sum, kBytesMax));
}

void write(const plans::TextRoom& from, schema::TextRoom::Builder to) {
  to.setFreeBytes(static_cast<uint64_t>(from.room.free_bytes));
  to.setFixedBytes(static_cast<uint64_t>(from.room.fixed_bytes));
  to.setSharedBytes(static_cast<uint64_t>(from.room.shared_bytes));
  to.setIsHostMemory(from.is_host_memory);
  auto layers = to.initLayerBytes(static_cast<unsigned>(from.room.layer_bytes.size()));
  for (unsigned i = 0; i < layers.size(); ++i) {
    layers.set(i, static_cast<uint64_t>(from.room.layer_bytes[i]));
  }
}

void read(schema::TextLayers::Reader from, Bounds& bounds, plans::TextLayers& to) {
  to.layers = bounds.layers("layerBegin", from.getLayerBegin(), from.getLayerEnd());
  to.previous = bounds.worker_or_none("previous", from.getPrevious());
  to.next = bounds.worker_or_none("next", from.getNext());
  to.next_address = bounds.name("nextAddress", from.getNextAddress());
  to.secret = from.getSecret();  // Any 64 bits.
}

void write(const plans::TextLayers& from, schema::TextLayers::Builder to) {
  to.setLayerBegin(static_cast<uint32_t>(from.layers.begin));
  to.setLayerEnd(static_cast<uint32_t>(from.layers.end));
  to.setPrevious(from.previous.value);
  to.setNext(from.next.value);
  to.setNextAddress(from.next_address);
  to.setSecret(from.secret);
}

void read(schema::TextStep::Reader from, Bounds& bounds, plans::TextStep& to) {
  to.number = bounds.count("number", from.getNumber(), kStepsMax);
  to.begin = bounds.signed_count("begin", from.getBegin(), kSamplesMax);
  to.count = positive(bounds, "count", from.getCount(), plans::kTextStepMax);
  const auto tokens = from.getTokens();
  const unsigned count = bounds.size("tokens", tokens.size(), plans::kTextStepMax);
  to.tokens.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    const auto in = bounds.element("tokens", i);
    to.tokens.push_back(static_cast<int32_t>(bounds.count("", tokens[i], kTokenMax)));
  }
}

void write(const plans::TextStep& from, schema::TextStep::Builder to) {
  to.setNumber(from.number);
  to.setBegin(static_cast<uint64_t>(from.begin));
  to.setCount(static_cast<uint32_t>(from.count));
  auto tokens = to.initTokens(static_cast<unsigned>(from.tokens.size()));
  for (unsigned i = 0; i < tokens.size(); ++i) {
    tokens.set(i, static_cast<uint32_t>(from.tokens[i]));
  }
}

}  // namespace skein::net
