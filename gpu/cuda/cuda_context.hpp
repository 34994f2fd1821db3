#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/cuda/caching_allocator.hpp"
#include "gpu/cuda/cuda_handles.hpp"
#include "gpu/cuda/load_cuda.hpp"

namespace skein::gpu {

/// One GPU: its streams and its memory. `use`, `allocate`, `upload` and `download` may be called by
/// any thread; the streams are for the device's own thread.
class CudaContext {
 public:
  /// Unavailable in one line if there is no driver, no such GPU, or one that is too old.
  static absl::StatusOr<std::unique_ptr<CudaContext>> create(const CudaOptions& options);
  ~CudaContext();

  const std::string& name() const { return name_; }  // "cuda:0 NVIDIA H200 (0000:1b:00.0)"
  cudaStream_t compute() const { return compute_.raw(); }
  /// The stream for operations of groups of GPUs.
  cudaStream_t communication() const { return communication_.raw(); }

  /// "0000:19:00.0": one of the machine's has no other's.
  absl::StatusOr<std::string> bus_id() const;
  /// Makes the GPU that of the calling thread, as CUDA keeps one for every thread.
  absl::Status use() const;
  /// Zeroed memory.
  absl::StatusOr<Buffer> allocate(int64_t bytes);
  /// Zeroed host memory that the GPU copies from and to directly.
  absl::StatusOr<Buffer> allocate_pinned(int64_t bytes);
  absl::Status upload(std::span<const float> from, float* to);
  absl::Status download(const float* from, std::span<float> to);
  DeviceMemory memory() const { return device_memory_->memory(); }
  /// That is free on the GPU, whoever has the rest, or that the limit leaves if it is less.
  absl::StatusOr<int64_t> free_bytes() const;

  /// Memory with undefined contents, for work of the compute stream only.
  absl::StatusOr<Buffer> take(int64_t bytes);

 private:
  CudaContext() = default;
  absl::Status open(const CudaOptions& options);
  absl::Status copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);

  int ordinal_ = 0;
  std::string name_;
  Stream compute_, copy_, communication_;
  std::shared_ptr<CachingAllocator> device_memory_;
  std::shared_ptr<CachingAllocator> pinned_memory_;
};

}  // namespace skein::gpu
