#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace skein::gpu {

/// Host memory for tensors on their way out, all of one size. A handle gives its memory back to the
/// pool when its last copy goes, on whatever thread that is. Thread-safe.
class StagingPool : public std::enable_shared_from_this<StagingPool> {
 public:
  using Handle = std::shared_ptr<std::vector<float>>;

  static std::shared_ptr<StagingPool> create(int64_t floats) {
    return std::shared_ptr<StagingPool>(new StagingPool(floats));  // Constructor is private.
  }

  /// Memory with undefined contents. Grows when all is in use: the schedule bounds how often.
  Handle take() {
    std::unique_ptr<std::vector<float>> memory;
    {
      std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        memory = std::move(free_.back());
        free_.pop_back();
      }
    }
    if (!memory) memory = std::make_unique<std::vector<float>>(static_cast<size_t>(floats_));
    auto give_back = [pool = weak_from_this()](std::vector<float>* raw) {
      std::unique_ptr<std::vector<float>> returned(raw);
      if (auto alive = pool.lock()) alive->put(std::move(returned));
    };
    return Handle(memory.release(), give_back);
  }

 private:
  explicit StagingPool(int64_t floats) : floats_(floats) {}

  void put(std::unique_ptr<std::vector<float>> memory) {
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(memory));
  }

  const int64_t floats_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<std::vector<float>>> free_;
};

}  // namespace skein::gpu
