#include "net/control/hello.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <future>
#include <utility>

#include <capnp/message.h>

#include "absl/strings/str_cat.h"
#include "net/address.hpp"
#include "net/codec/bounds.hpp"
#include "net/codec/envelope.hpp"

namespace skein::net {
namespace {

/// A peer says hello at once; who is silent for so long is not one of ours.
constexpr auto kHelloTimeout = 3 * kj::SECONDS;
/// After an accept that failed.
constexpr auto kAcceptPause = 10 * kj::MILLISECONDS;
/// Connections that have not said hello yet; of more the oldest one is closed, so that whoever
/// opens many silent ones locks nobody out.
constexpr size_t kHandshakesMax = 512;
/// Closed at once when there are no descriptors left.
constexpr int kHandshakesDropped = 32;

Wire<schema::Hello> encode_hello(const Hello& from) {
  capnp::MallocMessageBuilder message;
  auto hello = message.initRoot<schema::Hello>();
  hello.setMagic(schema::MAGIC);
  hello.setProtocolVersion(from.protocol_version);
  hello.setRole(from.role);
  hello.setRun(from.run);
  hello.setGeneration(from.generation);
  hello.setSender(from.sender.value);
  hello.setTerm(from.term);
  hello.setSecret(from.secret);
  return Wire<schema::Hello>::encode(message);
}

std::string peer_name(kj::AsyncIoStream& stream) {
  sockaddr_storage address{};
  uint length = sizeof(address);
  auto failure = kj::runCatchingExceptions(
      [&] { stream.getpeername(reinterpret_cast<sockaddr*>(&address), &length); });
  if (failure != nullptr || address.ss_family != AF_INET) return "a peer";
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text));
  return absl::StrCat(text, ":", ntohs(v4->sin_port));
}

}  // namespace

void set_no_delay(kj::AsyncIoStream& stream) {
  int on = 1;
  auto failure = kj::runCatchingExceptions(
      [&] { stream.setsockopt(IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); });
  (void)failure;  // Not a TCP socket: nothing to set.
}

HelloFrame::HelloFrame(const Hello& hello)
    : message_(encode_hello(hello)), head_(frame_head(message_.bytes())) {
  const auto bytes = message_.bytes();
  pieces_[0] = {reinterpret_cast<const kj::byte*>(&head_), sizeof(head_)};
  pieces_[1] = {reinterpret_cast<const kj::byte*>(bytes.data()), bytes.size()};
}

absl::StatusOr<Hello> decode_hello(schema::Hello::Reader hello) {
  if (hello.getMagic() != schema::MAGIC) {
    return absl::InvalidArgumentError("its hello has a wrong magic number; it is no Skein process");
  }
  if (hello.getProtocolVersion() != schema::PROTOCOL_VERSION) {
    return absl::FailedPreconditionError(
        absl::StrCat("it speaks protocol version ", hello.getProtocolVersion(), " and we speak ",
                     schema::PROTOCOL_VERSION, "; run the same release of skein on every machine"));
  }
  Bounds bounds("Hello");
  Hello decoded;
  decoded.role = hello.getRole();
  decoded.run = bounds.name("run", hello.getRun());
  decoded.generation = bounds.count("generation", hello.getGeneration(), kGenerationsMax);
  decoded.sender = bounds.worker_or_none("sender", hello.getSender());
  decoded.term = bounds.count("term", hello.getTerm(), kTermsMax);
  decoded.secret = hello.getSecret();
  if (!bounds.status().ok()) return bounds.status();
  return decoded;
}

/// One connection that has not said hello yet.
struct Acceptor::Handshake {
  kj::Own<kj::AsyncIoStream> stream;
  std::string peer;
  kj::Canceler canceler;  // Of the wait for the hello.
};

absl::StatusOr<std::shared_ptr<Acceptor>> Acceptor::listen(KjEventLoop& loop, Options options) {
  auto checked = check_listen_address(options.address, options.insecure);
  if (!checked.ok()) return checked.status();
  const std::string address = options.address;
  std::shared_ptr<Acceptor> acceptor(new Acceptor(loop, std::move(options)));  // Private.
  std::promise<absl::Status> bound;
  loop.post([&, acceptor] {
    loop.run(loop.network()
                 .parseAddress(address)
                 .then([&, acceptor](kj::Own<kj::NetworkAddress> parsed) {
                   acceptor->receiver_ = parsed->listen();
                   acceptor->port_ = static_cast<uint16_t>(acceptor->receiver_->getPort());
                   acceptor->accept_next();
                   bound.set_value(absl::OkStatus());
                 })
                 .catch_([&](kj::Exception&& exception) {
                   bound.set_value(absl::UnavailableError(absl::StrCat(
                       "cannot listen on ", address, ": ", exception.getDescription().cStr(),
                       "; is another process using the port?")));
                 }));
  });
  absl::Status status = bound.get_future().get();
  if (!status.ok()) return status;
  return acceptor;
}

void Acceptor::stop() {
  std::promise<void> stopped;
  loop_.post([&] {
    stopped_ = true;
    accepting_ = nullptr;
    receiver_ = nullptr;
    stopped.set_value();
  });
  stopped.get_future().wait();
}

kj::Promise<void> Acceptor::accept_all() {
  return receiver_->accept().then([this](kj::Own<kj::AsyncIoStream> stream) {
    greet(kj::mv(stream));
    return accept_all();
  });
}

void Acceptor::accept_next() {
  // Without descriptors it may fail at once, and not by its promise.
  accepting_ =
      kj::evalNow([this] { return accept_all(); }).eagerlyEvaluate([this](kj::Exception&&) {
        // Out of descriptors, for example: that peer gives up, later ones may succeed.
        for (int i = 0; i < kHandshakesDropped; ++i) drop_oldest();
        loop_.run(loop_.timer().afterDelay(kAcceptPause).then([self = shared_from_this()] {
          if (!self->stopped_) self->accept_next();
        }));
      });
}

void Acceptor::greet(kj::Own<kj::AsyncIoStream> stream) {
  if (handshakes_.size() >= kHandshakesMax) drop_oldest();
  auto handshake = std::make_shared<Handshake>();
  handshake->peer = peer_name(*stream);
  handshake->stream = kj::mv(stream);
  const uint64_t number = ++accepted_;
  handshakes_[number] = handshake;
  auto late = loop_.timer().afterDelay(kHelloTimeout).then([]() -> FrameResult {
    return {absl::DeadlineExceededError("it said nothing for 3 seconds"), nullptr};
  });
  auto frame = read_frame(*handshake->stream, kSmallFrameBytesMax).exclusiveJoin(kj::mv(late));
  auto promise = handshake->canceler.wrap(kj::mv(frame))
                     .then([self = shared_from_this(), handshake, number](FrameResult frame) {
                       self->handshakes_.erase(number);
                       if (!self->stopped_) self->on_hello(handshake, kj::mv(frame));
                     });
  loop_.run(kj::mv(promise));
}

void Acceptor::drop_oldest() {
  if (handshakes_.empty()) return;
  const std::shared_ptr<Handshake> oldest = handshakes_.begin()->second;
  handshakes_.erase(handshakes_.begin());
  oldest->canceler.cancel("it said nothing while others came");
  reject(oldest, "it said nothing while others came", false);
}

void Acceptor::on_hello(const std::shared_ptr<Handshake>& handshake, FrameResult frame) {
  if (!frame.status.ok()) {
    return reject(handshake, std::string(frame.status.message()), false);
  }
  if (frame.words == nullptr) return reject(handshake, "it left without a hello", false);
  const auto raw = frame.words.asBytes();
  auto hello =
      Wire<schema::Hello>::parse({reinterpret_cast<const std::byte*>(raw.begin()), raw.size()});
  if (!hello.ok()) return reject(handshake, std::string(hello.status().message()), false);
  absl::StatusOr<Hello> decoded = decode_hello(**hello);
  absl::Status status = decoded.status();
  if (status.ok() && options_.check) status = options_.check(*decoded);
  if (!status.ok()) {
    const bool speaks = absl::IsFailedPrecondition(status);
    return reject(handshake, std::string(status.message()), speaks);
  }
  options_.on_accept(kj::mv(handshake->stream), *std::move(decoded), handshake->peer);
}

void Acceptor::reject(const std::shared_ptr<Handshake>& handshake, const std::string& reason,
                      bool answer) {
  if (options_.on_rejected) options_.on_rejected(handshake->peer, reason);
  if (!answer) return;
  struct Answer {
    ControlMessage message;
    FrameHead head;
    kj::ArrayPtr<const kj::byte> pieces[2];
  };
  auto message = encode({}, Refused{reason, {}});
  const auto bytes = message.bytes();
  auto refusal = std::make_shared<Answer>(Answer{message, frame_head(bytes), {}});
  refusal->pieces[0] = {reinterpret_cast<const kj::byte*>(&refusal->head), sizeof(FrameHead)};
  refusal->pieces[1] = {reinterpret_cast<const kj::byte*>(bytes.data()), bytes.size()};
  const kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces(refusal->pieces, 2);
  loop_.run(handshake->stream->write(pieces).then(
      [handshake, refusal] { handshake->stream->shutdownWrite(); }));
}

}  // namespace skein::net
