#include "gpu/cuda/cuda_context.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/cuda/choose_gpu.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

/// Tensor cores for bfloat16 came with 8.0; libskein_cuda.so has no code for what is older.
constexpr int kCapabilityMajorMin = 8;

CachingAllocator::Source device_source() {
  return {[](int64_t bytes) -> absl::StatusOr<void*> {
            void* memory = nullptr;
            const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(bytes));
            if (error == cudaSuccess) return memory;
            (void)cudaGetLastError();  // It would be taken for an error of the next launch.
            size_t free = 0, total = 0;
            (void)cudaMemGetInfo(&free, &total);
            return cuda_status(
                error, absl::StrCat("cudaMalloc with ", free, " of ", total, " bytes free"));
          },
          [](void* memory) { (void)cudaFree(memory); }};
}

CachingAllocator::Source pinned_source() {
  return {[](int64_t bytes) -> absl::StatusOr<void*> {
            void* memory = nullptr;
            const cudaError_t error =
                cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocPortable);
            if (error == cudaSuccess) return memory;
            (void)cudaGetLastError();
            return cuda_status(error, "cudaHostAlloc");
          },
          [](void* memory) { (void)cudaFreeHost(memory); }};
}

/// Keeps the allocator alive: models may go after the device.
Buffer buffer_of(void* memory, int64_t bytes, std::shared_ptr<CachingAllocator> from) {
  return Buffer(memory, bytes, [from = std::move(from)](void* raw) { from->give_back(raw); });
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaContext>> CudaContext::create(const CudaOptions& options) {
  std::unique_ptr<CudaContext> context(new CudaContext());  // Constructor is private.
  SKEIN_RETURN_IF_ERROR(context->open(options));
  return context;
}

absl::Status CudaContext::open(const CudaOptions& options) {
  int count = 0;
  SKEIN_RETURN_IF_ERROR(cuda_status(cudaGetDeviceCount(&count), "no GPU can be asked for"));
  SKEIN_ASSIGN_OR_RETURN(ordinal_, choose_gpu(options, count));
  cudaDeviceProp properties{};
  SKEIN_RETURN_IF_ERROR(cuda_status(cudaGetDeviceProperties(&properties, ordinal_),
                                    "cannot read the GPU's properties"));
  if (properties.major < kCapabilityMajorMin) {
    return absl::UnavailableError(absl::StrCat(properties.name, " has compute capability ",
                                               properties.major, ".", properties.minor,
                                               "; 8.0 is the least"));
  }
  // Its place on the bus, as the number is only one among those that this process sees.
  name_ = absl::StrFormat("cuda:%d %s (%04x:%02x:%02x.0)", ordinal_, properties.name,
                          properties.pciDomainID, properties.pciBusID, properties.pciDeviceID);
  SKEIN_RETURN_IF_ERROR(use());
  SKEIN_ASSIGN_OR_RETURN(compute_, Stream::create(0));
  SKEIN_ASSIGN_OR_RETURN(copy_, Stream::create(0));
  // What other GPUs wait for goes first.
  SKEIN_ASSIGN_OR_RETURN(communication_, Stream::create(-1));
  device_memory_ = std::make_shared<CachingAllocator>(device_source(), options.memory_bytes_max);
  pinned_memory_ = std::make_shared<CachingAllocator>(pinned_source(), 0);
  return absl::OkStatus();
}

CudaContext::~CudaContext() {
  (void)use();
  (void)cudaDeviceSynchronize();
}

absl::StatusOr<std::string> CudaContext::bus_id() const {
  char text[32] = {};
  SKEIN_RETURN_IF_ERROR(cuda_status(cudaDeviceGetPCIBusId(text, sizeof text, ordinal_),
                                    "cannot read the GPU's place"));
  return text;
}

absl::Status CudaContext::use() const {
  return cuda_status(cudaSetDevice(ordinal_), "cannot use the GPU");
}

absl::StatusOr<int64_t> CudaContext::free_bytes() const {
  SKEIN_RETURN_IF_ERROR(use());
  size_t free = 0, total = 0;
  SKEIN_RETURN_IF_ERROR(cuda_status(cudaMemGetInfo(&free, &total), "cannot see free memory"));
  const DeviceMemory own = memory();
  const int64_t bytes = static_cast<int64_t>(free) + own.cached;
  return own.limit > 0 ? std::min(bytes, own.limit - own.in_use) : bytes;
}

absl::StatusOr<Buffer> CudaContext::take(int64_t bytes) {
  SKEIN_RETURN_IF_ERROR(use());
  SKEIN_ASSIGN_OR_RETURN(void* memory, device_memory_->take(bytes));
  return buffer_of(memory, bytes, device_memory_);
}

absl::StatusOr<Buffer> CudaContext::allocate(int64_t bytes) {
  SKEIN_ASSIGN_OR_RETURN(Buffer buffer, take(bytes));
  // In the order of the stream on which memory that was used before may still be in use.
  const auto count = static_cast<size_t>(bytes);
  SKEIN_RETURN_IF_ERROR(
      cuda_status(cudaMemsetAsync(buffer.data(), 0, count, compute()), "cannot zero memory"));
  SKEIN_RETURN_IF_ERROR(cuda_status(cudaStreamSynchronize(compute()), "cannot zero memory"));
  return buffer;
}

absl::StatusOr<Buffer> CudaContext::allocate_pinned(int64_t bytes) {
  SKEIN_RETURN_IF_ERROR(use());
  SKEIN_ASSIGN_OR_RETURN(void* memory, pinned_memory_->take(bytes));
  std::memset(memory, 0, static_cast<size_t>(bytes));
  return buffer_of(memory, bytes, pinned_memory_);
}

absl::Status CudaContext::upload(std::span<const float> from, float* to) {
  return copy(to, from.data(), from.size_bytes(), cudaMemcpyHostToDevice);
}

absl::Status CudaContext::download(const float* from, std::span<float> to) {
  return copy(to.data(), from, to.size_bytes(), cudaMemcpyDeviceToHost);
}

absl::Status CudaContext::copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return absl::OkStatus();
  SKEIN_RETURN_IF_ERROR(use());
  // An event of its own, as several threads may copy.
  SKEIN_ASSIGN_OR_RETURN(const Event event, Event::create());
  SKEIN_RETURN_IF_ERROR(order_behind(copy_.raw(), compute(), event));
  SKEIN_RETURN_IF_ERROR(
      cuda_status(cudaMemcpyAsync(to, from, bytes, kind, copy_.raw()), "cannot copy"));
  return cuda_status(cudaStreamSynchronize(copy_.raw()), "cannot copy");
}

}  // namespace skein::gpu
