#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/device.hpp"
#include "gpu/host/host_memory.hpp"
#include "gpu/host/host_ops.hpp"
#include "gpu/host/thread_pool.hpp"

namespace skein::gpu {
namespace {

class HostDevice final : public Device {
 public:
  explicit HostDevice(int32_t threads)
      : info_{absl::StrCat("cpu x", threads), threads, 1.0, true}, pool_(threads), ops_(pool_) {}

  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<Buffer> allocate(int64_t bytes) override { return allocate_host(bytes); }
  absl::Status run(Work work) override {
    const std::lock_guard lock(mutex_);
    return work.run ? work.run(ops_) : absl::OkStatus();
  }

 private:
  DeviceInfo info_;
  ThreadPool pool_;
  HostOps ops_;  // Used by whoever holds the mutex.
  std::mutex mutex_;
};

}  // namespace

std::unique_ptr<Device> make_host_device(int32_t threads) {
  return std::make_unique<HostDevice>(threads);
}

}  // namespace skein::gpu
