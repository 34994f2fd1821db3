#include <memory>
#include <mutex>
#include <utility>

#include "gpu/cuda/cuda_context.hpp"
#include "gpu/cuda/cuda_ops.hpp"
#include "gpu/cuda/nccl_groups.hpp"
#include "gpu/cuda/plugin_abi.hpp"
#include "gpu/cuda/profiler_range.hpp"
#include "plans/base/status_macros.hpp"

// What libskein_cuda.so shows to the program.

namespace skein::gpu {
namespace {

/// Enough rows to fill a large GPU's product, whose last wave of blocks is then a small part of it,
/// and rows that its copy engines take, which want 16 bytes: a vocabulary as GPT-2's is odd.
constexpr LogitsLayout kLogits = {
    .rows_max = 8192, .numbers_max = int64_t{1} << 31, .stride_multiple = 64};

/// A GPU. A work has ended when the GPU has done it and the host has its numbers; the next one
/// begins then.
class CudaDevice final : public Device {
 public:
  CudaDevice(std::unique_ptr<CudaContext> context, std::unique_ptr<CudaOps> ops,
             Precision precision, int64_t memory_bytes)
      : context_(std::move(context)), ops_(std::move(ops)) {
    info_.name = context_->name();
    info_.is_host_memory = false;
    if (precision == Precision::kBfloat16) info_.activations = NumberType::kBfloat16;
    info_.logits = kLogits;
    info_.memory_bytes = memory_bytes;
    info_.remark = ops_->remark();
  }

  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<Buffer> allocate(int64_t bytes) override { return context_->allocate(bytes); }
  absl::StatusOr<Buffer> allocate_host_visible(int64_t bytes) override {
    return context_->allocate_pinned(bytes);
  }
  absl::Status upload(std::span<const float> from, float* to) override {
    return context_->upload(from, to);
  }
  absl::Status download(const float* from, std::span<float> to) override {
    return context_->download(from, to);
  }
  absl::StatusOr<DeviceGroups*> groups() override {
    std::lock_guard lock(groups_mutex_);
    if (!groups_) {
      SKEIN_ASSIGN_OR_RETURN(groups_, NcclGroups::create(*context_));
    }
    return groups_.get();
  }
  DeviceMemory memory() const override { return context_->memory(); }

  absl::Status run(Work work) override {
    const std::lock_guard lock(mutex_);
    const ProfilerRange range(work.name);
    absl::Status status = context_->use();
    if (status.ok() && work.run) status = work.run(*ops_);
    // Also after an error: what has begun uses what the work holds. The device's error says more.
    const absl::Status ended = ops_->finish();
    return ended.ok() ? status : ended;
  }

 private:
  DeviceInfo info_;
  std::unique_ptr<CudaContext> context_;
  std::unique_ptr<CudaOps> ops_;
  std::mutex groups_mutex_;
  std::unique_ptr<NcclGroups> groups_;  // From the first call for it on.
  std::mutex mutex_;                    // Owned by `ops_`.
};

absl::StatusOr<std::unique_ptr<Device>> make_device(const CudaOptions& options) {
  SKEIN_ASSIGN_OR_RETURN(const Precision precision, parse_precision(options.precision));
  SKEIN_ASSIGN_OR_RETURN(auto context, CudaContext::create(options));
  SKEIN_ASSIGN_OR_RETURN(auto ops, CudaOps::create(*context, precision));
  // Without the workspace of the products, which is taken by now.
  SKEIN_ASSIGN_OR_RETURN(const int64_t memory_bytes, context->free_bytes());
  return std::make_unique<CudaDevice>(std::move(context), std::move(ops), precision, memory_bytes);
}

}  // namespace
}  // namespace skein::gpu

extern "C" {

__attribute__((visibility("default"))) int skein_cuda_plugin_abi() {
  return skein::gpu::kCudaPluginAbi;
}

__attribute__((visibility("default"))) void skein_cuda_make_device(
    const skein::gpu::CudaOptions& options,
    absl::StatusOr<std::unique_ptr<skein::gpu::Device>>* made) {
  *made = skein::gpu::make_device(options);
}
}
