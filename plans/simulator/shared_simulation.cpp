#include "plans/simulator/shared_simulation.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "plans/base/status_macros.hpp"
#include "plans/simulator/cluster_paths.hpp"
#include "plans/simulator/execution.hpp"
#include "plans/simulator/shared_devices.hpp"

namespace skein::plans {
namespace {

/// Until all jobs have their turns.
constexpr int32_t kWarmUpSteps = 3;

struct Window {
  double begin_us = 0;
  double end_us = 0;
};

/// Mean time of a step between the first and the last end within the window.
double step_within(const std::vector<double>& ends_us, const Window& window) {
  const auto first = std::lower_bound(ends_us.begin(), ends_us.end(), window.begin_us);
  const auto last = std::upper_bound(ends_us.begin(), ends_us.end(), window.end_us);
  const auto steps = last - first - 1;
  return steps > 0 ? (*(last - 1) - *first) / static_cast<double>(steps) : 0;
}

/// What a device does for a job in the window.
double busy_within(const SimulatedWorker& worker, const Window& window) {
  double busy_us = 0;
  for (const SimulatedSlot& slot : worker.slots) {
    const double from = std::max(slot.start_us, window.begin_us);
    busy_us += std::max(0.0, std::min(slot.end_us, window.end_us) - from);
  }
  return busy_us;
}

/// All jobs at once, until the first has done its steps.
struct Together {
  Together(std::span<const SharedJob> jobs, const ClusterSpec& cluster, int32_t steps)
      : links(link_capacities(cluster)),
        devices(static_cast<int32_t>(cluster.devices.size()), sharing_of(jobs),
                [this](int32_t job, int32_t device, double now_us) {
                  executions[static_cast<size_t>(job)]->on_granted(device, now_us);
                }) {
    options.resize(jobs.size());
    for (size_t n = 0; n < jobs.size(); ++n) {
      options[n] = jobs[n].options;
      options[n].steps = steps;
      options[n].keeps_records = true;
      owned.push_back(
          std::make_unique<Execution>(jobs[n].plan, jobs[n].profile, cluster, options[n],
                                      Execution::Ground{links, &devices, static_cast<int32_t>(n),
                                                        static_cast<int32_t>(jobs.size())},
                                      jobs[n].sharing));
      executions.push_back(owned.back().get());
    }
  }

  void run() {
    run_executions(executions, links, &devices, [this] {
      return std::any_of(executions.begin(), executions.end(),
                         [](const Execution* each) { return each->has_ended(); });
    });
  }
  /// From when all have warmed up to when the first has done its steps.
  Window window() const {
    Window found{0, 0};
    for (const Execution* each : executions) {
      const std::vector<double>& ends = each->result().step_end_us;
      if (ends.size() <= kWarmUpSteps) return {};
      found.begin_us = std::max(found.begin_us, ends[kWarmUpSteps - 1]);
      if (each->has_ended()) found.end_us = ends.back();
    }
    return found;
  }

  static std::vector<SharingSpec> sharing_of(std::span<const SharedJob> jobs) {
    std::vector<SharingSpec> all;
    for (const SharedJob& each : jobs) all.push_back(each.sharing);
    return all;
  }

  FairLinks links;
  SharedDevices devices;
  std::vector<SimulationOptions> options;
  std::vector<std::unique_ptr<Execution>> owned;
  std::vector<Execution*> executions;
};

/// The part of the idle time that the first job leaves on its devices when it is alone, in which
/// others compute there.
double used_idle(const Simulation& alone, const Together& together, const Window& window) {
  const double whole_us = window.end_us - window.begin_us;
  double idle_us = 0;
  double used_us = 0;
  for (const SimulatedWorker& worker : alone.workers) {
    idle_us += whole_us * (1 - worker.busy_us / alone.step_end_us.back());
    for (size_t n = 1; n < together.executions.size(); ++n) {
      for (const SimulatedWorker& other : together.executions[n]->result().workers) {
        if (other.id == worker.id) used_us += busy_within(other, window);
      }
    }
  }
  // Beyond that they have slowed the first job down.
  return idle_us > 0 ? std::min(1.0, used_us / idle_us) : 0;
}

}  // namespace

absl::StatusOr<SharedSimulation> simulate_shared(std::span<const SharedJob> jobs,
                                                 const ClusterSpec& cluster, int32_t steps) {
  if (jobs.empty()) return absl::InvalidArgumentError("simulation: there are no jobs");
  SharedSimulation found;
  std::vector<Simulation> alone;
  for (const SharedJob& each : jobs) {
    SimulationOptions options = each.options;
    options.steps = steps;
    SKEIN_ASSIGN_OR_RETURN(Simulation simulation,
                           simulate(each.plan, each.profile, cluster, options));
    found.jobs.push_back({0, simulation.step_us, simulation.bubble});
    alone.push_back(std::move(simulation));
  }
  Together together(jobs, cluster, steps);
  together.run();
  const Window window = together.window();
  for (size_t n = 0; n < jobs.size(); ++n) {
    SharedSimulation::Job& job = found.jobs[n];
    job.step_us = step_within(together.executions[n]->result().step_end_us, window);
    if (job.step_us > 0) found.speedup += job.alone_us / job.step_us;
  }
  found.used_idle = used_idle(alone.front(), together, window);
  return found;
}

}  // namespace skein::plans
