#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "absl/status/status.h"

namespace skein::actors {

/// Who has how much of the memory of a device that jobs share. Thread-safe.
class SharedMemory {
 public:
  /// The job, known by `number`, will need so many bytes in all: that replaces what it has said
  /// before. ResourceExhausted, with the bytes that are missing, if that does not fit beside what
  /// the others have said within `limit` bytes; 0: there is no limit.
  absl::Status reserve(uint64_t number, int64_t bytes, int64_t limit);
  /// The same with what is really in use.
  absl::Status take(uint64_t number, int64_t bytes, int64_t limit);
  void give_back(uint64_t number, int64_t bytes);
  /// It has left: it needs nothing. What it still uses is counted until it is given back.
  void forget(uint64_t number);

  int64_t in_use(uint64_t number) const;
  /// By the other jobs: in use or set aside, whichever is more.
  int64_t of_others(uint64_t number) const;

 private:
  struct Part {
    int64_t reserved = 0;
    int64_t in_use = 0;
  };

  mutable std::mutex mutex_;
  std::map<uint64_t, Part> parts_;  // By job. Guarded by mutex_.
};

}  // namespace skein::actors
