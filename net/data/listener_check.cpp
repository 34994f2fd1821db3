#include "net/data/listener_check.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"

namespace skein::net {
namespace {

constexpr auto kAttemptTimeout = 2 * kj::SECONDS;
/// Nobody who is dying keeps a connection for so long.
constexpr auto kLifeSign = 500 * kj::MILLISECONDS;
/// Between attempts at one that is dying, and at one that cannot be reached.
constexpr auto kDyingRetry = 10 * kj::MILLISECONDS;
constexpr auto kUnreachableRetry = 250 * kj::MILLISECONDS;

bool is_refusal(const kj::Exception& why) {
  return absl::StrContains(why.getDescription().cStr(), std::strerror(ECONNREFUSED));
}

}  // namespace

ListenerCheck::ListenerCheck(KjEventLoop& loop, std::string address, double patience_seconds,
                             std::function<void()> on_gone)
    : loop_(loop),
      address_(std::move(address)),
      patience_(to_duration(patience_seconds)),
      on_gone_(std::move(on_gone)) {}

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

/// It lives if it answers, or just keeps the connection.
kj::Promise<void> ListenerCheck::greet(kj::Own<kj::AsyncIoStream> stream) {
  struct Talk {
    HelloFrame hello;
    kj::Own<kj::AsyncIoStream> stream;
    kj::byte answer = 0;
  };
  auto talk = std::make_shared<Talk>(Talk{HelloFrame(hello_), kj::mv(stream)});
  auto answered =
      kj::evalNow([&] {
        return talk->stream->write(talk->hello.pieces());
      }).then([talk] {
          return talk->stream->tryRead(&talk->answer, 1, 1);
        }).then([](size_t bytes) { return bytes > 0; }, [](kj::Exception&&) { return false; });
  auto kept = loop_.timer().afterDelay(kLifeSign).then([] { return true; });
  return answered.exclusiveJoin(kj::mv(kept)).then([self = shared_from_this(), talk](bool lives) {
    if (!lives) self->connect_after(kDyingRetry);
  });
}

void ListenerCheck::on_failed(const kj::Exception& why) {
  if (is_refusal(why)) return on_gone_();
  connect_after(kUnreachableRetry);
}

}  // namespace skein::net
