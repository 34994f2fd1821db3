#include "net/gradient_group.hpp"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <utility>

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"

namespace skein::net {
namespace {

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

class Board final : public RendezvousBoard {
 public:
  explicit Board(Publish publish) : publish_(std::move(publish)) {}

  void put(const std::string& key, const std::vector<char>& value) override {
    deliver(key, value);
    publish_(key, value);
  }

  void deliver(const std::string& key, const std::vector<char>& value) override {
    std::lock_guard lock(mutex_);
    entries_[key] = value;
    changed_.notify_all();
  }

  absl::StatusOr<std::vector<char>> wait(const std::string& key, double timeout_seconds) override {
    std::unique_lock lock(mutex_);
    const bool there = changed_.wait_for(lock, to_milliseconds(timeout_seconds),
                                         [&] { return cancelled_ || entries_.contains(key); });
    if (cancelled_) return absl::CancelledError("the group is no longer wanted");
    if (!there) {
      return absl::DeadlineExceededError(
          absl::StrCat("a member did not appear within ", timeout_seconds, " s (", key, ")"));
    }
    return entries_.at(key);
  }

  void cancel() override {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    changed_.notify_all();
  }

 private:
  Publish publish_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<char>> entries_;
  bool cancelled_ = false;
};

/// Thrown through Gloo's code, which knows errors only as exceptions, and caught in `form`.
class BoardError final : public std::exception {
 public:
  explicit BoardError(absl::Status status) : status_(std::move(status)) {}
  const char* what() const noexcept override { return "rendezvous failed"; }
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

/// Gloo's view of the board: keys of one group.
class BoardStore final : public gloo::rendezvous::Store {
 public:
  BoardStore(RendezvousBoard& board, std::string prefix, double timeout_seconds)
      : board_(board), prefix_(std::move(prefix)), timeout_seconds_(timeout_seconds) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    board_.put(full(key), data);
  }
  std::vector<char> get(const std::string& key) override {
    auto value = board_.wait(full(key), timeout_seconds_);
    if (!value.ok()) std::rethrow_exception(std::make_exception_ptr(BoardError(value.status())));
    return *value;
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

 private:
  std::string full(const std::string& key) const { return absl::StrCat(prefix_, "/", key); }

  RendezvousBoard& board_;
  std::string prefix_;
  double timeout_seconds_;
};

/// Runs `call` and turns what Gloo throws into a status.
template <class Call>
absl::Status fenced(const std::string& what, Call call) {
  try {
    call();
    return absl::OkStatus();
  } catch (const BoardError& error) {
    return error.status();
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat(what, ": ", error.what()));
  }
}

class GlooGroup final : public GradientGroup {
 public:
  explicit GlooGroup(Options options) : options_(std::move(options)) {}

  absl::Status connect(RendezvousBoard& board) {
    return fenced(absl::StrCat("forming ", options_.name), [&] {
      gloo::transport::tcp::attr attr;
      attr.hostname = options_.bind_host;
      std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attr);
      auto context = std::make_shared<gloo::rendezvous::Context>(
          static_cast<int>(options_.rank), static_cast<int>(options_.rank_count));
      context->setTimeout(to_milliseconds(options_.timeout_seconds));
      BoardStore store(board, options_.name, options_.timeout_seconds);
      context->connectFullMesh(store, device);
      std::lock_guard lock(mutex_);
      context_ = std::move(context);
    });
  }

  absl::Status all_reduce_sum(std::span<float> values) override {
    const std::shared_ptr<gloo::rendezvous::Context> context = live_context();
    if (!context) return absl::UnavailableError(absl::StrCat(options_.name, " was aborted"));
    if (values.empty()) return absl::OkStatus();
    return fenced(absl::StrCat("all-reduce in ", options_.name), [&] {
      gloo::AllreduceOptions reduce(context);
      reduce.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
      reduce.setOutput(values.data(), values.size());
      reduce.setReduceFunction(
          static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
      reduce.setTimeout(to_milliseconds(options_.timeout_seconds));
      gloo::allreduce(reduce);
    });
  }

  void abort() override {
    std::shared_ptr<gloo::rendezvous::Context> context;
    {
      std::lock_guard lock(mutex_);
      context.swap(context_);
    }
    // A blocked call fails as soon as its connections are closed.
    if (context) (void)fenced("abort", [&] { context->closeConnections(); });
  }

 private:
  std::shared_ptr<gloo::rendezvous::Context> live_context() {
    std::lock_guard lock(mutex_);
    return context_;
  }

  Options options_;
  std::mutex mutex_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
};

}  // namespace

std::shared_ptr<RendezvousBoard> RendezvousBoard::create(Publish publish) {
  return std::make_shared<Board>(std::move(publish));
}

absl::StatusOr<std::unique_ptr<GradientGroup>> GradientGroup::form(
    const Options& options, std::shared_ptr<RendezvousBoard> board) {
  if (options.rank_count < 2 || options.rank >= options.rank_count) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", options.rank, " of ", options.rank_count, " makes no group"));
  }
  auto group = std::make_unique<GlooGroup>(options);
  SKEIN_RETURN_IF_ERROR(group->connect(*board));
  return std::unique_ptr<GradientGroup>(std::move(group));
}

}  // namespace skein::net
