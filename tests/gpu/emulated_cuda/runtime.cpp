// The calls of CUDA's runtime that the plugin makes, on host memory. Everything is done at once, so
// streams and events have nothing to do. Memory comes poisoned with NaN.

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "controls.hpp"

namespace emulated {

Settings& settings() {
  static Settings only;
  return only;
}

}  // namespace emulated

extern "C" __attribute__((visibility("default"))) void emulated_cuda_set(emulated::Control control,
                                                                         int64_t value) {
  emulated::Settings& settings = emulated::settings();
  if (control == emulated::Control::kMemoryBytes) settings.memory_bytes = value;
  if (control == emulated::Control::kWaitsUntilLost) settings.waits_until_lost = value;
  if (control == emulated::Control::kEpilogues) settings.has_epilogues = value != 0;
}

namespace {

struct Memory {
  std::mutex mutex;
  std::map<const void*, size_t> device;
  std::map<const void*, size_t> pinned;
  int64_t in_use = 0;
};

Memory& memory() {
  static Memory only;
  return only;
}

cudaError_t wait() {
  emulated::Settings& settings = emulated::settings();
  if (settings.waits_until_lost == 0) return cudaErrorLaunchFailure;
  if (settings.waits_until_lost > 0) --settings.waits_until_lost;
  return cudaSuccess;
}

int handle;  // What streams and events point to.

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof *properties);
  std::strcpy(properties->name, "emulated");
  properties->major = 9;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }

const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
                                            : "cudaErrorLaunchFailure";
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "unspecified launch failure";
}

cudaError_t cudaMalloc(void** made, size_t bytes) {
  Memory& all = memory();
  std::lock_guard lock(all.mutex);
  if (all.in_use + static_cast<int64_t>(bytes) > emulated::settings().memory_bytes) {
    return cudaErrorMemoryAllocation;
  }
  *made = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  std::memset(*made, 0xFF, bytes);
  all.device[*made] = bytes;
  all.in_use += static_cast<int64_t>(bytes);
  return cudaSuccess;
}

cudaError_t cudaFree(void* freed) {
  Memory& all = memory();
  std::lock_guard lock(all.mutex);
  const auto node = all.device.extract(freed);
  if (node.empty()) std::abort();
  all.in_use -= static_cast<int64_t>(node.mapped());
  std::free(freed);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  Memory& all = memory();
  std::lock_guard lock(all.mutex);
  *total = static_cast<size_t>(emulated::settings().memory_bytes);
  *free = *total - static_cast<size_t>(all.in_use);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** made, size_t bytes, unsigned) {
  Memory& all = memory();
  std::lock_guard lock(all.mutex);
  *made = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  std::memset(*made, 0xFF, bytes);
  all.pinned[*made] = bytes;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* freed) {
  Memory& all = memory();
  std::lock_guard lock(all.mutex);
  if (all.pinned.erase(freed) != 1) std::abort();
  std::free(freed);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  Memory& all = memory();
  std::lock_guard lock(all.mutex);
  attributes->type = cudaMemoryTypeUnregistered;
  for (const auto& [begin, bytes] : all.pinned) {
    if (pointer >= begin && pointer < static_cast<const char*>(begin) + bytes) {
      attributes->type = cudaMemoryTypeHost;
    }
  }
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* made, unsigned, int) {
  *made = reinterpret_cast<cudaStream_t>(&handle);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return wait(); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* made, unsigned) {
  *made = reinterpret_cast<cudaEvent_t>(&handle);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
