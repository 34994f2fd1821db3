#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/chaos/chaos_script.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/simulator/slowdown.hpp"

namespace skein::plans {

/// What `device.scenario` does to a real run. Device w - 1 of the scenario is worker w.
struct JobScenario {
  Scenario slowdown;    // H0-H6: emulated by the workers' devices.
  ChaosScript changes;  // H7: workers that die and others that join.
};

/// The names that stand for a scenario of the usual size: "H0" ... "H7".
const std::vector<std::string>& scenario_names();

/// Checks the keys device.scenario, device.scenario_trace and device.scenario_step_seconds.
/// InvalidArgument   that begins with the key and says what to do.
absl::Status check_scenario(const JobSpec& job);

/// The scenario of a job that runs on so many workers, `trace` being the points of
/// device.scenario_trace. A name gets its usual size, in proportion to
/// device.scenario_step_seconds, and draws with debug.seed; the seed of a full text is its own.
/// The same job has the same scenario whatever else its keys say.
/// InvalidArgument   if it does not fit so many workers, or as `check_scenario`.
absl::StatusOr<JobScenario> job_scenario(const JobSpec& job, int32_t worker_count,
                                         std::vector<Scenario::TracePoint> trace = {});

/// What a worker's device emulates: the full text that `job_scenario` has been resolved to; nothing
/// for H7. The text must have passed `check_scenario`.
Scenario device_scenario(const DeviceSpec& device);

/// A recorded H6: lines "seconds,worker,speed", ascending by time; empty lines and what is behind #
/// do not count, and a first line of words is a heading. Speeds are relative to the worker's own,
/// in (0, 1], from then on.
/// InvalidArgument   "name:3: ..." for the first line that is wrong.
absl::StatusOr<std::vector<Scenario::TracePoint>> parse_scenario_trace(std::string_view text,
                                                                       const std::string& name);

}  // namespace skein::plans
