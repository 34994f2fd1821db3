#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/reduce/reducer.hpp"
#include "plans/base/ids.hpp"

namespace skein::net {

/// Keys and values by which the members of groups find each other. What one worker puts, those get
/// whom it names: `publish` sends an entry to them, `deliver` is called with theirs. Thread-safe.
class RendezvousStore {
 public:
  /// Nobody: all other workers of the plan.
  using Receivers = std::vector<plans::WorkerId>;
  using Publish = std::function<void(const std::string& key, const std::vector<char>& value,
                                     const Receivers& receivers)>;

  static std::shared_ptr<RendezvousStore> create(Publish publish);
  virtual ~RendezvousStore() = default;

  virtual void put(const std::string& key, const std::vector<char>& value,
                   const Receivers& receivers) = 0;
  virtual void deliver(const std::string& key, const std::vector<char>& value) = 0;
  /// Blocks until the key is there. DeadlineExceeded or Cancelled (after `cancel`).
  virtual absl::StatusOr<std::vector<char>> wait(const std::string& key,
                                                 double timeout_seconds) = 0;
  /// Every wait for a key that starts with `prefix` ends as cancelled, now and later.
  virtual void cancel_prefix(const std::string& prefix) = 0;
  virtual void cancel() = 0;
};

/// The members that add up gradients, over Gloo. `connect` and `all_reduce_sum` block: call them on
/// a thread that may. One call at a time; `abort` may be called by any thread.
class GradientGroup {
 public:
  struct Options {
    std::string name;  // Unique per generation and group, the same on all members.
    uint32_t rank = 0;
    uint32_t rank_count = 1;
    /// Whom this member connects with, by rank: at least those whom its reducer moves bytes with,
    /// as `plans::exchange_partners` says. A partner of a member has that one as a partner.
    std::map<uint32_t, plans::WorkerId> partners;
    std::string bind_host = "127.0.0.1";  // Interface address of this member.
    double timeout_seconds = 60;          // The longest time that a collective may take.
    double appear_timeout_seconds = 60;   // For the others to begin; they may be at other work.
    double connect_timeout_seconds = 60;
    ReducerOptions reducer;  // The same kind and density on all members.
  };
  /// InvalidArgument   if the rank is not one of the group, it has only one member, or a partner
  ///                   is missing.
  static absl::StatusOr<std::unique_ptr<GradientGroup>> create(
      const Options& options, std::shared_ptr<RendezvousStore> store);
  virtual ~GradientGroup() = default;

  /// Waits until it is connected with its partners: every member calls it. Call it first, and once.
  virtual absl::Status connect() = 0;
  /// Whether the values of `all_reduce_sum` lie in the memory of the member's device; known once it
  /// is connected.
  virtual bool is_on_device() const { return false; }
  /// values := sum over the members, or what `Options::reducer` puts in its place; the same bits on
  /// every member, and the same for the same inputs every time. Unavailable or DeadlineExceeded if
  /// a member is gone; others as `Reducer`.
  virtual absl::Status all_reduce_sum(std::span<float> values) = 0;
  /// Makes a running and every later call fail at once; a `connect` that waits for a member which
  /// has been there and is gone fails after its time-out only.
  virtual void abort() = 0;
};

}  // namespace skein::net
