#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "net/codec/steps.hpp"
#include "plans/base/ids.hpp"
#include "plans/base/outcome.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/elastic/goodput.hpp"
#include "plans/plan/plan.hpp"

namespace skein::actors {

/// What the coordinator knows of one committed step.
struct StepReport {
  uint64_t step = 0;         // Counted from 1, as people do.
  double loss = 0;           // Mean over the tokens of the global batch, nats.
  double gradient_norm = 0;  // Before clipping.
  double learning_rate = 0;
  double step_seconds = 0;  // Since the commit before.
  uint64_t tokens = 0;
  uint64_t samples = 0;
  int32_t workers_active = 0;
  int32_t workers_total = 0;
  double control_seconds = 0;              // From the last ready signal to the commit's broadcast.
  std::vector<double> stage_busy_seconds;  // Device time per stage, mean of its replicas.
  /// The same of the time in which its work waited, as the devices were with other jobs; or empty.
  std::vector<double> stage_device_wait_seconds;
  std::vector<uint32_t> stage_stash_peak;  // Stashes held at once, largest of its replicas.
  plans::Goodput goodput;                  // Of the run so far.
  /// Pipeline replicas under local updates: samples of each since the commit before; and for each
  /// stage the largest staleness of a group among them, in steps, and the most updates between a
  /// micro-batch's forward and its backward. Such a commit is one of several steps.
  std::vector<uint64_t> pipeline_samples;
  std::vector<uint64_t> stage_staleness;
  std::vector<uint32_t> stage_weight_delay;
  /// Events of the run so far that changed nothing: on the coordinator's side, and on the side of
  /// those workers that are here.
  plans::DropCounts dropped;
  plans::DropCounts dropped_by_workers;
  /// Commits of the run so far that ordered no snapshot, as the one before was still on its way.
  uint64_t snapshot_waits = 0;
};

struct ValidationReport {
  uint64_t step = 0;
  double loss = 0;
  uint64_t tokens = 0;
  double seconds = 0;
};

struct CheckpointReport {
  uint64_t step = 0;
  std::string path;
  uint64_t bytes = 0;
};

/// Something that an operator would tell a colleague: "worker.joined", "worker.lost", "plan.made".
struct EventReport {
  std::string name;
  std::string text;  // One line for people.
  std::map<std::string, std::string> fields;
};

using SliceReport = net::Slice;

struct TimingsReport {
  plans::WorkerId worker;
  plans::ReplicaId replica;
  int32_t stage = 0;
  uint64_t step =
      0;  // Counted from 1; of a pipeline replica under local updates, the pipeline replica's own.
  int32_t pipeline = -1;      // -1: all replicas do every step together.
  uint64_t version = 0;       // Updates of the weights that the step was computed with.
  uint64_t staleness = 0;     // Largest of them; 0 where all replicas do every step together.
  uint32_t weight_delay = 0;  // Most updates between a forward and its backward.
  std::vector<SliceReport> slices;
};

/// Watches a run. All calls come from one thread, in order, and may block on files.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// `predicted_step_us` is 0 if nobody predicted it.
  virtual void on_plan(const plans::Plan& plan, double predicted_step_us) = 0;
  virtual void on_profiles(const plans::ReportProfiles& report) = 0;
  virtual void on_step(const StepReport& report) = 0;
  virtual void on_validation(const ValidationReport& report) = 0;
  virtual void on_checkpoint(const CheckpointReport& report) = 0;
  virtual void on_timings(const TimingsReport& report) = 0;
  virtual void on_event(const EventReport& report) = 0;
};

}  // namespace skein::actors
