#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/data/plan_secrets.hpp"
#include "net/data/tensor_inbox.hpp"
#include "net/event_loop.hpp"
#include "plans/base/ids.hpp"

namespace skein::net {

struct DataPlaneStatistics {
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t dropped_headers = 0;  // Unknown stream, stale or refused, repeated rows.
};

/// Sends tensors to other workers, and shards to the coordinator, and receives theirs into a
/// `TensorInbox`. Payload bytes go from
/// the sender's tensor to the socket and from the socket to the receiver's tensor with no copy in
/// between. One connection per (generation, peer, receiving replica, kind), so that a receiver that
/// waits for one stream holds up no other; flow control is the receiver not reading. A generation
/// has connections of its own, so that one that broke is made anew in the next. Thread-safe.
class DataPlane {
 public:
  struct Options {
    std::string listen_address = "127.0.0.1:0";
    bool insecure = false;
    /// A peer is listening before it is announced; it is given this long all the same.
    double connect_timeout_seconds = 10;
    /// A piece of a payload that is announced is waited for this long.
    double payload_timeout_seconds = 30;
    /// Called on the loop's thread when a connection to a peer cannot be made or breaks; not for a
    /// generation that is closed by then.
    std::function<void(const std::string& address, absl::Status)> on_peer_lost;
    /// Called on the loop's thread when a peer that is watched was tried in vain for about as long
    /// as was said; once for each generation. May be null.
    std::function<void(const std::string& address, absl::Status)> on_unreachable;
    /// Called on the loop's thread for each connection that is turned away, or ended because of
    /// what it says, with one line; may be null.
    std::function<void(const std::string& peer, const std::string& why)> on_refused;
    /// Called on the loop's thread when there is no memory here for a tensor that comes, with its
    /// generation, which may be over by then. The peer's connection ends, which it takes for our
    /// loss. Not for probes, which are of no plan. May be null.
    std::function<void(uint64_t generation, absl::Status)> on_no_memory;
  };

  static absl::StatusOr<std::unique_ptr<DataPlane>> start(EventLoop& loop, Options options);
  virtual ~DataPlane() = default;

  /// Who we are in which run, and by which life of the coordinator: every connection says so. Only
  /// peers of the same run may connect, and all tensors of a connection are of the generation that
  /// it was made for, which is the same plan only within one life of the coordinator. Before the
  /// first call we are nobody and take tensors from nobody but the like. A plane without sockets
  /// has nothing to check.
  struct Identity {
    std::string run;
    plans::WorkerId self;  // 0: the coordinator.
    uint64_t term = 0;
  };
  virtual void identify(Identity /*identity*/) {}

  /// Connections of ours for the secret's generation show it, and tensors of the generation that
  /// come on a connection with another one are refused. Call before the generation's first stream
  /// is opened and its first rows are sent: until then the secret is 0. A second call replaces it.
  /// A plane without connections has nothing to show.
  virtual void set_plan_secret(PlanSecret /*secret*/) {}

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
    std::span<const float> payload;  // Goes as bfloat16 if all of it is, with half the bytes.
    std::shared_ptr<const void> owner;
  };
  virtual void send(const std::string& address, Rows rows) = 0;

  /// Watches from now on, until the generation is closed, whether each of these peers can be
  /// reached (`PeerWatch`), also while nothing is sent to it. A plane without sockets reaches all.
  virtual void watch(uint64_t /*generation*/, std::vector<std::string> /*addresses*/,
                     double /*patience_seconds*/) {}

  /// Calls `on_gone` on the loop's thread, once, if the process that listened at the address turns
  /// out to be dead within that time (`ListenerCheck`). A plane without sockets knows of nobody.
  virtual void check_listener(const std::string& /*address*/, double /*patience_seconds*/,
                              std::function<void()> /*on_gone*/) {}

  /// Forgets the connections of every generation below this one, whatever they still had to send,
  /// and the inbox's streams: a write to a peer that does not read ends at once, and so does an
  /// attempt to reach one that is gone. Rows of such a generation that are sent later are dropped.
  /// Generation 0 belongs to what is sent before any plan, the probes of links, and stays. A repeat
  /// or a lower number changes nothing.
  virtual void close_before(uint64_t generation) = 0;

  /// Plays a broken link: the connections to the peer break now, which `on_peer_lost` hears of, and
  /// new ones are refused for `seconds`, like those to a peer that is not there; 0: for ever. What
  /// arrives from the peer still does: tell both ends. Probes break in silence.
  virtual void drop_link(const std::string& address, double seconds) = 0;

  virtual DataPlaneStatistics statistics() const = 0;
};

}  // namespace skein::net
