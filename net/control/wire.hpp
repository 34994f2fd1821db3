#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/array.h>

#include "absl/status/statusor.h"

namespace skein::net {

/// Largest control message that is sent or accepted. A plan of 1,000 replicas has 100 kB; a shard's
/// list of tensors less.
inline constexpr uint64_t kControlBytesMax = 4 << 20;
/// Words that a reader may traverse: every field of the largest message several times over.
inline constexpr uint64_t kTraversalWordsMax = 4 * kControlBytesMax / 8;

/// An immutable message of schema type `T` in its encoded form, shared by copies. Thread-safe.
/// Size-checked when made; whether its values make sense is checked where they are used.
template <class T>
class Wire {
 public:
  using Reader = typename T::Reader;

  /// Encodes `message`. The caller keeps within kControlBytesMax.
  static Wire encode(capnp::MessageBuilder& message) {
    return Wire(capnp::messageToFlatArray(message));
  }

  /// Takes the encoded form (Cap'n Proto's stream framing, whole words) from a peer.
  /// InvalidArgument   if it is no message, larger than kControlBytesMax, or nested too deeply.
  static absl::StatusOr<Wire> parse(std::span<const std::byte> bytes);

  Reader operator*() const { return message_->root; }
  std::span<const std::byte> bytes() const;

 private:
  struct Message {
    explicit Message(kj::Array<capnp::word> encoded);
    kj::Array<capnp::word> words;
    capnp::FlatArrayMessageReader reader;
    Reader root;
  };
  explicit Wire(kj::Array<capnp::word> words)
      : message_(std::make_shared<const Message>(std::move(words))) {}
  explicit Wire(std::shared_ptr<const Message> message) : message_(std::move(message)) {}

  std::shared_ptr<const Message> message_;
};

}  // namespace skein::net
