#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skein::net {

/// Keys and values by which the members of groups find each other. What one worker puts, every
/// worker gets: `publish` sends an entry to the others, `deliver` is called with theirs.
/// Thread-safe.
class RendezvousBoard {
 public:
  using Publish = std::function<void(const std::string& key, const std::vector<char>& value)>;

  static std::shared_ptr<RendezvousBoard> create(Publish publish);
  virtual ~RendezvousBoard() = default;

  virtual void put(const std::string& key, const std::vector<char>& value) = 0;
  virtual void deliver(const std::string& key, const std::vector<char>& value) = 0;
  /// Blocks until the key is there. DeadlineExceeded or Cancelled (after `cancel`).
  virtual absl::StatusOr<std::vector<char>> wait(const std::string& key,
                                                 double timeout_seconds) = 0;
  virtual void cancel() = 0;
};

/// The members that add up gradients, over Gloo. `all_reduce_sum` blocks: call it on a thread that
/// may. One call at a time; `abort` may be called by any thread.
class GradientGroup {
 public:
  struct Options {
    std::string name;  // Unique per generation and group, the same on all members.
    uint32_t rank = 0;
    uint32_t rank_count = 1;
    std::string bind_host = "127.0.0.1";  // Interface address of this member.
    double timeout_seconds = 60;
  };
  /// Blocks until every member is connected. Every member calls it with the same name and count.
  static absl::StatusOr<std::unique_ptr<GradientGroup>> form(
      const Options& options, std::shared_ptr<RendezvousBoard> board);
  virtual ~GradientGroup() = default;

  /// values := sum over the members; the same bits on every member, and the same for the same
  /// inputs every time. Unavailable or DeadlineExceeded if a member is gone.
  virtual absl::Status all_reduce_sum(std::span<float> values) = 0;
  /// Makes a running and every later call fail at once.
  virtual void abort() = 0;
};

}  // namespace skein::net
