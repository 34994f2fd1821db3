#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/device.hpp"

namespace skein::gpu {

/// Memory of a device for tensors on their way between devices, all of one size. It is all taken
/// when the pool is made, as a device may stop for that. A handle gives its memory back to the pool
/// when its last copy goes, on whatever thread that is: no work or operation uses it any more then.
/// Thread-safe.
class DevicePool : public std::enable_shared_from_this<DevicePool> {
 public:
  using Handle = std::shared_ptr<std::span<float>>;

  struct Tensors {
    int64_t numbers = 0;  // A tensor has so many.
    NumberType type = NumberType::kFloat32;
    int64_t count = 0;  // So many are out at once.
    bool operator==(const Tensors&) const = default;
  };
  /// May block. ResourceExhausted as `Device::allocate`.
  static absl::StatusOr<std::shared_ptr<DevicePool>> create(std::shared_ptr<Device> device,
                                                            const Tensors& tensors) {
    const std::shared_ptr<DevicePool> pool(new DevicePool(std::move(device), tensors));  // Private.
    for (int64_t i = 0; i < tensors.count; ++i) {
      absl::StatusOr<Buffer> made = pool->allocate();
      if (!made.ok()) return made.status();
      pool->put(*std::move(made));
    }
    return pool;
  }

  const Tensors& tensors() const { return tensors_; }
  /// What lies in one of its tensors.
  Numbers numbers_in(const Handle& tensor) const { return {tensor->data(), tensors_.type}; }

  /// Memory with undefined contents, in floats, which hold two numbers each where these are
  /// bfloat16. Grows when more is wanted than it was made for, which the
  /// bound of `plans::link_tensors_max` excludes: a device that stops is better than a run that
  /// does. ResourceExhausted as `Device::allocate`.
  absl::StatusOr<Handle> take() {
    Buffer memory;
    {
      std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        memory = std::move(free_.back());
        free_.pop_back();
      }
    }
    if (memory.data() == nullptr) {
      absl::StatusOr<Buffer> made = allocate();
      if (!made.ok()) return made.status();
      memory = *std::move(made);
    }
    struct Tensor {
      std::shared_ptr<DevicePool> pool;
      Buffer memory;
      std::span<float> values;
    };
    auto* raw = std::make_unique<Tensor>().release();
    raw->pool = shared_from_this();
    raw->memory = std::move(memory);
    raw->values = {raw->memory.floats(), static_cast<size_t>(floats())};
    const std::shared_ptr<Tensor> tensor(raw, [](Tensor* ended) {
      const std::unique_ptr<Tensor> owned(ended);
      owned->pool->put(std::move(owned->memory));
    });
    return Handle(tensor, &tensor->values);
  }

 private:
  DevicePool(std::shared_ptr<Device> device, const Tensors& tensors)
      : device_(std::move(device)), tensors_(tensors) {}

  int64_t floats() const {
    const int64_t float_size = bytes_of(NumberType::kFloat32);
    return (tensors_.numbers * bytes_of(tensors_.type) + float_size - 1) / float_size;
  }
  absl::StatusOr<Buffer> allocate() { return device_->allocate(float_bytes(floats())); }

  void put(Buffer memory) {
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(memory));
  }

  const std::shared_ptr<Device> device_;  // Before its memory.
  const Tensors tensors_;
  std::mutex mutex_;
  std::vector<Buffer> free_;
};

}  // namespace skein::gpu
