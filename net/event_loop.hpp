#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"

namespace skein::net {

/// A KJ event loop on a thread of its own. All sockets of a process live on one. Thread-safe.
/// Everything made from it must be destroyed before it.
class EventLoop {
 public:
  static absl::StatusOr<std::unique_ptr<EventLoop>> start();
  virtual ~EventLoop() = default;

  /// Runs `task` on the loop's thread, in the order of calls. Never blocks.
  virtual void post(std::function<void()> task) = 0;
};

}  // namespace skein::net
