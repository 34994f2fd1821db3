#include "gpu/host/thread_pool.hpp"

namespace skein::gpu {
namespace {

/// Looks at a counter before a thread sleeps on it: parts of one product end within microseconds of
/// each other, and a sleep costs tens.
constexpr int kSpins = 2000;

template <class Value>
void wait_while(const std::atomic<Value>& value, Value unwanted) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != unwanted) return;
    __builtin_ia32_pause();
  }
  value.wait(unwanted, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int32_t threads) {
  for (int32_t part = 1; part < threads; ++part) {
    helpers_.emplace_back([this, part] { helper_main(part); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  ++round_;
  round_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadPool::run(const std::function<void(int32_t)>& part) {
  if (helpers_.empty()) return part(0);
  part_ = &part;
  unfinished_.store(static_cast<int32_t>(helpers_.size()), std::memory_order_release);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  part(0);
  for (int32_t left = unfinished_.load(std::memory_order_acquire); left != 0;
       left = unfinished_.load(std::memory_order_acquire)) {
    wait_while(unfinished_, left);
  }
}

void ThreadPool::helper_main(int32_t part) {
  for (uint32_t seen = 0;; ++seen) {
    wait_while(round_, seen);
    if (stopping_) return;
    (*part_)(part);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
  }
}

}  // namespace skein::gpu
