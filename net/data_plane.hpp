#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/event_loop.hpp"
#include "net/tensor_inbox.hpp"

namespace skein::net {

struct DataPlaneStatistics {
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t dropped_headers = 0;  // Unknown stream, stale generation, repeated rows.
};

/// Sends tensors to other workers and receives theirs into a `TensorInbox`. Payload bytes go from
/// the sender's tensor to the socket and from the socket to the receiver's tensor with no copy in
/// between. One connection per (peer, receiving replica, kind), so that a receiver that waits for
/// one stream holds up no other; flow control is the receiver not reading. Thread-safe.
class DataPlane {
 public:
  struct Options {
    std::string listen_address = "127.0.0.1:0";
    bool insecure = false;
    /// A peer is listening before it is announced; it is given this long all the same.
    double connect_timeout_seconds = 10;
    /// Called on the loop's thread when a connection to a peer cannot be made or breaks.
    std::function<void(const std::string& address, absl::Status)> on_peer_lost;
  };

  static absl::StatusOr<std::unique_ptr<DataPlane>> start(EventLoop& loop, Options options);
  virtual ~DataPlane() = default;

  /// "host:port" to tell the others; the host is that of `listen_address`.
  virtual const std::string& address() const = 0;
  virtual TensorInbox& inbox() = 0;

  /// Rows [row_begin, row_begin + row_count) of the tensor `key` for replica `key.receiver` at
  /// `address`. `payload` stays alive through `owner` until it is written. Never blocks.
  struct Rows {
    TensorKey key;
    uint32_t sender = 0;  // Replica.
    uint32_t row_begin = 0;
    uint32_t row_count = 0;
    std::span<const float> payload;
    std::shared_ptr<const void> owner;
  };
  virtual void send(const std::string& address, Rows rows) = 0;

  virtual DataPlaneStatistics statistics() const = 0;
};

}  // namespace skein::net
