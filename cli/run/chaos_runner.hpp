#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "plans/base/ids.hpp"
#include "plans/chaos/chaos_timeline.hpp"

namespace skein::cli {

/// What a fault script acts on. Nothing may be empty.
struct ChaosHands {
  /// Process ids of the workers that are members now.
  std::function<std::map<plans::WorkerId, uint32_t>()> processes;
  /// Sends a signal to a worker's process.
  std::function<absl::Status(uint32_t process, int signal)> signal;
  std::function<void()> kill_coordinator;
  /// 1 is the speed of the worker's own device.
  std::function<void(plans::WorkerId, double speed)> set_speed;
  /// Breaks what `worker` sends to `to`, for so many seconds; 0: for ever.
  std::function<void(plans::WorkerId worker, plans::WorkerId to, double seconds)> drop_link;
  /// Starts one more worker, if this process starts any.
  std::function<absl::Status()> add_worker;
  /// One line for people.
  std::function<void(const std::string& line)> say;
};

/// Carries out a fault script. Not thread-safe. No worker stays stopped when it is gone.
class ChaosRunner {
 public:
  ChaosRunner(plans::ChaosScript script, ChaosHands hands);
  ~ChaosRunner();
  ChaosRunner(const ChaosRunner&) = delete;
  ChaosRunner& operator=(const ChaosRunner&) = delete;

  struct Now {
    double seconds = 0;        // On any clock that does not go back.
    bool has_started = false;  // The first step has begun; from then on times are counted.
    uint64_t steps_done = 0;
  };
  /// Does what is due, with a line for each fault action. Call it often: a fault action is as late
  /// as this.
  void poll(const Now& now);
  /// True if the script starts another worker at some time to come.
  bool awaits_join() const { return timeline_.awaits_join(); }

 private:
  absl::Status carry_out(const plans::FaultAction& fault_action);
  absl::Status send_signal(plans::WorkerId worker, int signal);

  plans::ChaosTimeline timeline_;
  const ChaosHands hands_;
  std::optional<double> started_at_;
  /// All workers so far: one that is paused for long is no member, and must go on all the same.
  std::map<plans::WorkerId, uint32_t> processes_;
  std::map<plans::WorkerId, uint32_t> members_;  // Those of `processes_` that are members now.
  std::map<plans::WorkerId, uint32_t> stopped_;
};

/// True if a process with these words, each ended by a zero byte as in /proc/<pid>/cmdline, is a
/// worker that joined the coordinator at the port of `address`.
bool is_worker_of(std::string_view command_line, const std::string& address);

/// Sends `signal` to a worker's process on this machine, if that is what it is: a worker elsewhere
/// may have the number of some other process here.
/// FailedPrecondition   if it is not. Unavailable   if the process is gone.
absl::Status signal_worker(uint32_t process, int signal, const std::string& coordinator_address);

}  // namespace skein::cli
