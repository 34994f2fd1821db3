#include "net/data_plane.hpp"

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include <capnp/message.h>

#include "absl/strings/str_cat.h"
#include "net/address.hpp"
#include "net/frame.hpp"
#include "net/hello.hpp"
#include "net/kj_event_loop.hpp"
#include "net/tensor_inbox_impl.hpp"
#include "net/wire.hpp"

namespace skein::net {
namespace {

constexpr auto kRetryInterval = 50 * kj::MILLISECONDS;
/// Asked of the kernel for each data connection: two activations of 1 MiB on their way.
constexpr int kSocketBufferBytes = 2 << 20;
/// A payload that nobody wants is read in pieces of this size.
constexpr size_t kSkipBytes = 64 << 10;

void set_buffers(kj::AsyncIoStream& stream) {
  const int bytes = kSocketBufferBytes;
  auto failure = kj::runCatchingExceptions([&] {
    stream.setsockopt(SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    stream.setsockopt(SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
  });
  (void)failure;  // The kernel's default does as well, only slower.
}

/// Counters that any thread may read.
struct Counters {
  std::atomic<uint64_t> bytes_sent{0};
  std::atomic<uint64_t> bytes_received{0};
  std::atomic<uint64_t> dropped_headers{0};
};

Wire<schema::TensorHeader> make_header(const DataPlane::Rows& rows) {
  capnp::MallocMessageBuilder message;
  auto header = message.initRoot<schema::TensorHeader>();
  header.setGeneration(rows.key.generation);
  header.setSender(rows.sender);
  header.setReceiver(rows.key.receiver);
  header.setKind(rows.key.kind);
  header.setStep(rows.key.step);
  header.setMicrobatch(rows.key.microbatch);
  header.setRowBegin(rows.row_begin);
  header.setRowCount(rows.row_count);
  header.setPayloadBytes(rows.payload.size_bytes());
  return Wire<schema::TensorHeader>::encode(message);
}

TensorStream::Rows read_header(schema::TensorHeader::Reader header) {
  TensorStream::Rows rows;
  rows.key = {header.getGeneration(), header.getReceiver(), header.getKind(), header.getStep(),
              header.getMicrobatch()};
  rows.begin = header.getRowBegin();
  rows.count = header.getRowCount();
  rows.bytes = header.getPayloadBytes();
  return rows;
}

/// Reads the tensors of one peer. Lives on the loop's thread, as long as its connection.
class Receiver : public std::enable_shared_from_this<Receiver> {
 public:
  Receiver(kj::Own<kj::AsyncIoStream> stream, std::shared_ptr<KjTensorInbox> inbox,
           std::shared_ptr<Counters> counters)
      : stream_(kj::mv(stream)), inbox_(std::move(inbox)), counters_(std::move(counters)) {}

  kj::Promise<void> read_all() {
    return read_frame(*stream_).then(
        [self = shared_from_this()](FrameResult frame) -> kj::Promise<void> {
          if (!frame.status.ok() || frame.words == nullptr) return kj::READY_NOW;
          const auto raw = frame.words.asBytes();
          auto header = Wire<schema::TensorHeader>::parse(
              {reinterpret_cast<const std::byte*>(raw.begin()), raw.size()});
          if (!header.ok()) return kj::READY_NOW;
          const TensorStream::Rows rows = read_header(**header);
          return self->inbox_->place(rows).then([self, rows](KjTensorInbox::Place place) {
            return self->read_payload(rows, std::move(place));
          });
        });
  }

 private:
  kj::Promise<void> read_payload(TensorStream::Rows rows, KjTensorInbox::Place place) {
    if (!place.status.ok()) {  // The peer is wrong about the plan: its connection ends.
      ++counters_->dropped_headers;
      return kj::READY_NOW;
    }
    if (!place.stream) {
      ++counters_->dropped_headers;
      return skip(rows.bytes);
    }
    auto& stream = *stream_;
    return stream.read(place.memory.data(), place.memory.size_bytes())
        .then([self = shared_from_this(), rows, place] {
          self->counters_->bytes_received += rows.bytes;
          place.stream->arrived(rows);
          return self->read_all();
        });
  }

  kj::Promise<void> skip(uint64_t bytes) {
    if (bytes == 0) return read_all();
    auto piece = kj::heapArray<kj::byte>(std::min<uint64_t>(bytes, kSkipBytes));
    auto& target = piece;
    auto read = stream_->read(target.begin(), target.size());
    return read.then([self = shared_from_this(), bytes, piece = kj::mv(piece)] {
      return self->skip(bytes - piece.size());
    });
  }

  kj::Own<kj::AsyncIoStream> stream_;
  std::shared_ptr<KjTensorInbox> inbox_;
  std::shared_ptr<Counters> counters_;
};

/// Sends the tensors of one stream to one peer, in order. Lives on the loop's thread.
class Sender : public std::enable_shared_from_this<Sender> {
 public:
  using OnLost = std::function<void(const std::string&, absl::Status)>;

  Sender(KjEventLoop& loop, std::string address, std::shared_ptr<Counters> counters, OnLost on_lost)
      : loop_(loop),
        address_(std::move(address)),
        counters_(std::move(counters)),
        on_lost_(std::move(on_lost)) {}

  void start(double connect_timeout_seconds) {
    deadline_ = loop_.timer().now() +
                static_cast<int64_t>(connect_timeout_seconds * 1e3) * kj::MILLISECONDS;
    connect();
  }

  void push(DataPlane::Rows rows) {
    if (lost_) return;
    queue_.push_back(std::move(rows));
    if (stream_ && !writing_) write_next();
  }

 private:
  void connect() {
    auto promise = loop_.network()
                       .parseAddress(address_)
                       .then([](kj::Own<kj::NetworkAddress> address) {
                         auto connected = address->connect();
                         return connected.attach(kj::mv(address));
                       })
                       .then([self = shared_from_this()](kj::Own<kj::AsyncIoStream> stream) {
                         self->greet(kj::mv(stream));
                       })
                       .catch_([self = shared_from_this()](kj::Exception&& exception) {
                         self->on_refused(exception);
                       });
    loop_.run(kj::mv(promise));
  }

  void on_refused(const kj::Exception& exception) {
    if (loop_.timer().now() >= deadline_) return lose(exception);
    loop_.run(loop_.timer().afterDelay(kRetryInterval).then([self = shared_from_this()] {
      self->connect();
    }));
  }

  void greet(kj::Own<kj::AsyncIoStream> stream) {
    stream_ = kj::mv(stream);
    set_no_delay(*stream_);
    set_buffers(*stream_);
    auto hello = std::make_shared<HelloFrame>(schema::Role::PEER, schema::PROTOCOL_VERSION);
    writing_ = true;
    run_write(stream_->write(hello->pieces()), hello);
  }

  void write_next() {
    struct Outgoing {
      DataPlane::Rows rows;
      Wire<schema::TensorHeader> header;
      FrameHead head;
      std::array<kj::ArrayPtr<const kj::byte>, 3> pieces;
    };
    Wire<schema::TensorHeader> header = make_header(queue_.front());
    auto out = std::make_shared<Outgoing>(
        Outgoing{std::move(queue_.front()), header, frame_head(header.bytes()), {}});
    queue_.pop_front();
    auto bytes_of = [](const void* data, size_t size) {
      return kj::arrayPtr(static_cast<const kj::byte*>(data), size);
    };
    out->pieces = {bytes_of(&out->head, sizeof(FrameHead)),
                   bytes_of(header.bytes().data(), header.bytes().size()),
                   bytes_of(out->rows.payload.data(), out->rows.payload.size_bytes())};
    counters_->bytes_sent += out->rows.payload.size_bytes();
    writing_ = true;
    run_write(stream_->write(kj::arrayPtr(out->pieces.data(), out->pieces.size())), out);
  }

  /// `owner` holds what is written until it is.
  void run_write(kj::Promise<void> written, std::shared_ptr<void> owner) {
    loop_.run(written.then(
        [self = shared_from_this(), owner]() mutable {
          owner.reset();
          self->writing_ = false;
          if (!self->queue_.empty()) self->write_next();
        },
        [self = shared_from_this(), owner](kj::Exception&& exception) { self->lose(exception); }));
  }

  void lose(const kj::Exception& exception) {
    if (lost_) return;
    lost_ = true;
    queue_.clear();
    if (on_lost_) {
      on_lost_(address_, absl::UnavailableError(exception.getDescription().cStr()));
    }
  }

  KjEventLoop& loop_;
  std::string address_;
  std::shared_ptr<Counters> counters_;
  OnLost on_lost_;
  kj::Own<kj::AsyncIoStream> stream_;
  std::deque<DataPlane::Rows> queue_;  // Bounded by the schedule: outputs of at most two steps.
  kj::TimePoint deadline_ = kj::origin<kj::TimePoint>();
  bool writing_ = false;
  bool lost_ = false;
};

class KjDataPlane final : public DataPlane {
 public:
  KjDataPlane(KjEventLoop& loop, Options options)
      : loop_(loop),
        options_(std::move(options)),
        inbox_(loop.make_shared_here<KjTensorInbox>(loop)),
        counters_(std::make_shared<Counters>()),
        senders_(loop.make_shared_here<Senders>()) {}

  ~KjDataPlane() noexcept override {
    if (acceptor_) acceptor_->stop();
  }

  absl::Status listen() {
    Acceptor::Options accept;
    accept.address = options_.listen_address;
    accept.insecure = options_.insecure;
    accept.on_accept = [&loop = loop_, inbox = inbox_, counters = counters_](
                           kj::Own<kj::AsyncIoStream> stream, schema::Role role, std::string) {
      if (role != schema::Role::PEER) return;
      set_buffers(*stream);
      auto receiver = std::make_shared<Receiver>(kj::mv(stream), inbox, counters);
      loop.run(receiver->read_all());
    };
    auto acceptor = Acceptor::listen(loop_, std::move(accept));
    if (!acceptor.ok()) return acceptor.status();
    acceptor_ = *std::move(acceptor);
    const std::string& listen_address = options_.listen_address;
    address_ =
        absl::StrCat(listen_address.substr(0, listen_address.rfind(':')), ":", acceptor_->port());
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }
  TensorInbox& inbox() override { return *inbox_; }

  void send(const std::string& address, Rows rows) override {
    loop_.post([&loop = loop_, senders = senders_, counters = counters_,
                on_lost = options_.on_peer_lost, timeout = options_.connect_timeout_seconds,
                address, rows = std::move(rows)]() mutable {
      auto& sender = (*senders)[{address, rows.key.receiver, rows.key.kind}];
      if (!sender) {
        sender = std::make_shared<Sender>(loop, address, counters, on_lost);
        sender->start(timeout);
      }
      sender->push(std::move(rows));
    });
  }

  DataPlaneStatistics statistics() const override {
    return {counters_->bytes_sent, counters_->bytes_received, counters_->dropped_headers};
  }

 private:
  using Senders =
      std::map<std::tuple<std::string, uint32_t, schema::TensorKind>, std::shared_ptr<Sender>>;

  KjEventLoop& loop_;
  Options options_;
  std::shared_ptr<KjTensorInbox> inbox_;
  std::shared_ptr<Counters> counters_;
  std::shared_ptr<Senders> senders_;  // Loop's thread.
  std::shared_ptr<Acceptor> acceptor_;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DataPlane>> DataPlane::start(EventLoop& loop, Options options) {
  auto plane = std::make_unique<KjDataPlane>(KjEventLoop::of(loop), std::move(options));
  if (absl::Status status = plane->listen(); !status.ok()) return status;
  return std::unique_ptr<DataPlane>(std::move(plane));
}

}  // namespace skein::net
