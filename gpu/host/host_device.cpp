#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/device.hpp"
#include "gpu/host/host_memory.hpp"
#include "gpu/host/host_ops.hpp"
#include "gpu/host/thread_pool.hpp"
#include "gpu/host/work_queue.hpp"

namespace skein::gpu {
namespace {

class HostDevice final : public Device {
 public:
  explicit HostDevice(int32_t threads)
      : info_{absl::StrCat("cpu x", threads), threads, 1.0, true}, pool_(threads), ops_(pool_) {}

  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<Buffer> allocate(int64_t bytes) override { return allocate_host(bytes); }
  void submit(Work work, std::function<void(absl::Status)> done) override {
    queue_.push([this, work = std::move(work), done = std::move(done)]() mutable {
      absl::Status status = work.run ? work.run(ops_) : absl::OkStatus();
      work = {};  // What the work holds goes before anyone hears that it is done.
      done(std::move(status));
    });
  }

 private:
  DeviceInfo info_;
  ThreadPool pool_;
  HostOps ops_;
  WorkQueue queue_;  // Last: its thread uses the others.
};

}  // namespace

std::unique_ptr<Device> make_host_device(int32_t threads) {
  return std::make_unique<HostDevice>(threads);
}

}  // namespace skein::gpu
