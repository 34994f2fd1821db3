#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace skein::gpu {

/// Says, once and for all, that something is no longer wanted. Thread-safe.
class AbortSignal {
 public:
  void raise() {
    std::lock_guard lock(mutex_);
    is_raised_ = true;
    changed_.notify_all();
  }

  bool is_raised() const {
    std::lock_guard lock(mutex_);
    return is_raised_;
  }

  /// Waits for at most so long. Returns whether it is raised, at once if it is.
  bool wait_for(std::chrono::microseconds time) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [this] { return is_raised_; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool is_raised_ = false;
};

}  // namespace skein::gpu
