#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>

#include "plans/share/device_turns.hpp"
#include "plans/share/turn_report.hpp"

namespace skein::actors {

/// Lets the threads of several jobs use one device as `plans::DeviceTurns` decides. Thread-safe.
class DeviceGate {
 public:
  using Instant = std::chrono::steady_clock::time_point;

  explicit DeviceGate(plans::DeviceTurns::Options options = {}) : turns_(options) {}

  /// As those of `plans::DeviceTurns`. Who waits for a job that is removed goes on at once.
  void add(const plans::DeviceJob& job);
  void remove(uint64_t job);
  bool has(uint64_t job) const;
  void enter(uint64_t job, uint64_t position);
  void leave(uint64_t job);
  plans::TurnReport report(uint64_t job) const;

  /// Waits until the device is the job's, for one piece of work. Pieces of one job go in the order
  /// of the calls. Returns since when it might have been working on this one.
  Instant begin(uint64_t job, const plans::DevicePieceNeed& need);
  /// The piece has ended.
  void end(uint64_t job);

 private:
  struct Line {  // In which a job's pieces wait.
    uint64_t asked = 0;
    uint64_t granted = 0;  // <= asked
    Instant granted_at;    // The newest.
  };

  /// Gives the device to the next one, if it is free. Called with the lock.
  void advance();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  plans::DeviceTurns turns_;        // Guarded by mutex_, as what follows.
  std::map<uint64_t, Line> lines_;  // The jobs of `turns_`.
};

}  // namespace skein::actors
