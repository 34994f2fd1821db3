#include "net/reduce/gradient_group.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include <gloo/context.h>
#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"
#include "plans/collectives/exchange_partners.hpp"

namespace skein::net {
namespace {

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

/// Each of a group's members publishes some hundred bytes for each of its partners; what others say
/// beyond this is not kept.
constexpr size_t kEntriesBytesMax = 64 << 20;

class Store final : public RendezvousStore {
 public:
  explicit Store(Publish publish) : publish_(std::move(publish)) {}

  void put(const std::string& key, const std::vector<char>& value,
           const Receivers& receivers) override {
    deliver(key, value);
    publish_(key, value, receivers);
  }

  void deliver(const std::string& key, const std::vector<char>& value) override {
    std::lock_guard lock(mutex_);
    const auto before = entries_.find(key);
    const size_t freed = before == entries_.end() ? 0 : bytes_of(*before);
    const size_t added = key.size() + value.size();
    if (bytes_ - freed + added > kEntriesBytesMax) return;  // Its group will not form.
    bytes_ += added - freed;
    entries_[key] = value;
    changed_.notify_all();
  }

  absl::StatusOr<std::vector<char>> wait(const std::string& key, double timeout_seconds) override {
    std::unique_lock lock(mutex_);
    const bool there = changed_.wait_for(lock, to_milliseconds(timeout_seconds), [&] {
      return is_cancelled(key) || entries_.contains(key);
    });
    if (is_cancelled(key)) return absl::CancelledError("the group is no longer wanted");
    if (!there) {
      return absl::DeadlineExceededError(
          absl::StrCat("a member did not appear within ", timeout_seconds, " s (", key, ")"));
    }
    return entries_.at(key);
  }

  void cancel_prefix(const std::string& prefix) override {
    std::lock_guard lock(mutex_);
    cancelled_prefixes_.insert(prefix);
    const auto begin = entries_.lower_bound(prefix);
    const auto end = entries_.lower_bound(prefix + '\x7f');
    for (auto each = begin; each != end; ++each) bytes_ -= bytes_of(*each);
    entries_.erase(begin, end);
    changed_.notify_all();
  }

  void cancel() override {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    changed_.notify_all();
  }

 private:
  static size_t bytes_of(const std::pair<const std::string, std::vector<char>>& entry) {
    return entry.first.size() + entry.second.size();
  }

  bool is_cancelled(const std::string& key) const {
    if (cancelled_) return true;
    return std::any_of(cancelled_prefixes_.begin(), cancelled_prefixes_.end(),
                       [&](const std::string& prefix) { return key.starts_with(prefix); });
  }

  Publish publish_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<char>> entries_;
  size_t bytes_ = 0;  // The entries' keys and values.
  std::set<std::string> cancelled_prefixes_;
  bool cancelled_ = false;
};

/// A member's connections, to its partners only: Gloo's own rendezvous connects all with all, for
/// which each member would have to hear of the addresses of all pairs.
class PartnerContext final : public gloo::Context {
 public:
  using gloo::Context::Context;

  /// DeadlineExceeded or Cancelled as the store's `wait`; throws what Gloo throws.
  absl::Status connect(std::shared_ptr<gloo::transport::Device> device,
                       const GradientGroup::Options& options, RendezvousStore& store) {
    std::shared_ptr<gloo::transport::Context> transport = device->createContext(rank, size);
    transport->setTimeout(getTimeout());
    for (const auto& [partner, worker] : options.partners) {
      const auto& pair = transport->createPair(static_cast<int>(partner));
      pair->setLocalRank(0);  // Nobody asks who is on which host.
      store.put(key_of(options, options.rank, partner), pair->address().bytes(), {worker});
    }
    for (const auto& [partner, worker] : options.partners) {
      SKEIN_ASSIGN_OR_RETURN(
          const std::vector<char> address,
          store.wait(key_of(options, partner, options.rank), options.appear_timeout_seconds));
      transport->getPair(static_cast<int>(partner))->connect(address);
    }
    device_ = std::move(device);
    transportContext_ = std::move(transport);
    return absl::OkStatus();
  }

 private:
  /// Where `from` awaits `to`.
  static std::string key_of(const GradientGroup::Options& options, uint32_t from, uint32_t to) {
    return absl::StrCat(options.name, "/", from, "-", to);
  }
};

/// Runs `call` and turns what Gloo throws into a status.
template <class Call>
absl::Status fenced(const std::string& what, Call call) {
  try {
    call();
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat(what, ": ", error.what()));
  }
}

class GlooGroup final : public GradientGroup {
 public:
  GlooGroup(Options options, std::shared_ptr<RendezvousStore> store)
      : options_(std::move(options)), store_(std::move(store)), reducer_(options_.reducer) {}

  absl::Status connect() override {
    absl::Status status;
    const absl::Status fence = fenced(absl::StrCat("forming ", options_.name), [&] {
      gloo::transport::tcp::attr attr;
      attr.hostname = options_.bind_host;
      std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attr);
      auto context = std::make_shared<PartnerContext>(static_cast<int>(options_.rank),
                                                      static_cast<int>(options_.rank_count));
      context->setTimeout(to_milliseconds(options_.connect_timeout_seconds));
      status = context->connect(std::move(device), options_, *store_);
      if (!status.ok()) return;
      context->setTimeout(to_milliseconds(options_.timeout_seconds));
      std::lock_guard lock(mutex_);
      context_ = std::move(context);
    });
    return fence.ok() ? status : fence;
  }

  absl::Status all_reduce_sum(std::span<float> values) override {
    const std::shared_ptr<gloo::Context> context = live_context();
    if (!context) return aborted();
    Members members(*this, *context, kFirstSlot + calls_++);
    return reducer_.reduce(members, values);
  }

  void abort() override {
    store_->cancel_prefix(options_.name + "/");
    std::lock_guard lock(mutex_);
    is_aborted_ = true;
    for (gloo::transport::UnboundBuffer* buffer : waiting_) {
      buffer->abortWaitRecv();
      buffer->abortWaitSend();
    }
  }

 private:
  std::shared_ptr<gloo::Context> live_context() {
    std::lock_guard lock(mutex_);
    return is_aborted_ ? nullptr : context_;
  }

  absl::Status aborted() const {
    return absl::UnavailableError(absl::StrCat(options_.name, " was aborted"));
  }

  /// Shows the buffers of a running call to `abort`. Woken at once if the group is aborted already.
  class Waiting {
   public:
    Waiting(GlooGroup& group, std::vector<gloo::transport::UnboundBuffer*> buffers)
        : group_(group) {
      std::lock_guard lock(group_.mutex_);
      group_.waiting_ = std::move(buffers);
      for (auto* buffer : group_.waiting_) {
        if (!group_.is_aborted_) break;
        buffer->abortWaitRecv();
        buffer->abortWaitSend();
      }
    }
    ~Waiting() {
      std::lock_guard lock(group_.mutex_);
      group_.waiting_.clear();
    }

   private:
    GlooGroup& group_;
  };

  /// The members as the reducer sees them during one call. Gloo's own collectives wait on buffers
  /// that nobody else can wake: a member that is no neighbour of a dead one would hang until its
  /// time-out. Between two members, messages of one slot come in the order of the calls.
  class Members final : public Exchange {
   public:
    Members(GlooGroup& group, gloo::Context& context, uint64_t slot)
        : group_(group), context_(context), slot_(slot) {}

    uint32_t rank() const override { return static_cast<uint32_t>(context_.rank); }
    uint32_t rank_count() const override { return static_cast<uint32_t>(context_.size); }
    absl::Status move(const Outgoing& out, const Incoming& in) override {
      absl::Status status;
      const absl::Status fence = fenced(absl::StrCat("all-reduce in ", group_.options_.name),
                                        [&] { status = pass(out, in); });
      return fence.ok() ? status : fence;
    }

   private:
    absl::Status pass(const Outgoing& out, const Incoming& in) {
      // Gloo only reads what it sends, but has one type of buffer for both ways.
      const auto source =
          context_.createUnboundBuffer(const_cast<std::byte*>(out.bytes.data()), out.bytes.size());
      const auto target = context_.createUnboundBuffer(in.bytes.data(), in.bytes.size());
      const Waiting waiting(group_, {source.get(), target.get()});
      const auto timeout = to_milliseconds(group_.options_.timeout_seconds);
      if (!in.bytes.empty()) target->recv(static_cast<int>(in.from), slot_, 0, in.bytes.size());
      if (!out.bytes.empty()) source->send(static_cast<int>(out.to), slot_, 0, out.bytes.size());
      const bool is_there = in.bytes.empty() || target->waitRecv(timeout);
      const bool is_gone = out.bytes.empty() || source->waitSend(timeout);
      return is_there && is_gone ? absl::OkStatus() : group_.aborted();
    }

    GlooGroup& group_;
    gloo::Context& context_;
    uint64_t slot_;
  };

  /// Slots below it are those of Gloo's own collectives, which are not used on these contexts.
  static constexpr uint64_t kFirstSlot = uint64_t{1} << 32;

  Options options_;
  std::shared_ptr<RendezvousStore> store_;
  Reducer reducer_;
  uint64_t calls_ = 0;  // Touched by the one caller at a time.
  std::mutex mutex_;
  std::shared_ptr<gloo::Context> context_;
  std::vector<gloo::transport::UnboundBuffer*> waiting_;  // The running call's.
  bool is_aborted_ = false;
};

}  // namespace

std::shared_ptr<RendezvousStore> RendezvousStore::create(Publish publish) {
  return std::make_shared<Store>(std::move(publish));
}

absl::StatusOr<std::unique_ptr<GradientGroup>> GradientGroup::create(
    const Options& options, std::shared_ptr<RendezvousStore> store) {
  if (options.rank_count < 2 || options.rank >= options.rank_count) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", options.rank, " of ", options.rank_count, " makes no group"));
  }
  for (const auto& [partner, worker] : options.partners) {
    if (partner < options.rank_count && partner != options.rank) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(options.name, " has a partner of rank ", partner));
  }
  for (uint32_t partner :
       plans::exchange_partners(options.reducer.kind, options.rank, options.rank_count)) {
    if (options.partners.contains(partner)) continue;
    return absl::InvalidArgumentError(absl::StrCat(options.name, " lacks rank ", partner));
  }
  return std::unique_ptr<GradientGroup>(std::make_unique<GlooGroup>(options, std::move(store)));
}

}  // namespace skein::net
