#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <kj/async-io.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/control/frame.hpp"
#include "net/control/wire.hpp"
#include "net/kj_event_loop.hpp"
#include "net/schema/control.capnp.h"
#include "plans/base/ids.hpp"

namespace skein::net {

/// Small messages must not wait for each other.
void set_no_delay(kj::AsyncIoStream& stream);

/// What the first message on a connection says of the side that connects.
struct Hello {
  uint32_t protocol_version = schema::PROTOCOL_VERSION;  // Another one only in tests.
  schema::Role role = schema::Role::WORKER;
  // A peer says these for every tensor on its connection; others leave them out.
  std::string run;          // A name; empty: it has joined none yet.
  uint64_t generation = 0;  // kGenerationsMax; 0: what is sent before any plan.
  plans::WorkerId sender;   // 0: it has no number yet.
  uint64_t term = 0;        // kTermsMax; the coordinator's life; 0: none yet.
  uint64_t secret = 0;      // Any 64 bits; shows that it takes part in the generation's plan.
  bool operator==(const Hello&) const = default;
};

/// The first frame that a connecting side sends. Must live until it is written.
class HelloFrame {
 public:
  explicit HelloFrame(const Hello& hello);
  HelloFrame(const HelloFrame&) = delete;  // Its pieces point into it.
  HelloFrame& operator=(const HelloFrame&) = delete;
  kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces() const { return pieces_; }

 private:
  Wire<schema::Hello> message_;
  FrameHead head_;
  kj::ArrayPtr<const kj::byte> pieces_[2];
};

/// Decodes a Hello. FailedPrecondition with what to do if the peer is of another version;
/// InvalidArgument if it is not of ours, or a field is out of its bounds.
absl::StatusOr<Hello> decode_hello(schema::Hello::Reader hello);

/// Accepts connections and waits for the Hello of each. Who sends another thing first is turned
/// away: with a `Refused` message if it speaks the protocol, in silence if not. Lives on the loop's
/// thread; `stop` and `port` may be called by any.
class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  struct Options {
    std::string address;
    bool insecure = false;
    /// FailedPrecondition, with the reason, for one that is to be turned away; may be null.
    std::function<absl::Status(const Hello&)> check;
    std::function<void(kj::Own<kj::AsyncIoStream>, Hello, std::string peer)> on_accept;
    std::function<void(const std::string& peer, const std::string& reason)> on_rejected;
  };
  static absl::StatusOr<std::shared_ptr<Acceptor>> listen(KjEventLoop& loop, Options options);

  uint16_t port() const { return port_; }
  /// No handler runs after it returns. Not on the loop's thread.
  void stop();

 private:
  struct Handshake;

  Acceptor(KjEventLoop& loop, Options options) : loop_(loop), options_(std::move(options)) {}
  void accept_next();
  kj::Promise<void> accept_all();
  void greet(kj::Own<kj::AsyncIoStream> stream);
  void drop_oldest();
  void on_hello(const std::shared_ptr<Handshake>& handshake, FrameResult frame);
  void reject(const std::shared_ptr<Handshake>& handshake, const std::string& reason, bool answer);

  KjEventLoop& loop_;
  Options options_;
  kj::Own<kj::ConnectionReceiver> receiver_;
  kj::Maybe<kj::Promise<void>> accepting_;
  uint16_t port_ = 0;
  std::map<uint64_t, std::shared_ptr<Handshake>> handshakes_;  // That wait, in order of arrival.
  uint64_t accepted_ = 0;
  bool stopped_ = false;
};

}  // namespace skein::net
