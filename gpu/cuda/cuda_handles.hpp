#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "absl/status/statusor.h"
#include "gpu/cuda/cuda_status.hpp"

namespace skein::gpu {

/// A stream of the current device, destroyed with the object. Move-only.
class Stream {
 public:
  /// `priority`: 0 is ordinary, negative is more urgent.
  static absl::StatusOr<Stream> create(int priority) {
    Stream stream;
    absl::Status status =
        cuda_status(cudaStreamCreateWithPriority(&stream.raw_, cudaStreamNonBlocking, priority),
                    "cannot make a stream");
    if (!status.ok()) return status;
    return stream;
  }
  Stream() = default;
  Stream(Stream&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Stream() {
    if (raw_ != nullptr) cudaStreamDestroy(raw_);
  }
  cudaStream_t raw() const { return raw_; }

 private:
  cudaStream_t raw_ = nullptr;
};

/// A point in a stream, without a time. Move-only.
class Event {
 public:
  static absl::StatusOr<Event> create() {
    Event event;
    absl::Status status = cuda_status(cudaEventCreateWithFlags(&event.raw_, cudaEventDisableTiming),
                                      "cannot make an event");
    if (!status.ok()) return status;
    return event;
  }
  Event() = default;
  Event(Event&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Event() {
    if (raw_ != nullptr) cudaEventDestroy(raw_);
  }
  cudaEvent_t raw() const { return raw_; }

 private:
  cudaEvent_t raw_ = nullptr;
};

/// What comes later in `waits` starts when what is now in `on` has ended.
inline absl::Status order_behind(cudaStream_t waits, cudaStream_t on, const Event& event) {
  absl::Status status = cuda_status(cudaEventRecord(event.raw(), on), "cannot record an event");
  if (!status.ok()) return status;
  return cuda_status(cudaStreamWaitEvent(waits, event.raw(), 0), "cannot wait for an event");
}

}  // namespace skein::gpu
