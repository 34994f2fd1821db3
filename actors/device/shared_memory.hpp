#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "absl/status/status.h"

namespace skein::actors {

/// Who has how much of the memory of a device that jobs share. Who comes first gets memory first:
/// the job with the larger priority, then the one with the smaller number, which all workers know
/// it by. Thread-safe.
class SharedMemory {
 public:
  /// So long a job waits for those behind it, which other workers may have refused.
  explicit SharedMemory(std::chrono::milliseconds patience = std::chrono::seconds(3))
      : patience_(patience) {}

  /// The job is here, or is a more or less important one from now on.
  void set_priority(uint64_t job, int64_t priority);
  /// The job will need so many bytes in all: that replaces what it has said before. If that does
  /// not fit, within `limit` bytes, beside what the others have said (0: there is no limit), it
  /// waits for jobs that come behind it, but not for those before it; then it is ResourceExhausted,
  /// with the bytes that are missing. It leaves those before it that have just come, and have
  /// reserved nothing yet, a while to do so where there is a limit. So of jobs that ask on several
  /// workers, in whatever order, the same one is refused on all of them. Whoever is alone gets what
  /// it asks for, as on a device that nobody shares.
  absl::Status reserve(uint64_t job, int64_t bytes, int64_t limit);
  /// The same for a moment, and with more patience: it waits for those before it, too, as they may
  /// need theirs for a moment as well, and keeps from nobody but those behind it who need something
  /// for a moment what it waits for.
  absl::Status reserve_briefly(uint64_t job, int64_t bytes, int64_t limit);
  /// So much more is really in use; never waits. While its plan changes, a job has what it had
  /// besides what it has reserved: that it has been granted, whatever is still to be given back.
  absl::Status take(uint64_t job, int64_t bytes, int64_t limit);
  void give_back(uint64_t job, int64_t bytes);
  /// It has left: it needs nothing. What it still uses is counted until it is given back.
  void forget(uint64_t job);

  int64_t in_use(uint64_t job) const;
  /// By the other jobs: in use or set aside, whichever is more.
  int64_t of_others(uint64_t job) const;

 private:
  using Instant = std::chrono::steady_clock::time_point;
  struct Part {
    int64_t priority = 0;
    int64_t wanted = 0;  // It waits for so much; 0: it waits for nothing.
    int64_t reserved = 0;
    int64_t in_use = 0;
    bool waits_briefly = false;
    int64_t taken = 0;            // Since it reserved.
    std::optional<Instant> came;  // None: it has reserved something since.
  };
  enum class Others { kAll, kBefore };

  /// With the lock. So many bytes are within the limit beside what those others have.
  bool fits(uint64_t job, int64_t bytes, int64_t limit, Others which) const;

  /// With the lock.
  void grant(Part& part, int64_t bytes);
  // With the lock.
  bool is_before(uint64_t one, uint64_t other) const;
  /// One before it has come lately, and has reserved nothing yet.
  bool comes_before(uint64_t job) const;
  /// With the lock. Those before `job` also have what they wait for.
  int64_t others_of(uint64_t job, Others which) const;

  const std::chrono::milliseconds patience_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Part> parts_;  // Guarded by mutex_.
};

}  // namespace skein::actors
