#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/job/job_spec.hpp"
#include "plans/simulator/simulator.hpp"

namespace skein::plans {

/// A job that has devices with others.
struct SharedJob {
  Plan plan;  // Worker w is device w - 1, as in `simulate`.
  Profile profile;
  SharingSpec sharing;
  SimulationOptions options;  // Its `steps` are those of the simulation.
};

/// What becomes of jobs that run at once on the same devices. Means are over the time in which all
/// of them train and the first steps are over.
struct SharedSimulation {
  struct Job {
    double step_us = 0;       // Beside the others.
    double alone_us = 0;      // With the devices for itself.
    double alone_bubble = 0;  // As `Simulation::bubble`, of its own devices.
    double slower() const { return alone_us > 0 ? step_us / alone_us : 1; }
  };
  std::vector<Job> jobs;
  /// Work of all jobs that is done in the time in which one after the other would do 1.
  double speedup = 0;
  /// The share of the time that some job's device was idle while the first job was alone there, in
  /// which others computed: what they make of its bubbles and waits.
  double used_idle = 0;
};

/// Simulates `simulate` for each job, and all of them together: devices as `DeviceTurns` gives them
/// out, links max-min fairly among all jobs' flows. Source: CrossoverScheduler, arXiv 2103.07974;
/// the model of papers' equal jobs is 2 (C + X) / max(2 C, 2 X, C + X).
///
/// InvalidArgument   as `simulate`; if there are no jobs.
/// Cost              that of `simulate` of all jobs, for as many steps.
absl::StatusOr<SharedSimulation> simulate_shared(std::span<const SharedJob> jobs,
                                                 const ClusterSpec& cluster, int32_t steps);

}  // namespace skein::plans
