#include "net/control/control_link.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <span>
#include <utility>

#include <capnp/message.h>

#include "absl/strings/str_cat.h"
#include "net/address.hpp"
#include "net/control/frame.hpp"
#include "net/control/hello.hpp"
#include "net/kj_event_loop.hpp"

namespace skein::net {
namespace {

/// Messages written with one system call at most.
constexpr size_t kWriteBatchMax = 64;
/// What waits for the peer when the link is closed is written for so long.
constexpr auto kCloseTimeout = 2 * kj::SECONDS;
/// Between two messages of a viewer.
constexpr auto kViewerPause = 50 * kj::MILLISECONDS;
/// Between the first attempts that are refused, and between those that follow: still shorter than a
/// coordinator that was restarted waits for the next worker.
constexpr auto kQuickRetry = 100 * kj::MILLISECONDS;
constexpr auto kSlowRetry = 1100 * kj::MILLISECONDS;
constexpr int kQuickAttempts = 10;
/// The slow ones are spread over up to so much more.
constexpr uint64_t kJitterMs = 400;
/// What is swallowed by a network that is cut, or by an address that nobody has any more, would be
/// sent again ever more rarely: a new attempt finds a coordinator that is back, and its new
/// address.
constexpr auto kAttemptTimeout = 2 * kj::SECONDS;

/// A connection on the loop's thread. `send` and `close` come from anywhere. A message that nothing
/// waits before is written where it is sent, which saves the loop's thread from being woken for it;
/// what the socket does not take at once is posted, and so is `close`.
class KjLink final : public ControlLink, public std::enable_shared_from_this<KjLink> {
 public:
  KjLink(KjEventLoop& loop, kj::Own<kj::AsyncIoStream> stream, std::string peer,
         uint64_t intake_bytes_max, schema::Role peer_role = schema::Role::WORKER)
      : loop_(loop),
        stream_(kj::mv(stream)),
        peer_(std::move(peer)),
        descriptor_(descriptor_of(*stream_)),
        is_viewer_(peer_role == schema::Role::VIEWER),
        intake_bytes_max_(std::make_shared<std::atomic<uint64_t>>(intake_bytes_max)) {
    set_no_delay(*stream_);
  }

  ~KjLink() noexcept override = default;

  void send(ControlMessage message) override {
    const std::lock_guard lock(sending_);
    if (is_closed_) return;
    Outgoing outgoing(std::move(message));
    if (unwritten_ == 0) outgoing.write_to(descriptor_);
    if (outgoing.is_written()) return;
    ++unwritten_;
    loop_.post([self = shared_from_this(), outgoing = std::move(outgoing)]() mutable {
      self->enqueue(std::move(outgoing));
    });
  }
  void close() override {
    const std::lock_guard lock(sending_);
    is_closed_ = true;
    loop_.post([self = shared_from_this()] { self->finish_after_writes(); });
  }
  void admit() override {
    intake_bytes_max_->store(kIntakeBytesMax);
    loop_.post([self = shared_from_this()] {
      if (self->resume_) self->resume_->fulfill();
    });
  }
  const std::string& peer_address() const override { return peer_; }

  // On the loop's thread:
  void start(Handlers handlers) {
    handlers_ = std::move(handlers);
    reading_ = read_next().eagerlyEvaluate([](kj::Exception&&) {});
  }

 private:
  /// A message on its way: its head and its words, of which the socket has taken so many bytes.
  class Outgoing {
   public:
    explicit Outgoing(ControlMessage message)
        : message_(std::move(message)), head_(frame_head(message_.bytes())) {}

    uint64_t bytes() const { return message_.bytes().size(); }
    bool is_written() const { return taken_ == sizeof(head_) + bytes(); }
    /// What is left of it. Valid until it is moved.
    std::vector<kj::ArrayPtr<const kj::byte>> pieces() const {
      std::vector<kj::ArrayPtr<const kj::byte>> pieces;
      size_t skipped = taken_;
      for (const auto part : {std::as_bytes(std::span(&head_, 1)), message_.bytes()}) {
        const size_t skip = std::min(skipped, part.size());
        skipped -= skip;
        if (skip == part.size()) continue;
        const auto* begin = reinterpret_cast<const kj::byte*>(part.data());
        pieces.emplace_back(begin + skip, begin + part.size());
      }
      return pieces;
    }
    /// As much as the socket takes at once: nothing, if it is full or has gone.
    void write_to(int descriptor) {
      if (descriptor < 0) return;
      std::array<iovec, 2> parts = {};
      int count = 0;
      for (const kj::ArrayPtr<const kj::byte>& piece : pieces()) {
        parts[count++] = {const_cast<kj::byte*>(piece.begin()), piece.size()};
      }
      const ssize_t written = ::writev(descriptor, parts.data(), count);
      if (written > 0) taken_ += static_cast<size_t>(written);
    }

   private:
    ControlMessage message_;
    FrameHead head_;
    size_t taken_ = 0;
  };

  /// -1: it has none that could be written to.
  static int descriptor_of(kj::AsyncIoStream& stream) {
    KJ_IF_MAYBE (descriptor, stream.getFd()) {
      return *descriptor;
    }
    return -1;
  }

  kj::Promise<void> read_next() {
    return read_frame(*stream_).then([this](FrameResult frame) -> kj::Promise<void> {
      // The handlers may let go of the last reference to this link; or it has gone already, and
      // waits for its turn to be destroyed.
      auto self = weak_from_this().lock();
      if (!self) return kj::READY_NOW;
      if (!frame.status.ok()) {
        end(frame.status);
        return kj::READY_NOW;
      }
      if (frame.words == nullptr) {
        end(absl::UnavailableError("the peer closed the connection"));
        return kj::READY_NOW;
      }
      const auto raw = frame.words.asBytes();
      auto message =
          ControlMessage::parse({reinterpret_cast<const std::byte*>(raw.begin()), raw.size()});
      absl::StatusOr<Envelope> decoded = message.ok() ? decode(*message) : message.status();
      if (!decoded.ok()) {
        end(decoded.status());
        return kj::READY_NOW;
      }
      // A short message takes more room decoded than on its way.
      decoded->receipt = receipt(std::max(raw.size(), sizeof(Envelope)));
      if (handlers_.on_message) handlers_.on_message(*std::move(decoded));
      if (!is_viewer_) return read_on();
      // Others have work for those who answer it.
      return loop_.timer().afterDelay(kViewerPause).then([this] { return read_on(); });
    });
  }

  /// The next message, once little enough of those before waits to be handled.
  kj::Promise<void> read_on() {
    auto self = weak_from_this().lock();
    if (!self || ended_) return kj::READY_NOW;
    if (unhandled_->load() <= intake_bytes_max_->load()) return read_next();
    return when_handled().then([this]() -> kj::Promise<void> {
      auto self = weak_from_this().lock();
      if (!self || ended_) return kj::READY_NOW;
      return read_next();
    });
  }

  /// Lives as long as the message of so many bytes, whichever thread handles it.
  std::shared_ptr<const void> receipt(uint64_t bytes) {
    unhandled_->fetch_add(bytes);
    return std::shared_ptr<const void>(unhandled_.get(),
                                       [bytes, count = unhandled_, limit = intake_bytes_max_,
                                        weak = weak_from_this()](const void*) {
                                         const uint64_t before = count->fetch_sub(bytes);
                                         const uint64_t most = limit->load();
                                         if (before <= most || before - bytes > most) return;
                                         if (auto self = weak.lock()) {
                                           self->loop_.post([self] {
                                             if (self->resume_) self->resume_->fulfill();
                                           });
                                         }
                                       });
  }

  kj::Promise<void> when_handled() {
    auto paused = kj::newPromiseAndFulfiller<void>();
    resume_ = kj::mv(paused.fulfiller);
    // The last one may have been handled in between.
    if (unhandled_->load() <= intake_bytes_max_->load()) resume_->fulfill();
    return kj::mv(paused.promise);
  }

  void enqueue(Outgoing message) {
    if (ended_) return;
    const uint64_t bytes = message.bytes();
    if (queue_.size() >= static_cast<size_t>(is_viewer_ ? kViewerQueueMax : kLinkQueueMax) ||
        queue_bytes_ + bytes > kLinkQueueBytesMax) {
      end(absl::ResourceExhaustedError(absl::StrCat(peer_, " does not read: ", queue_.size(),
                                                    " messages of ", queue_bytes_,
                                                    " bytes wait for it")));
      return;
    }
    queue_bytes_ += bytes;
    queue_.push_back(std::move(message));
    if (!writing_) write_batch();
  }

  struct Batch {
    std::vector<Outgoing> messages;
    std::vector<kj::ArrayPtr<const kj::byte>> pieces;
  };

  void write_batch() {
    auto batch = std::make_shared<Batch>();
    while (!queue_.empty() && batch->messages.size() < kWriteBatchMax) {
      batch->messages.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
    for (const Outgoing& each : batch->messages) {
      for (const auto& piece : each.pieces()) batch->pieces.push_back(piece);
    }
    writing_ = true;
    const kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces(batch->pieces.data(),
                                                                  batch->pieces.size());
    // A write to a peer that is gone may throw at once, instead of failing its promise.
    auto written = kj::evalNow([&] { return stream_->write(pieces); })
                       .then([self = shared_from_this(), batch] { self->on_written(*batch); },
                             [self = shared_from_this(), batch](kj::Exception&& exception) {
                               self->end(absl::UnavailableError(exception.getDescription().cStr()));
                             });
    loop_.run(kj::mv(written));
  }

  void on_written(const Batch& batch) {
    writing_ = false;
    for (const Outgoing& each : batch.messages) queue_bytes_ -= each.bytes();
    if (ended_) return;
    {
      const std::lock_guard lock(sending_);
      unwritten_ -= batch.messages.size();
    }
    if (!queue_.empty()) return write_batch();
    if (closing_) end(absl::OkStatus());
  }

  void finish_after_writes() {
    closing_ = true;
    if (!writing_ && queue_.empty()) return end(absl::OkStatus());
    loop_.run(loop_.timer().afterDelay(kCloseTimeout).then([self = shared_from_this()] {
      self->end(absl::OkStatus());
    }));
  }

  void end(absl::Status why) {
    if (ended_) return;
    ended_ = true;
    {
      const std::lock_guard lock(sending_);
      is_closed_ = true;
    }
    queue_.clear();
    // A pending write fails at once; the reading promise may be the caller, so it goes a turn
    // later.
    (void)kj::runCatchingExceptions([&] {  // Both fail when the peer has gone first.
      stream_->shutdownWrite();
      stream_->abortRead();
    });
    loop_.post([self = shared_from_this()] { self->reading_ = nullptr; });
    Handlers handlers = std::move(handlers_);
    handlers_ = {};
    if (handlers.on_closed) handlers.on_closed(std::move(why));
  }

  KjEventLoop& loop_;
  kj::Own<kj::AsyncIoStream> stream_;
  std::string peer_;
  const int descriptor_;  // The stream's.
  const bool is_viewer_;
  Handlers handlers_;
  kj::Maybe<kj::Promise<void>> reading_;
  std::deque<Outgoing> queue_;
  uint64_t queue_bytes_ = 0;  // What waits or is being written.
  const std::shared_ptr<std::atomic<uint64_t>> unhandled_ =
      std::make_shared<std::atomic<uint64_t>>(0);  // Bytes of messages that are alive.
  const std::shared_ptr<std::atomic<uint64_t>> intake_bytes_max_;
  kj::Own<kj::PromiseFulfiller<void>> resume_;  // Ends a wait of the reading; null: none was.
  bool writing_ = false;
  bool closing_ = false;
  bool ended_ = false;

  std::mutex sending_;
  bool is_closed_ = false;  // Guarded by sending_, as is the next one.
  size_t unwritten_ = 0;    // Messages that were posted and are not written yet.
};

/// One attempt after the other until the connection is there or the time is over.
class Connector : public std::enable_shared_from_this<Connector> {
 public:
  using OnDone = std::function<void(absl::StatusOr<std::shared_ptr<ControlLink>>)>;

  Connector(KjEventLoop& loop, ConnectOptions options, ControlLink::Handlers handlers,
            OnDone on_done)
      : loop_(loop),
        options_(std::move(options)),
        handlers_(std::move(handlers)),
        on_done_(std::move(on_done)) {}

  void start() {
    const auto delay = to_duration(options_.delay_seconds);
    deadline_ = loop_.timer().now() + delay + to_duration(options_.timeout_seconds);
    if (options_.delay_seconds <= 0) return attempt();
    loop_.run(
        loop_.timer().afterDelay(delay).then([self = shared_from_this()] { self->attempt(); }));
  }

 private:
  void attempt() {
    auto promise =
        loop_.network()
            .parseAddress(options_.address)
            .then([&timer = loop_.timer()](kj::Own<kj::NetworkAddress> address) {
              auto connected = timer.timeoutAfter(kAttemptTimeout, address->connect());
              return connected.attach(kj::mv(address));
            })
            .then([self = shared_from_this()](
                      kj::Own<kj::AsyncIoStream> stream) { self->greet(kj::mv(stream)); },
                  [self = shared_from_this()](kj::Exception&& exception) {
                    self->on_refused(exception);
                  });
    loop_.run(kj::mv(promise));
  }

  void on_refused(const kj::Exception& exception) {
    absl::Status why = absl::UnavailableError(absl::StrCat("nobody answers at ", options_.address,
                                                           " (", exception.getDescription().cStr(),
                                                           "); is the coordinator running there?"));
    if (loop_.timer().now() >= deadline_) return on_done_(std::move(why));
    if (const auto on_waiting = std::exchange(options_.on_waiting, nullptr)) on_waiting(why);
    const bool is_quick = ++attempts_ < kQuickAttempts;
    const auto jitter = static_cast<int64_t>(loop_.now_us() % kJitterMs) * kj::MILLISECONDS;
    const auto wait = is_quick ? kQuickRetry : kSlowRetry + jitter;
    loop_.run(
        loop_.timer().afterDelay(wait).then([self = shared_from_this()] { self->attempt(); }));
  }

  void greet(kj::Own<kj::AsyncIoStream> stream) {
    auto hello =
        std::make_shared<HelloFrame>(Hello{options_.protocol_version, options_.role, {}, 0, {}});
    auto& target = *stream;
    // A write to a peer that has died since it accepted may throw at once: that, too, is a refusal,
    // or nobody would ever hear how the attempt has ended.
    auto promise =
        kj::evalNow([&] { return target.write(hello->pieces()); })
            .then(
                [self = shared_from_this(), hello, stream = kj::mv(stream)]() mutable {
                  auto link = self->loop_.make_shared_here<KjLink>(
                      self->loop_, kj::mv(stream), self->options_.address, kIntakeBytesMax);
                  self->on_done_(std::shared_ptr<ControlLink>(link));
                  link->start(std::move(self->handlers_));
                },
                [self = shared_from_this()](kj::Exception&& exception) {
                  self->on_refused(exception);
                });
    loop_.run(kj::mv(promise));
  }

  KjEventLoop& loop_;
  ConnectOptions options_;
  ControlLink::Handlers handlers_;
  OnDone on_done_;
  kj::TimePoint deadline_ = kj::origin<kj::TimePoint>();
  int attempts_ = 0;
};

class KjListener final : public ControlListener {
 public:
  explicit KjListener(std::shared_ptr<Acceptor> acceptor) : acceptor_(std::move(acceptor)) {}
  ~KjListener() noexcept override { acceptor_->stop(); }
  uint16_t port() const override { return acceptor_->port(); }

 private:
  std::shared_ptr<Acceptor> acceptor_;
};

}  // namespace

void connect_control(EventLoop& loop, const ConnectOptions& options, ControlLink::Handlers handlers,
                     std::function<void(absl::StatusOr<std::shared_ptr<ControlLink>>)> on_done) {
  auto connector = std::make_shared<Connector>(KjEventLoop::of(loop), options, std::move(handlers),
                                               std::move(on_done));
  loop.post([connector] { connector->start(); });
}

absl::StatusOr<std::unique_ptr<ControlListener>> listen_control(
    EventLoop& loop, const ListenOptions& options, ControlListener::OnAccept on_accept,
    ControlListener::OnRejected on_rejected) {
  KjEventLoop& kj_loop = KjEventLoop::of(loop);
  Acceptor::Options accept;
  accept.address = options.address;
  accept.insecure = options.insecure;
  accept.on_rejected = std::move(on_rejected);
  accept.on_accept = [&kj_loop, on_accept = std::move(on_accept)](
                         kj::Own<kj::AsyncIoStream> stream, const Hello& hello, std::string peer) {
    auto link = kj_loop.make_shared_here<KjLink>(kj_loop, kj::mv(stream), std::move(peer),
                                                 kStrangerIntakeBytesMax, hello.role);
    link->start(on_accept(link, hello.role));
  };
  auto acceptor = Acceptor::listen(kj_loop, std::move(accept));
  if (!acceptor.ok()) return acceptor.status();
  return std::unique_ptr<ControlListener>(std::make_unique<KjListener>(*std::move(acceptor)));
}

}  // namespace skein::net
