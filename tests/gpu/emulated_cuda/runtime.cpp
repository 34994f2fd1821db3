// The calls of CUDA's runtime that the plugin makes, on host memory. Everything is done at once,
// but for what NCCL's stand-in queues on streams. Memory comes poisoned with NaN.

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "controls.hpp"
#include "stream.hpp"

namespace emulated {

namespace {

void set(Settings& settings, Control control, int64_t value) {
  if (control == Control::kMemoryBytes) settings.memory_bytes = value;
  if (control == Control::kWaitsUntilLost) settings.waits_until_lost = value;
  if (control == Control::kEpilogues) settings.has_epilogues = value != 0;
  if (control == Control::kEvenStridesOnly) settings.has_even_strides_only = value != 0;
  if (control == Control::kGpus) settings.gpus = value;
}

Settings from_environment() {
  Settings settings;
  const std::pair<Control, const char*> names[] = {
      {Control::kMemoryBytes, "EMULATED_CUDA_MEMORY_BYTES"},
      {Control::kWaitsUntilLost, "EMULATED_CUDA_WAITS_UNTIL_LOST"},
      {Control::kEpilogues, "EMULATED_CUDA_EPILOGUES"},
      {Control::kGpus, "EMULATED_CUDA_GPUS"}};
  for (const auto& [control, name] : names) {
    const char* value = std::getenv(name);
    if (value != nullptr) set(settings, control, std::strtoll(value, nullptr, 10));
  }
  return settings;
}

/// Numbers of the GPUs that the process sees: as the driver, up to the first that is not there.
std::vector<int> visible_gpus() {
  const auto all = static_cast<int>(settings().gpus);
  const char* named = std::getenv("CUDA_VISIBLE_DEVICES");
  std::vector<int> seen;
  if (named == nullptr) {
    for (int gpu = 0; gpu < all; ++gpu) seen.push_back(gpu);
    return seen;
  }
  for (const char* at = named; *at != 0;) {
    char* end = nullptr;
    const long gpu = std::strtol(at, &end, 10);
    if (end == at || gpu < 0 || gpu >= all) break;
    seen.push_back(static_cast<int>(gpu));
    at = *end == ',' ? end + 1 : end;
  }
  return seen;
}

}  // namespace

Settings& settings() {
  static Settings only = from_environment();
  return only;
}

}  // namespace emulated

extern "C" __attribute__((visibility("default"))) void emulated_cuda_set(emulated::Control control,
                                                                         int64_t value) {
  emulated::set(emulated::settings(), control, value);
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
  static const char* const lost_file = std::getenv("EMULATED_CUDA_LOST_FILE");
  if (lost_file != nullptr && access(lost_file, F_OK) == 0) settings.waits_until_lost = 0;
  if (settings.waits_until_lost == 0) return cudaErrorLaunchFailure;
  if (settings.waits_until_lost > 0) --settings.waits_until_lost;
  return cudaSuccess;
}

emulated::Stream* stream_of(cudaStream_t stream) {
  return reinterpret_cast<emulated::Stream*>(stream);
}
emulated::Event* event_of(cudaEvent_t event) { return reinterpret_cast<emulated::Event*>(event); }

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(emulated::visible_gpus().size());
  return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int number) {
  const std::vector<int> seen = emulated::visible_gpus();
  if (number < 0 || number >= static_cast<int>(seen.size())) return cudaErrorInvalidDevice;
  std::memset(properties, 0, sizeof *properties);
  std::strcpy(properties->name, "emulated");
  properties->major = 9;
  properties->pciBusID = 0x10 + seen[static_cast<size_t>(number)];
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int) {
  std::strncpy(text, "0000:00:00.0", static_cast<size_t>(length));
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }

const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
         : error == cudaErrorNoDevice       ? "cudaErrorNoDevice"
                                            : "cudaErrorLaunchFailure";
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory"
         : error == cudaErrorNoDevice       ? "no CUDA-capable device is detected"
                                            : "unspecified launch failure";
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
  const auto is_in = [pointer](const std::map<const void*, size_t>& blocks) {
    const auto behind = blocks.upper_bound(pointer);
    if (behind == blocks.begin()) return false;
    const auto& [begin, bytes] = *std::prev(behind);
    return pointer < static_cast<const char*>(begin) + bytes;
  };
  attributes->type = is_in(all.pinned)   ? cudaMemoryTypeHost
                     : is_in(all.device) ? cudaMemoryTypeDevice
                                         : cudaMemoryTypeUnregistered;
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
  *made = reinterpret_cast<cudaStream_t>(std::make_unique<emulated::Stream>().release());
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::unique_ptr<emulated::Stream>{stream_of(stream)};
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  emulated::Event{stream_of(stream), stream_of(stream)->begun}.wait();
  return wait();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t event, unsigned) {
  event_of(event)->wait();  // What comes later in the stream runs when it is called.
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* made, unsigned) {
  *made = reinterpret_cast<cudaEvent_t>(std::make_unique<emulated::Event>().release());
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  std::unique_ptr<emulated::Event>{event_of(event)};
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  *event_of(event) = {stream_of(stream), stream_of(stream)->begun};
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return event_of(event)->has_ended() ? cudaSuccess : cudaErrorNotReady;
}
