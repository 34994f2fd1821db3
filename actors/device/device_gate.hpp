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

  // As those of `plans::DeviceTurns`; of a job that is not here they do nothing. Who waits for a
  // job that is removed goes on at once.
  void add(const plans::DeviceJob& job);
  void remove(uint64_t job);
  bool has(uint64_t job) const;
  bool is_empty() const;
  void enter(uint64_t job, uint64_t position);
  void leave(uint64_t job);
  void change(const plans::DeviceJob& job);
  void begin_passes(uint64_t job);
  void end_passes(uint64_t job);
  bool is_waiting(uint64_t job) const;
  plans::TurnReport report(uint64_t job) const;

  /// A piece of work that may run.
  struct Pass {
    Instant since;            // The device might have been working on it since then.
    uint64_t stay = 0;        // Which of the job's stays here it belongs to.
    bool has_waited = false;  // Other jobs had the device, or the turn.
  };
  /// Waits until the device is the job's, for one piece of work. Pieces of one job go in the order
  /// of the calls.
  Pass begin(uint64_t job, const plans::DevicePieceNeed& need);
  /// The piece has ended.
  void end(uint64_t job, const Pass& pass);

 private:
  struct Queue {  // The pieces of a job, from its coming to its going.
    uint64_t stay = 0;
    uint64_t asked = 0;
    uint64_t granted = 0;  // <= asked
    Instant granted_at;    // The newest.
  };

  /// Gives the device to the next one, if it is free. Called with the lock, after every event: who
  /// waits looks again then, also for how long.
  void advance();
  /// Null: the job is not here, or only came back since then.
  Queue* find(uint64_t job, uint64_t stay);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  plans::DeviceTurns turns_;          // Guarded by mutex_, as what follows.
  std::map<uint64_t, Queue> queues_;  // The jobs of `turns_`.
  uint64_t stays_ = 0;
};

}  // namespace skein::actors
