#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace skein::gpu {

/// Threads that share the loops of one device. One caller at a time: the device's thread, which
/// takes the first part itself. Parts are fixed by their number, so results do not depend on
/// timing.
class ThreadPool {
 public:
  explicit ThreadPool(int32_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t threads() const { return static_cast<int32_t>(helpers_.size()) + 1; }

  /// Runs `part(i)` for every i in [0, threads()), and returns when all have.
  void run(const std::function<void(int32_t)>& part);

  /// Cuts [0, count) into threads() ranges whose borders are multiples of `grain`, and runs
  /// `body(begin, end)` for each that is not empty. Small counts stay on the caller's thread.
  template <class Body>
  void for_ranges(int64_t count, int64_t grain, const Body& body) {
    const int64_t units = (count + grain - 1) / grain;
    if (threads() == 1 || units < 2) {
      if (count > 0) body(int64_t{0}, count);
      return;
    }
    run([&](int32_t part) {
      const int64_t begin = units * part / threads() * grain;
      const int64_t end = std::min(count, units * (part + 1) / threads() * grain);
      if (begin < end) body(begin, end);
    });
  }

 private:
  void helper_main(int32_t part);

  std::vector<std::thread> helpers_;
  const std::function<void(int32_t)>* part_ = nullptr;
  std::atomic<uint32_t> round_{0};  // Raised by one for every `run`.
  std::atomic<int32_t> unfinished_{0};
  std::atomic<bool> stopping_{false};
};

}  // namespace skein::gpu
