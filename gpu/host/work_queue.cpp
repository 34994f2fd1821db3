#include "gpu/host/work_queue.hpp"

#include <utility>

namespace skein::gpu {

WorkQueue::WorkQueue() : thread_([this] { thread_main(); }) {}

WorkQueue::~WorkQueue() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void WorkQueue::push(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void WorkQueue::thread_main() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // What it holds goes now, not when the next one comes.
    lock.lock();
  }
}

}  // namespace skein::gpu
