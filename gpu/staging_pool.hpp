#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "gpu/device.hpp"

namespace skein::gpu {

/// Host memory for tensors on their way out, all of one size, which the device copies to and from
/// directly. A handle gives its memory back to the pool when its last copy goes, on whatever thread
/// that is. Thread-safe.
class StagingPool : public std::enable_shared_from_this<StagingPool> {
 public:
  using Handle = std::shared_ptr<std::span<float>>;

  static std::shared_ptr<StagingPool> create(std::shared_ptr<Device> device, int64_t floats) {
    return std::shared_ptr<StagingPool>(new StagingPool(std::move(device), floats));  // Private.
  }

  /// Memory with undefined contents. Grows when all is in use: the schedule bounds how often.
  Handle take() {
    Buffer memory;
    {
      std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        memory = std::move(free_.back());
        free_.pop_back();
      }
    }
    if (memory.data() == nullptr) memory = allocate_visible(*device_, float_bytes(floats_));
    struct Tensor {
      std::weak_ptr<StagingPool> pool;
      std::shared_ptr<Device> device;  // Outlives its memory, also where the pool does not.
      Buffer memory;
      std::span<float> values;
    };
    auto* raw = std::make_unique<Tensor>().release();
    raw->pool = weak_from_this();
    raw->device = device_;
    raw->memory = std::move(memory);
    raw->values = {raw->memory.floats(), static_cast<size_t>(floats_)};
    const std::shared_ptr<Tensor> tensor(raw, [](Tensor* ended) {
      const std::unique_ptr<Tensor> owned(ended);
      if (auto alive = owned->pool.lock()) alive->put(std::move(owned->memory));
    });
    return Handle(tensor, &tensor->values);
  }

 private:
  StagingPool(std::shared_ptr<Device> device, int64_t floats)
      : device_(std::move(device)), floats_(floats) {}

  void put(Buffer memory) {
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(memory));
  }

  const std::shared_ptr<Device> device_;  // Before its memory.
  const int64_t floats_;
  std::mutex mutex_;
  std::vector<Buffer> free_;
};

}  // namespace skein::gpu
