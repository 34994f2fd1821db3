#include "net/data/data_plane.hpp"

#include <algorithm>
#include <atomic>
#include <list>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net/address.hpp"
#include "net/control/frame.hpp"
#include "net/control/hello.hpp"
#include "net/control/wire.hpp"
#include "net/data/bfloat16_payload.hpp"
#include "net/data/cut_links.hpp"
#include "net/data/listener_check.hpp"
#include "net/data/peer_watch.hpp"
#include "net/data/tensor_inbox_impl.hpp"
#include "net/data/tensor_sender.hpp"
#include "net/kj_event_loop.hpp"

namespace skein::net {
namespace {

/// A payload that nobody wants is read in pieces of this size.
constexpr size_t kSkipBytes = 64 << 10;
/// Of a payload so much comes within the time-out, which any link manages that trains. Whoever only
/// announces tensors holds up others no longer.
constexpr size_t kPieceBytes = 256 << 10;
/// The first byte follows its header at once.
constexpr double kFirstByteSeconds = 5;
/// Connections that may be open without the secret of a plan that we have a part in: probes, those
/// for a plan that we are about to hear of, and strangers, the oldest of which make way.
constexpr size_t kUnprovenMax = 256;

/// Counters that any thread may read.
struct Counters {
  std::atomic<uint64_t> bytes_sent{0};
  std::atomic<uint64_t> bytes_received{0};
  std::atomic<uint64_t> dropped_headers{0};
};

TensorStream::Rows read_header(schema::TensorHeader::Reader header) {
  TensorStream::Rows rows;
  rows.key = {header.getGeneration(), header.getReceiver(), header.getKind(), header.getStep(),
              header.getMicrobatch()};
  rows.begin = header.getRowBegin();
  rows.count = header.getRowCount();
  rows.bytes = header.getPayloadBytes();
  rows.is_bfloat16 = header.getIsBfloat16();
  return rows;
}

std::string run_text(const std::string& run) {
  return run.empty() ? "no run yet" : absl::StrCat("run ", run);
}

/// Probes belong to no plan.
bool is_of_another_life(const Hello& hello, const DataPlane::Identity& here) {
  return hello.generation != 0 && hello.term != here.term;
}

absl::Status check_peer(const Hello& hello, const DataPlane::Identity& here) {
  if (hello.role != schema::Role::PEER) {
    return absl::FailedPreconditionError("it is no worker; this port takes tensors only");
  }
  if (hello.run != here.run) {
    return absl::FailedPreconditionError(
        absl::StrCat("it serves ", run_text(hello.run), ", here is ", run_text(here.run),
                     "; its coordinator knows an old address of ours"));
  }
  // Without a number it is the coordinator, of which there is one.
  if (!hello.run.empty() && hello.sender.value == 0 && here.self.value == 0) {
    return absl::FailedPreconditionError("it does not say which worker of the run it is");
  }
  if (is_of_another_life(hello, here)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "its plan was made in life ", hello.term, " of the coordinator, here is life ", here.term));
  }
  return absl::OkStatus();
}

/// Without a secret.
Hello hello_for(const DataPlane::Identity& self, uint64_t generation) {
  return {schema::PROTOCOL_VERSION, schema::Role::PEER, self.run, generation, self.self, self.term};
}

/// Reads the tensors of one peer. Lives on the loop's thread, as long as its connection.
class Receiver : public std::enable_shared_from_this<Receiver> {
 public:
  /// `refuse` is told why the connection ends because of what the peer says, and `on_no_memory` why
  /// it ends because of us.
  Receiver(kj::Own<kj::AsyncIoStream> stream, Hello hello,
           std::shared_ptr<const DataPlane::Identity> here, std::shared_ptr<KjTensorInbox> inbox,
           std::shared_ptr<Counters> counters, kj::Timer& timer, double timeout_seconds,
           std::function<void(const std::string&)> refuse,
           std::function<void(uint64_t, absl::Status)> on_no_memory)
      : stream_(kj::mv(stream)),
        hello_(std::move(hello)),
        here_(std::move(here)),
        inbox_(std::move(inbox)),
        counters_(std::move(counters)),
        timer_(timer),
        timeout_seconds_(timeout_seconds),
        refuse_(std::move(refuse)),
        on_no_memory_(std::move(on_no_memory)) {}

  /// It shows that it takes part in a plan.
  bool is_proven(const PlanSecrets& secrets) const {
    return hello_.secret != 0 && hello_.secret == secrets.of(hello_.generation);
  }

  kj::Promise<void> read_all() {
    return read_frame(*stream_, kSmallFrameBytesMax)
        .then([self = shared_from_this()](FrameResult frame) -> kj::Promise<void> {
          if (!frame.status.ok() || frame.words == nullptr) return kj::READY_NOW;
          const auto raw = frame.words.asBytes();
          auto header = Wire<schema::TensorHeader>::parse(
              {reinterpret_cast<const std::byte*>(raw.begin()), raw.size()});
          if (!header.ok()) return kj::READY_NOW;
          TensorStream::Rows rows = read_header(**header);
          rows.sender = self->hello_.sender;
          rows.secret = self->hello_.secret;
          if (rows.key.generation != self->hello_.generation) {
            ++self->counters_->dropped_headers;
            self->refuse_rows(
                rows, absl::StrCat("its connection is for generation ", self->hello_.generation));
            return kj::READY_NOW;
          }
          if (is_of_another_life(self->hello_, *self->here_)) {  // A new one began meanwhile.
            ++self->counters_->dropped_headers;
            return kj::READY_NOW;
          }
          return self->inbox_->place(rows).then([self, rows](KjTensorInbox::Place place) {
            return self->read_payload(rows, std::move(place));
          });
        });
  }

 private:
  /// Who it is is only what it says.
  void refuse_rows(const TensorStream::Rows& rows, const std::string& why) const {
    refuse_(absl::StrCat("it calls itself w", rows.sender.value,
                         ", and sent a tensor of generation ", rows.key.generation, ": ", why));
  }

  /// The peer sees its connection end, and would be believed that we are gone.
  void say_no_memory(const TensorStream::Rows& rows, const absl::Status& why) const {
    // Without a plan it is a probe, whose link is not measured then.
    if (on_no_memory_ && rows.key.generation != 0) on_no_memory_(rows.key.generation, why);
  }

  kj::Promise<void> read_payload(TensorStream::Rows rows, KjTensorInbox::Place place) {
    // The peer is wrong about the plan, or there is no memory: its connection ends.
    if (!place.status.ok()) {
      ++counters_->dropped_headers;
      absl::IsResourceExhausted(place.status)
          ? say_no_memory(rows, place.status)
          : refuse_rows(rows, std::string(place.status.message()));
      return kj::READY_NOW;
    }
    if (!place.stream) {
      ++counters_->dropped_headers;
      return skip(rows.bytes);
    }
    const auto bytes =
        rows.is_bfloat16 ? bfloat16_place(place.memory) : std::as_writable_bytes(place.memory);
    return read_pieces(bytes, std::min(kFirstByteSeconds, timeout_seconds_), 1)
        .then(
            [self = shared_from_this(), rows, place]() -> kj::Promise<void> {
              self->counters_->bytes_received += rows.bytes;
              if (rows.is_bfloat16) read_bfloat16(place.memory);
              place.stream->arrived(rows);
              self->inbox_->on_arrived();
              return self->read_all();
            },
            [self = shared_from_this(), rows, place](kj::Exception&&) -> kj::Promise<void> {
              ++self->counters_->dropped_headers;
              place.stream->abandon(rows);
              return kj::READY_NOW;  // The connection ends.
            });
  }

  /// At least `least` bytes within `patience`, and the rest in pieces. Fails if they do not come.
  kj::Promise<void> read_pieces(std::span<std::byte> to, double patience_seconds, size_t least) {
    if (to.empty()) return kj::READY_NOW;
    // May throw at once, as in `read_frame`: the rows would never be abandoned.
    auto read = kj::evalNow(
        [&] { return stream_->read(to.data(), std::min(least, to.size()), to.size()); });
    return timer_.timeoutAfter(to_duration(patience_seconds), kj::mv(read))
        .then([self = shared_from_this(), to](size_t got) {
          return self->read_pieces(to.subspan(got), self->timeout_seconds_, kPieceBytes);
        });
  }

  kj::Promise<void> skip(uint64_t bytes) {
    if (bytes == 0) return read_all();
    auto piece = kj::heapArray<kj::byte>(std::min<uint64_t>(bytes, kSkipBytes));
    auto& target = piece;
    auto read = timer_.timeoutAfter(to_duration(timeout_seconds_),
                                    stream_->read(target.begin(), target.size()));
    return read.then([self = shared_from_this(), bytes, piece = kj::mv(piece)] {
      return self->skip(bytes - piece.size());
    });
  }

  kj::Own<kj::AsyncIoStream> stream_;
  const Hello hello_;
  const std::shared_ptr<const DataPlane::Identity> here_;
  std::shared_ptr<KjTensorInbox> inbox_;
  std::shared_ptr<Counters> counters_;
  kj::Timer& timer_;
  const double timeout_seconds_;
  const std::function<void(const std::string&)> refuse_;
  const std::function<void(uint64_t, absl::Status)> on_no_memory_;  // May be null.
};

/// What comes from peers is read, of all of those that take part in a plan, and of few others.
/// Lives on the loop's thread.
class Receivers {
 public:
  explicit Receivers(std::shared_ptr<const PlanSecrets> secrets) : secrets_(std::move(secrets)) {}

  void add(const std::shared_ptr<Receiver>& receiver) {
    open_.remove_if([](const Open& each) { return each.receiver.expired(); });
    open_.push_back({receiver, receiver->read_all().eagerlyEvaluate([](kj::Exception&&) {})});
    auto oldest = open_.end();
    size_t unproven = 0;
    for (auto each = open_.begin(); each != open_.end(); ++each) {
      const std::shared_ptr<Receiver> alive = each->receiver.lock();
      if (!alive || alive->is_proven(*secrets_)) continue;
      if (unproven++ == 0) oldest = each;
    }
    if (unproven > kUnprovenMax) open_.erase(oldest);
  }

 private:
  struct Open {
    std::weak_ptr<Receiver> receiver;
    kj::Promise<void> reading;  // Without it the connection ends.
  };
  const std::shared_ptr<const PlanSecrets> secrets_;
  std::list<Open> open_;  // The oldest first; some have ended.
};

/// The connections to peers. Lives on the loop's thread.
class Senders {
 public:
  Senders(KjEventLoop& loop, const std::shared_ptr<Counters>& counters,
          std::shared_ptr<const DataPlane::Identity> identity,
          std::shared_ptr<const PlanSecrets> secrets, DataPlane::Options options)
      : loop_(loop),
        bytes_sent_(counters, &counters->bytes_sent),
        identity_(std::move(identity)),
        secrets_(std::move(secrets)),
        options_(std::move(options)) {}
  ~Senders() {
    for (auto& [name, watch] : watches_) watch->close();
  }

  void send(const std::string& address, DataPlane::Rows rows) {
    const uint64_t generation = rows.key.generation;
    if (generation > 0 && generation < floor_) return;
    auto& sender = senders_[{generation, address, rows.key.receiver, rows.key.kind}];
    // No later generation makes the connection of a probe anew.
    if (!sender || (generation == 0 && sender->has_ended())) {
      sender =
          std::make_shared<TensorSender>(loop_, address, bytes_sent_, cuts_, options_.on_peer_lost);
      Hello hello = hello_for(*identity_, generation);
      hello.secret = secrets_->of(generation);
      sender->start(hello, options_.connect_timeout_seconds);
    }
    sender->push(std::move(rows));
  }

  void watch(uint64_t generation, const std::vector<std::string>& addresses,
             double patience_seconds) {
    if (generation < floor_ || !options_.on_unreachable) return;
    for (const std::string& address : addresses) {
      auto& watch = watches_[{generation, address}];
      if (watch) continue;
      watch = std::make_shared<PeerWatch>(loop_, address, patience_seconds, cuts_,
                                          options_.on_unreachable);
      Hello hello = hello_for(*identity_, generation);
      hello.secret = secrets_->of(generation);
      watch->start(std::move(hello));
    }
  }

  void drop_link(const std::string& address, double seconds) {
    cuts_->cut(address, seconds, loop_.now_us());
    for (auto& [name, watch] : watches_) {
      if (name.second == address) watch->cut();
    }
    for (auto& [name, sender] : senders_) {
      const auto& [generation, to, receiver, kind] = name;
      if (to != address) continue;
      generation > 0 ? sender->cut() : sender->close();
    }
  }

  void close_before(uint64_t generation) {
    floor_ = std::max(floor_, generation);
    const auto begin = senders_.lower_bound({1, {}, 0, {}});
    const auto end = senders_.lower_bound({floor_, {}, 0, {}});
    for (auto each = begin; each != end; ++each) each->second->close();
    senders_.erase(begin, end);
    const auto watched = watches_.lower_bound({floor_, {}});
    for (auto each = watches_.begin(); each != watched; ++each) each->second->close();
    watches_.erase(watches_.begin(), watched);
  }

 private:
  using Name = std::tuple<uint64_t, std::string, uint32_t, schema::TensorKind>;

  KjEventLoop& loop_;
  const std::shared_ptr<std::atomic<uint64_t>> bytes_sent_;
  const std::shared_ptr<const DataPlane::Identity> identity_;
  const std::shared_ptr<const PlanSecrets> secrets_;
  const std::shared_ptr<CutLinks> cuts_ = std::make_shared<CutLinks>();
  const DataPlane::Options options_;
  std::map<Name, std::shared_ptr<TensorSender>> senders_;
  std::map<std::pair<uint64_t, std::string>, std::shared_ptr<PeerWatch>> watches_;
  uint64_t floor_ = 1;  // Generations below it are closed, but for 0.
};

class KjDataPlane final : public DataPlane {
 public:
  KjDataPlane(KjEventLoop& loop, Options options)
      : loop_(loop),
        options_(std::move(options)),
        inbox_(loop.make_shared_here<KjTensorInbox>(loop, secrets_)),
        counters_(std::make_shared<Counters>()),
        senders_(loop.make_shared_here<Senders>(loop, counters_, identity_, secrets_, options_)) {}

  ~KjDataPlane() noexcept override {
    if (acceptor_) acceptor_->stop();
  }

  absl::Status listen() {
    Acceptor::Options accept;
    accept.address = options_.listen_address;
    accept.insecure = options_.insecure;
    accept.check = [identity = identity_](const Hello& hello) {
      return check_peer(hello, *identity);
    };
    accept.on_rejected = [identity = identity_, on_refused = options_.on_refused](
                             const std::string& peer, const std::string& why) {
      // The others may hear of us before we hear that we are of the run: they try again.
      if (on_refused && !identity->run.empty()) on_refused(peer, why);
    };
    accept.on_accept = [&loop = loop_, identity = identity_, inbox = inbox_, counters = counters_,
                        timeout_seconds = options_.payload_timeout_seconds,
                        receivers = loop_.make_shared_here<Receivers>(secrets_),
                        on_refused = options_.on_refused, on_no_memory = options_.on_no_memory](
                           kj::Own<kj::AsyncIoStream> stream, Hello hello, std::string peer) {
      set_data_buffers(*stream);
      auto refuse = [on_refused, peer = std::move(peer)](const std::string& why) {
        if (on_refused) on_refused(peer, why);
      };
      auto receiver = std::make_shared<Receiver>(kj::mv(stream), std::move(hello), identity, inbox,
                                                 counters, loop.timer(), timeout_seconds,
                                                 std::move(refuse), on_no_memory);
      receivers->add(receiver);
    };
    auto acceptor = Acceptor::listen(loop_, std::move(accept));
    if (!acceptor.ok()) return acceptor.status();
    acceptor_ = *std::move(acceptor);
    const std::string& listen_address = options_.listen_address;
    address_ =
        absl::StrCat(listen_address.substr(0, listen_address.rfind(':')), ":", acceptor_->port());
    return absl::OkStatus();
  }

  void identify(Identity identity) override {
    loop_.post([to = identity_, identity = std::move(identity)] { *to = identity; });
  }

  void set_plan_secret(PlanSecret secret) override {
    loop_.post([secrets = secrets_, secret] { secrets->set(secret); });
  }

  const std::string& address() const override { return address_; }
  TensorInbox& inbox() override { return *inbox_; }

  void send(const std::string& address, Rows rows) override {
    loop_.post([senders = senders_, address, rows = std::move(rows)]() mutable {
      senders->send(address, std::move(rows));
    });
  }

  void watch(uint64_t generation, std::vector<std::string> addresses,
             double patience_seconds) override {
    loop_.post([senders = senders_, generation, addresses = std::move(addresses),
                patience_seconds] { senders->watch(generation, addresses, patience_seconds); });
  }

  void check_listener(const std::string& address, double patience_seconds,
                      std::function<void()> on_gone) override {
    auto check =
        loop_.make_shared_here<ListenerCheck>(loop_, address, patience_seconds, std::move(on_gone));
    loop_.post([check, identity = identity_] { check->start(hello_for(*identity, 0)); });
  }

  void close_before(uint64_t generation) override {
    loop_.post([senders = senders_, generation] { senders->close_before(generation); });
    inbox_->close_before(generation);
  }

  void drop_link(const std::string& address, double seconds) override {
    loop_.post([senders = senders_, address, seconds] { senders->drop_link(address, seconds); });
  }

  DataPlaneStatistics statistics() const override {
    return {counters_->bytes_sent, counters_->bytes_received, counters_->dropped_headers};
  }

 private:
  KjEventLoop& loop_;
  Options options_;
  const std::shared_ptr<PlanSecrets> secrets_ = std::make_shared<PlanSecrets>();  // The loop's.
  std::shared_ptr<KjTensorInbox> inbox_;
  std::shared_ptr<Counters> counters_;
  const std::shared_ptr<Identity> identity_ = std::make_shared<Identity>();  // The loop's thread.
  std::shared_ptr<Senders> senders_;
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
