#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "actors/coordinator/run_observer.hpp"
#include "actors/coordinator/start_point.hpp"
#include "actors/fail_point.hpp"
#include "plans/base/ids.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/plan/plan.hpp"

namespace skein::actors {

struct CoordinatorOptions {
  plans::JobSpec job;
  std::string job_config;      // The resolved job file, sent to workers.
  uint64_t config_digest = 0;  // Workers must read the same from `job_config`.
  std::string job_id;
  std::string run_id;      // Made once for a run, and the same in all lives of its coordinator.
  std::string run_folder;  // Exists; absolute.
  std::string listen_address = "127.0.0.1:0";
  bool insecure = false;            // Allows a bind address that is not a loopback one.
  int64_t worker_count = 0;         // Workers to wait for before the plan is made, >= 1.
  std::optional<plans::Plan> plan;  // To use as it is; none: the job's layout.
  bool only_profiles = false;       // Ends when devices and links are measured.
  /// Workers of an earlier life of this run's coordinator may be alive, and find this one.
  bool awaits_last_workers = true;
  std::string load_path;  // Checkpoint to go on from; empty: fresh weights.
  /// What `find_start` found, for a run that is new; none: it is looked for under the run's lock.
  std::optional<StartPoint> start;
  RunObserver* observer = nullptr;  // Outlives the process object; may be null.
  FailPointHandle fail_point;       // Set by tests; else null.
};

/// How a run ended. `status` tells bad input (InvalidArgument, DataLoss, NotFound) from faults.
struct RunResult {
  absl::Status status;
  uint64_t steps_done = 0;
  bool stopped_early = false;   // By `request_stop`.
  bool keeps_state = false;     // Steps are in no checkpoint: workers write what they hold.
  bool is_kept_whole = false;   // keeps_state: all that hold a part of it are there.
  std::string checkpoint_path;  // The last complete one; empty if none.
};

/// How far a run is.
struct RunProgress {
  bool has_started = false;  // A step may be in progress.
  uint64_t steps_done = 0;
  std::map<plans::WorkerId, uint32_t> processes;  // Process id of every member.
  size_t links = 0;           // To workers; after the end, of those that have not left yet.
  absl::Status failed_start;  // As `plans::Coordination::failed_start`.
};

/// The coordinator's half of a run inside this process: its listener, actors and journal.
/// Thread-safe.
class CoordinatorProcess {
 public:
  static absl::StatusOr<std::unique_ptr<CoordinatorProcess>> start(CoordinatorOptions options);
  virtual ~CoordinatorProcess() = default;

  /// "127.0.0.1:29400", where workers join.
  virtual const std::string& address() const = 0;
  /// That it waits for: at least as many as the last plan of a run that is resumed had.
  virtual int64_t worker_count() const = 0;
  /// Ends the run in order: the step in progress is finished if that is soon, else abandoned
  /// (plans/coordinator/stop_budget.hpp); then a checkpoint, when they are enabled.
  virtual void request_stop(const std::string& reason) = 0;
  /// Ends the run now; what was committed and checkpointed stays.
  virtual void abort(const absl::Status& why) = 0;
  virtual RunProgress progress() const = 0;
  /// For experiments: `worker` gets another emulated speed (0: as it is) and loses its data
  /// connections to `drop_link_to` (0: none) for so many seconds (0: for ever).
  virtual void emulate(plans::WorkerId worker, double speed, plans::WorkerId drop_link_to,
                       double seconds) = 0;
  /// Waits for the end, at most `timeout_seconds`. False if it has not come.
  virtual bool wait(double timeout_seconds) = 0;
  /// Valid once `wait` has returned true.
  virtual const RunResult& result() const = 0;
};

}  // namespace skein::actors
