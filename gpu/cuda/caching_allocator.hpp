#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "gpu/device.hpp"

namespace skein::gpu {

/// Gives out memory of a device and keeps what comes back, as taking it from the driver stops the
/// device. Thread-safe. Knows nothing of CUDA: raw memory comes from two functions.
///
/// What comes back must be used by no work any more, or only by work of the one queue on which it
/// is used again.
class CachingAllocator {
 public:
  struct Source {
    std::function<absl::StatusOr<void*>(int64_t bytes)> take;
    std::function<void(void*)> give_back;
  };
  /// `bytes_max` bounds what is taken from the source; 0: no limit.
  CachingAllocator(Source source, int64_t bytes_max);
  /// Everything that was given out must have come back.
  ~CachingAllocator();

  /// Memory with undefined contents, aligned as the source's. ResourceExhausted with all sizes when
  /// neither the cache nor the source has it; the cache has been given back by then.
  absl::StatusOr<void*> take(int64_t bytes);
  void give_back(void* memory);
  /// Gives the cache back to the source.
  void trim();
  DeviceMemory memory() const;

  /// Sizes are rounded up, so that blocks are of use to others: small ones to 512 bytes, those of
  /// 1 MiB and more to 2 MiB.
  static int64_t rounded(int64_t bytes);
  /// The most that is added to one block of at most `bytes`.
  static int64_t rounding_max(int64_t bytes);

 private:
  absl::StatusOr<void*> take_new(int64_t bytes);
  void trim_locked();

  const Source source_;
  const int64_t bytes_max_;
  mutable std::mutex mutex_;
  std::map<void*, int64_t> given_;
  std::set<std::pair<int64_t, void*>> cached_;  // By size, then address.
  DeviceMemory memory_;
};

}  // namespace skein::gpu
