#include "net/data/listener_check.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"

namespace skein::net {
namespace {

constexpr auto kAttemptTimeout = 2 * kj::SECONDS;
/// Between attempts at one whose connection has ended, at first; each time twice as long.
constexpr auto kDyingRetry = 10 * kj::MILLISECONDS;
/// Between attempts at one that cannot be reached, and the longest of those above.
constexpr auto kUnreachableRetry = 250 * kj::MILLISECONDS;

bool is_refusal(const kj::Exception& why) {
  return absl::StrContains(why.getDescription().cStr(), std::strerror(ECONNREFUSED));
}

/// A connection, and what comes on it.
struct Talk {
  Talk(const Hello& its_hello, kj::Own<kj::AsyncIoStream> its_stream)
      : hello(its_hello), stream(kj::mv(its_stream)) {}
  HelloFrame hello;
  kj::Own<kj::AsyncIoStream> stream;
  std::array<kj::byte, 256> heard = {};
};

kj::Promise<void> read_to_end(const std::shared_ptr<Talk>& talk) {
  return kj::evalNow(
             [&] { return talk->stream->tryRead(talk->heard.data(), 1, talk->heard.size()); })
      .then([talk](size_t bytes) -> kj::Promise<void> {
        if (bytes == 0) return kj::READY_NOW;
        return read_to_end(talk);
      });
}

}  // namespace

ListenerCheck::ListenerCheck(KjEventLoop& loop, std::string address, double patience_seconds,
                             std::function<void()> on_gone)
    : loop_(loop),
      address_(std::move(address)),
      patience_(to_duration(patience_seconds)),
      on_gone_(std::move(on_gone)),
      pause_(kDyingRetry) {}

void ListenerCheck::start(Hello hello) {
  hello_ = std::move(hello);
  give_up_at_ = loop_.timer().now() + patience_;
  connect();
}

void ListenerCheck::connect() {
  loop_.run(loop_.timer()
                .timeoutAfter(kAttemptTimeout, loop_.connect(address_))
                .then(
                    [self = shared_from_this()](kj::Own<kj::AsyncIoStream> stream) {
                      return self->greet(kj::mv(stream));
                    },
                    [self = shared_from_this()](kj::Exception&& why) -> kj::Promise<void> {
                      self->on_failed(why);
                      return kj::READY_NOW;
                    }));
}

void ListenerCheck::connect_after(kj::Duration pause) {
  if (loop_.timer().now() >= give_up_at_) return;
  loop_.run(loop_.timer().afterDelay(pause).then([self = shared_from_this()] { self->connect(); }));
}

/// As long as the connection lasts, it lives.
kj::Promise<void> ListenerCheck::greet(kj::Own<kj::AsyncIoStream> stream) {
  if (loop_.timer().now() >= give_up_at_) return kj::READY_NOW;
  auto talk = std::make_shared<Talk>(hello_, kj::mv(stream));
  auto ended = kj::evalNow([&] {
                 return talk->stream->write(talk->hello.pieces());
               }).then([talk] {
                   return read_to_end(talk);
                 }).catch_([talk](kj::Exception&&) {});
  return loop_.timer()
      .timeoutAfter(give_up_at_ - loop_.timer().now(), kj::mv(ended))
      .then([self = shared_from_this()] {
        const kj::Duration pause = self->pause_;
        self->pause_ = std::min(pause * 2, kUnreachableRetry);
        self->connect_after(pause);
      });
}

void ListenerCheck::on_failed(const kj::Exception& why) {
  if (is_refusal(why)) return on_gone_();
  connect_after(kUnreachableRetry);
}

}  // namespace skein::net
