#pragma once

#include <memory>
#include <utility>

#include "gpu/device.hpp"

namespace skein::gpu {

/// A device that only sleeps, and says that it keeps activations in bfloat16, and logits in padded
/// rows: for sizes.
class RoundingDevice final : public Device {
 public:
  RoundingDevice() : inner_(make_sleep_device({})), info_(inner_->info()) {
    info_.activations = NumberType::kBfloat16;
    info_.logits = {.rows_max = 8, .numbers_max = 1 << 20, .stride_multiple = 64};
  }
  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<Buffer> allocate(int64_t bytes) override { return inner_->allocate(bytes); }
  absl::Status run(Work work) override { return inner_->run(std::move(work)); }

 private:
  std::unique_ptr<Device> inner_;
  DeviceInfo info_;
};

}  // namespace skein::gpu
