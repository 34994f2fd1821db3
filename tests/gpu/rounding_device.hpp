#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "gpu/device.hpp"

namespace skein::gpu {

/// A device that only sleeps, and says that it keeps activations in bfloat16: for sizes.
class RoundingDevice final : public Device {
 public:
  RoundingDevice() : inner_(make_sleep_device({})), info_(inner_->info()) {
    info_.activations = NumberType::kBfloat16;
  }
  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<Buffer> allocate(int64_t bytes) override { return inner_->allocate(bytes); }
  void submit(Work work, std::function<void(absl::Status)> done) override {
    inner_->submit(std::move(work), std::move(done));
  }

 private:
  std::unique_ptr<Device> inner_;
  DeviceInfo info_;
};

}  // namespace skein::gpu
