#include "plans/simulator/job_scenario.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "plans/base/nearest_name.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/base/units.hpp"
#include "plans/simulator/heterogeneity.hpp"

namespace skein::plans {
namespace {

using Kind = Scenario::Kind;

// The usual sizes, in steps where they are times; those of `heterogeneity_suite`, the milder one
// where it has several.
constexpr double kPieceSleepSteps = 0.8;
constexpr double kSlowFactor = 4;
constexpr double kTurnSleepSteps = 2;
constexpr double kDrawSleepSteps = 6;
constexpr double kDrawProbability = 0.1;
constexpr int32_t kSharingJobs = 2;
constexpr double kPeriodSteps = 50;
/// A drawn H6 goes to every worker as text: afterwards speeds stay as they were drawn last.
constexpr int64_t kTracePeriodsMax = 200;
/// An H7 that goes on for longer leaves a run alone in the end.
constexpr int64_t kDeathsMax = 200;
/// A recorded H6 goes to every worker as text.
constexpr size_t kTracePointsMax = 20'000;

absl::Status wrong(const std::string& key, const std::string& value, const std::string& advice) {
  return absl::InvalidArgumentError(absl::StrCat(key, " = ", value, ": ", advice));
}

absl::Status wrong_scenario(const JobSpec& job, const std::string& advice) {
  return wrong("device.scenario", absl::StrCat("\"", job.device.scenario, "\""), advice);
}

bool is_name(const std::string& text) {
  const std::vector<std::string>& names = scenario_names();
  return std::find(names.begin(), names.end(), text) != names.end();
}

/// Whether the usual size of a scenario is a time.
bool counts_steps(const std::string& name) {
  return name != "H0" && name != "H2" && name != "H5" && is_name(name);
}

std::string other_than_step_seconds(const std::string& name) {
  if (name == "H6") return ", or name a device.scenario_trace";
  if (name == "H7") return "";
  return absl::StrCat(", or write the sleep in microseconds, as \"", name, " sleep=5000\"");
}

/// Worker k dies after k periods and another one joins half a period later, which gets the next
/// number: so in the end each takes its turn.
ChaosScript workers_come_and_go(double period_s, double duration_s) {
  ChaosScript script;
  for (int64_t death = 1; death <= kDeathsMax; ++death) {
    const double at_s = period_s * static_cast<double>(death);
    if (at_s >= duration_s) break;
    script.push_back({.kind = ChaosAction::Kind::kKill,
                      .worker = {static_cast<uint32_t>(death)},
                      .when = {.at_s = at_s}});
    script.push_back({.kind = ChaosAction::Kind::kJoin, .when = {.at_s = at_s + period_s / 2}});
  }
  return script;
}

JobScenario usual_scenario(const JobSpec& job, int32_t worker_count) {
  const std::string& name = job.device.scenario;
  const double step_us = job.device.scenario_step_seconds * kMicrosecondsPerSecond;
  const uint64_t seed = job.debug.seed;
  const PipelineLayout layout{.pipelines = static_cast<uint32_t>(worker_count), .stages = 1};
  // As if the slowest worker were at a quarter of its speed: what comes later nobody sees.
  const double duration_us = 4 * step_us * static_cast<double>(job.training.steps);
  const double period_us = kPeriodSteps * step_us;
  if (name == "H1")
    return {sleeping_pieces(kPieceSleepSteps * step_us, step_us, seed).slowdown, {}};
  if (name == "H2") return {slow_pipelines(layout, 1, kSlowFactor).slowdown, {}};
  if (name == "H3") return {round_robin_straggler(kTurnSleepSteps * step_us, step_us).slowdown, {}};
  if (name == "H4") {
    const double sleep_us = kDrawSleepSteps * step_us;
    return {random_stragglers(sleep_us, kDrawProbability, step_us, seed).slowdown, {}};
  }
  if (name == "H5") return {shared_device(layout, kSharingJobs).slowdown, {}};
  if (name == "H6") {
    const double drawn_us = std::min(duration_us, kTracePeriodsMax * period_us);
    return {shared_cloud(layout, period_us, drawn_us, seed).slowdown, {}};
  }
  if (name == "H7")
    return {{},
            workers_come_and_go(period_us * kSecondsPerMicrosecond,
                                duration_us * kSecondsPerMicrosecond)};
  return {};
}

absl::StatusOr<Scenario::TracePoint> parse_point(const std::string& line) {
  const std::vector<std::string> parts = absl::StrSplit(line, ',');
  double seconds = 0, speed = 0;
  int32_t worker = 0;
  if (parts.size() != 3 || !absl::SimpleAtod(parts[0], &seconds) ||
      !absl::SimpleAtoi(parts[1], &worker) || !absl::SimpleAtod(parts[2], &speed)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", line, "\": expected seconds,worker,speed, for example 12.5,1,0.5"));
  }
  if (!std::isfinite(seconds) || seconds < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(parts[0], " seconds: write 0 or more, from the first step on"));
  }
  if (worker < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", worker, ": workers are numbered from 1"));
  }
  if (!(speed > 0 && speed <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("speed ", parts[2], ": write a number above 0 and at most 1"));
  }
  return Scenario::TracePoint{seconds * kMicrosecondsPerSecond, worker - 1, speed};
}

bool is_heading(const std::string& line) {
  return line.find_first_of("0123456789") == std::string::npos;
}

}  // namespace

const std::vector<std::string>& scenario_names() {
  static const std::vector<std::string> names = {"H0", "H1", "H2", "H3", "H4", "H5", "H6", "H7"};
  return names;
}

absl::Status check_scenario(const JobSpec& job) {
  const DeviceSpec& device = job.device;
  const double step_seconds = device.scenario_step_seconds;
  if (!(step_seconds >= 0 && step_seconds <= 86400)) {
    return wrong("device.scenario_step_seconds", absl::StrCat(step_seconds),
                 "must be in [0, 86400]");
  }
  if (!device.scenario_trace.empty()) {
    if (device.scenario == "H6") return absl::OkStatus();
    return wrong("device.scenario_trace", absl::StrCat("\"", device.scenario_trace, "\""),
                 "a trace is for device.scenario = \"H6\"");
  }
  if (device.scenario.empty()) return absl::OkStatus();
  if (counts_steps(device.scenario) && step_seconds == 0) {
    return wrong_scenario(job, absl::StrCat("its usual size is in proportion to a step: set "
                                            "device.scenario_step_seconds to what an undisturbed "
                                            "one takes",
                                            other_than_step_seconds(device.scenario)));
  }
  if (is_name(device.scenario)) return absl::OkStatus();
  const auto scenario = parse_scenario(device.scenario);
  if (scenario.ok()) return absl::OkStatus();
  const std::string first = device.scenario.substr(0, device.scenario.find(' '));
  if (is_name(first)) return wrong_scenario(job, std::string(scenario.status().message()));
  return wrong_scenario(job, absl::StrCat("expected one of ", absl::StrJoin(scenario_names(), ", "),
                                          ", or a text such as \"H2 factor=4 devices=0\"",
                                          suggestion(first, scenario_names())));
}

absl::StatusOr<JobScenario> job_scenario(const JobSpec& job, int32_t worker_count,
                                         std::vector<Scenario::TracePoint> trace) {
  SKEIN_RETURN_IF_ERROR(check_scenario(job));
  JobScenario result;
  if (job.device.scenario.empty()) return result;
  if (!job.device.scenario_trace.empty()) {
    result.slowdown = {.kind = Kind::kH6, .trace = std::move(trace)};
  } else if (is_name(job.device.scenario)) {
    if (job.device.scenario == "H5" && worker_count < kSharingJobs) {
      return wrong_scenario(
          job, absl::StrCat(kSharingJobs, " workers share a device, and there is ", worker_count,
                            "; use more --workers"));
    }
    result = usual_scenario(job, worker_count);
  } else {
    SKEIN_ASSIGN_OR_RETURN(result.slowdown, parse_scenario(job.device.scenario));
  }
  const absl::Status status = validate(result.slowdown, worker_count);
  if (!status.ok()) {
    return wrong_scenario(
        job, absl::StrCat(std::string(status.message()), "; device 0 is worker 1, and so on"));
  }
  return result;
}

Scenario device_scenario(const DeviceSpec& device) {
  const auto scenario = parse_scenario(device.scenario);
  return scenario.ok() ? *scenario : Scenario{};  // "", or H7.
}

absl::StatusOr<std::vector<Scenario::TracePoint>> parse_scenario_trace(std::string_view text,
                                                                       const std::string& name) {
  std::vector<Scenario::TracePoint> trace;
  const std::string whole(text);
  size_t number = 0;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(whole, '\n'))) {
    ++number;
    const std::string content(absl::StripAsciiWhitespace(line.substr(0, line.find('#'))));
    if (content.empty() || (trace.empty() && is_heading(content))) continue;
    const std::string place = absl::StrCat(name, ":", number, ": ");
    const auto point = parse_point(content);
    if (!point.ok()) {
      return absl::InvalidArgumentError(place + std::string(point.status().message()));
    }
    if (!trace.empty() && point->from_us < trace.back().from_us) {
      return absl::InvalidArgumentError(
          absl::StrCat(place, point->from_us * kSecondsPerMicrosecond, " seconds come after ",
                       trace.back().from_us * kSecondsPerMicrosecond, ": sort the lines by time"));
    }
    if (trace.size() == kTracePointsMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(place, "more than ", kTracePointsMax, " points; leave some out"));
    }
    trace.push_back(*point);
  }
  if (trace.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": no point; write lines such as 12.5,1,0.5 (seconds,worker,speed)"));
  }
  return trace;
}

}  // namespace skein::plans
