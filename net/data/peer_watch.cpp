#include "net/data/peer_watch.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net/control/frame.hpp"

namespace skein::net {
namespace {

constexpr auto kWatchRetry = 100 * kj::MILLISECONDS;
constexpr int kProbeSeconds = 1;  // The shortest that the kernel knows.
/// So much of the patience passes in silence; then one attempt to connect decides, and whoever is
/// told has to hear of it and to decide as well.
constexpr double kSilentPart = 0.75;
constexpr double kAttemptPart = 0.125;
constexpr double kAttemptSecondsMin = 0.3;

/// The kernel gives the connection up when nothing has come for so long, though it has asked.
void probe_silence(kj::AsyncIoStream& stream, kj::Duration patience) {
  const int on = 1;
  const int seconds = kProbeSeconds;
  const auto patience_ms = static_cast<unsigned int>(patience / kj::MILLISECONDS);
  auto failure = kj::runCatchingExceptions([&] {
    stream.setsockopt(SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    stream.setsockopt(IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
    stream.setsockopt(IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
    stream.setsockopt(IPPROTO_TCP, TCP_USER_TIMEOUT, &patience_ms, sizeof(patience_ms));
  });
  (void)failure;  // A kernel without them notices only what breaks.
}

bool is_silence(const kj::Exception& why) {
  return why.getType() == kj::Exception::Type::OVERLOADED;  // Time-outs, of the kernel and of ours.
}

}  // namespace

PeerWatch::PeerWatch(KjEventLoop& loop, std::string address, double patience_seconds,
                     std::shared_ptr<const CutLinks> cuts, OnUnreachable on_unreachable)
    : loop_(loop),
      address_(std::move(address)),
      patience_(to_duration(patience_seconds * kSilentPart)),
      attempt_(to_duration(std::max(patience_seconds * kAttemptPart, kAttemptSecondsMin))),
      cuts_(std::move(cuts)),
      on_unreachable_(std::move(on_unreachable)) {}

void PeerWatch::start(Hello hello) {
  hello_ = std::move(hello);
  give_up_at_ = loop_.timer().now() + patience_;
  connect();
}

void PeerWatch::close() {
  ended_ = true;
  canceler_.cancel("closed");
  stream_ = nullptr;
}

void PeerWatch::cut() { canceler_.cancel("the link was dropped on purpose"); }

void PeerWatch::connect() {
  if (ended_) return;
  if (cuts_->is_cut(address_, loop_.now_us())) {
    return on_refused(KJ_EXCEPTION(DISCONNECTED, "the link was dropped on purpose"));
  }
  auto limited = loop_.timer().timeoutAfter(attempt_, loop_.connect(address_));
  loop_.run(canceler_.wrap(kj::mv(limited))
                .then([self = shared_from_this()](
                          kj::Own<kj::AsyncIoStream> stream) { self->greet(kj::mv(stream)); },
                      [self = shared_from_this()](kj::Exception&& why) { self->on_refused(why); }));
}

void PeerWatch::greet(kj::Own<kj::AsyncIoStream> stream) {
  if (ended_) return;
  stream_ = kj::mv(stream);
  probe_silence(*stream_, patience_);
  auto hello = std::make_shared<HelloFrame>(hello_);
  auto written = kj::evalNow([&] { return stream_->write(hello->pieces()); });
  loop_.run(
      canceler_.wrap(kj::mv(written))
          .then([self = shared_from_this(), hello] { self->listen_for_end(); },
                [self = shared_from_this(), hello](kj::Exception&& why) { self->on_broken(why); }));
}

void PeerWatch::listen_for_end() {
  if (ended_ || !stream_) return;
  auto read = kj::evalNow([&] { return stream_->tryRead(&end_, 1, 1); });
  loop_.run(canceler_.wrap(kj::mv(read))
                .then(
                    [self = shared_from_this()](size_t) {
                      self->on_broken(KJ_EXCEPTION(DISCONNECTED, "the peer closed the connection"));
                    },
                    [self = shared_from_this()](kj::Exception&& why) { self->on_broken(why); }));
}

void PeerWatch::connect_later() {
  // Also when it is cut short: `cut` says why the next attempt fails.
  loop_.run(canceler_.wrap(loop_.timer().afterDelay(kWatchRetry))
                .then([self = shared_from_this()] { self->connect(); },
                      [self = shared_from_this()](kj::Exception&&) { self->connect(); }));
}

/// After a silence the peer has one more attempt; after anything else, all the time.
void PeerWatch::on_broken(const kj::Exception& why) {
  if (ended_) return;
  stream_ = nullptr;
  give_up_at_ = loop_.timer().now() + (is_silence(why) ? 0 * kj::SECONDS : patience_);
  connect_later();
}

void PeerWatch::on_refused(const kj::Exception& why) {
  if (ended_) return;
  if (loop_.timer().now() >= give_up_at_) {
    const std::string text = why.getDescription().cStr();
    close();
    return on_unreachable_(address_, absl::UnavailableError(text));
  }
  connect_later();
}

}  // namespace skein::net
