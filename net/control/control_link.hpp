#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/codec/envelope.hpp"
#include "net/event_loop.hpp"

namespace skein::net {

/// Messages, and their bytes, that may wait to be written on a link; a peer that does not read for
/// so long is lost.
inline constexpr int kLinkQueueMax = 4096;
inline constexpr uint64_t kLinkQueueBytesMax = 32 << 20;  // Eight of the largest messages.
/// A viewer asks one thing after the other, and there may be many of them.
inline constexpr int kViewerQueueMax = 16;
/// Bytes of messages that were read and that nobody has handled yet; while there are more, nothing
/// is read, and the peer waits.
inline constexpr uint64_t kIntakeBytesMax = 8 << 20;
/// The same for one that has connected to us and is not admitted: many together must not keep those
/// waiting who are.
inline constexpr uint64_t kStrangerIntakeBytesMax = 16 << 10;

/// One connection that carries control messages in order. Thread-safe.
class ControlLink {
 public:
  /// Called on the event loop's thread: short, never blocking. `on_closed` is the last call, made
  /// once, with the reason: end of stream, a limit passed, or `close`. A message that does not
  /// decode, or is none, is an InvalidArgument, and ends the link.
  struct Handlers {
    std::function<void(Envelope)> on_message;
    std::function<void(absl::Status)> on_closed;
  };

  virtual ~ControlLink() = default;

  /// Writes or queues the message, behind those before it; never blocks. After the link is closed
  /// messages are dropped.
  virtual void send(ControlMessage message) = 0;
  /// Writes what is queued, as far as the peer reads it within two seconds, then closes.
  virtual void close() = 0;
  /// Whoever has connected to us is one of us: more of what it sends may wait.
  virtual void admit() {}
  /// "127.0.0.1:45812"
  virtual const std::string& peer_address() const = 0;
};

/// Connects and says hello. Waits in `loop` for at most `timeout_seconds`, trying again while the
/// connection is refused; `on_done` is called once on the loop's thread.
struct ConnectOptions {
  std::string address;  // "host:port"
  schema::Role role = schema::Role::WORKER;
  uint32_t protocol_version = schema::PROTOCOL_VERSION;  // Another one only in tests.
  double timeout_seconds = 30;
  double delay_seconds = 0;  // Before the first attempt.
  /// Called once on the loop's thread, with the reason, if the first attempt fails and others
  /// follow; may be null.
  std::function<void(const absl::Status&)> on_waiting;
};
void connect_control(EventLoop& loop, const ConnectOptions& options, ControlLink::Handlers handlers,
                     std::function<void(absl::StatusOr<std::shared_ptr<ControlLink>>)> on_done);

/// Accepts connections whose `Hello` is right. Others get a `Refused` message with the reason
/// (or nothing, if what they sent is no message at all), are closed and counted.
class ControlListener {
 public:
  /// Called on the loop's thread for each peer; returns the handlers of its link.
  using OnAccept =
      std::function<ControlLink::Handlers(std::shared_ptr<ControlLink> link, schema::Role role)>;
  /// Called on the loop's thread for each connection that was turned away, with a one-line reason.
  using OnRejected = std::function<void(const std::string& peer, const std::string& reason)>;

  virtual ~ControlListener() = default;
  virtual uint16_t port() const = 0;
};

struct ListenOptions {
  std::string address = "127.0.0.1:0";  // Port 0: any free one.
  bool insecure = false;                // Allows an address that is not a loopback one.
};
/// InvalidArgument   if the address does not parse, or is not loopback and not `insecure`.
/// Unavailable       if it cannot be bound; the message says why.
absl::StatusOr<std::unique_ptr<ControlListener>> listen_control(
    EventLoop& loop, const ListenOptions& options, ControlListener::OnAccept on_accept,
    ControlListener::OnRejected on_rejected);

}  // namespace skein::net
