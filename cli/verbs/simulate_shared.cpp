#include "cli/verbs/simulate_shared.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/device/shared_device.hpp"
#include "cli/config/json_text.hpp"
#include "cli/report/number_text.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/plan/layout_plan.hpp"
#include "plans/simulator/shared_simulation.hpp"

namespace skein::cli {
namespace {

struct NamedJob {
  std::string name;
  plans::SharedJob job;
  std::string policy;  // Other than synchronous steps, which is not simulated here; or empty.
};

/// If some job has done too few steps after so many of the fastest one, as many more are tried.
constexpr int32_t kStepsFactorMax = 64;

NamedJob named(const std::string& path, const PlanningInputs& inputs, plans::Plan plan) {
  NamedJob made;
  made.name = std::filesystem::path(path).stem().string();
  made.job.plan = std::move(plan);
  made.job.profile = inputs.request.profile;
  made.job.sharing = inputs.job.spec.sharing;
  made.job.options = inputs.request.simulation;
  const plans::SyncSpec& sync = inputs.job.spec.sync;
  if (sync.policy != plans::SyncSpec().policy) made.policy = sync.policy;
  return made;
}

absl::StatusOr<NamedJob> load_beside(const PlanningOptions& first, const plans::DeviceSpec& device,
                                     const std::string& path, const std::string& plan_path) {
  PlanningOptions options = first;
  options.job_path = path;
  options.schedule_csv.clear();  // It is the first job's.
  SKEIN_ASSIGN_OR_RETURN(const PlanningInputs inputs, load_planning_inputs(options));
  if (absl::Status same = actors::check_same_device(device, inputs.job.spec.device); !same.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::string(same.message())));
  }
  SKEIN_ASSIGN_OR_RETURN(plans::Plan plan, plan_for(options, plan_path, inputs));
  return named(path, inputs, std::move(plan));
}

Json to_json(const std::vector<NamedJob>& jobs, const plans::SharedSimulation& found) {
  Json all = Json::array();
  for (size_t n = 0; n < jobs.size(); ++n) {
    all.push_back({{"job", jobs[n].name},
                   {"step_us", found.jobs[n].step_us},
                   {"alone_us", found.jobs[n].alone_us},
                   {"slower", found.jobs[n].slower()},
                   {"alone_bubble", found.jobs[n].alone_bubble},
                   {"stages", plans::stages_text(jobs[n].job.plan)},
                   {"times", jobs[n].job.profile.source}});
  }
  return {{"kind", "shared"},
          {"simulated", true},
          {"speedup", found.speedup},
          {"used_idle", found.used_idle},
          {"jobs", all}};
}

/// What was simulated: a job's own layout and policy may be others.
void print_plans(const std::vector<NamedJob>& jobs) {
  for (const NamedJob& each : jobs) {
    const std::string stages = plans::stages_text(each.job.plan);
    std::printf(
        "%s: stages (layers x replicas) %s; times %s, for %s%s\n", each.name.c_str(),
        stages.c_str(), each.job.profile.source.c_str(), each.job.profile.device.c_str(),
        each.policy.empty()
            ? ""
            : absl::StrCat("; in synchronous steps, not under sync.policy = \"", each.policy, "\"")
                  .c_str());
  }
}

void print_table(const std::vector<NamedJob>& jobs, const plans::SharedSimulation& found) {
  size_t width = 3;
  for (const NamedJob& each : jobs) width = std::max(width, each.name.size());
  std::printf("simulated\n%-*s  alone      beside the others  slower  bubble alone\n",
              static_cast<int>(width), "job");
  for (size_t n = 0; n < jobs.size(); ++n) {
    const plans::SharedSimulation::Job& job = found.jobs[n];
    std::printf("%-*s  %-9s  %-17s  %5.2fx  %11.1f%%\n", static_cast<int>(width),
                jobs[n].name.c_str(), time_text(job.alone_us, true).c_str(),
                time_text(job.step_us, true).c_str(), job.slower(), job.alone_bubble * 100);
  }
  std::printf("together %.2f times as fast as one after the other\n", found.speedup);
  const int64_t first = jobs.front().job.sharing.priority;
  const bool fills = std::all_of(jobs.begin() + 1, jobs.end(), [first](const NamedJob& each) {
    return each.job.sharing.priority < first;
  });
  if (!fills) return;
  std::printf("%.0f%% of the time used that %s leaves its devices idle alone\n",
              found.used_idle * 100, jobs.front().name.c_str());
}

/// Until each job has done some steps beside the others.
absl::StatusOr<plans::SharedSimulation> simulate_long_enough(std::span<const plans::SharedJob> jobs,
                                                             const plans::ClusterSpec& cluster,
                                                             int32_t steps) {
  for (int32_t factor = 1; factor <= kStepsFactorMax; factor *= 2) {
    SKEIN_ASSIGN_OR_RETURN(plans::SharedSimulation found,
                           plans::simulate_shared(jobs, cluster, steps * factor));
    const bool is_enough = std::all_of(found.jobs.begin(), found.jobs.end(),
                                       [](const auto& each) { return each.step_us > 0; });
    if (is_enough) return found;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the fastest job has done ", kStepsFactorMax, " times --steps ", steps,
                   " before all have done some: one of them starves the others"));
}

struct Pair {
  size_t first = 0;
  size_t second = 0;
  double speedup = 0;
};

/// Every two of the jobs, those first that gain most.
absl::StatusOr<std::vector<Pair>> find_pairs(const std::vector<NamedJob>& jobs,
                                             const plans::ClusterSpec& cluster, int32_t steps) {
  std::vector<Pair> pairs;
  for (size_t first = 0; first < jobs.size(); ++first) {
    for (size_t second = first + 1; second < jobs.size(); ++second) {
      const plans::SharedJob both[] = {jobs[first].job, jobs[second].job};
      SKEIN_ASSIGN_OR_RETURN(const plans::SharedSimulation found,
                             simulate_long_enough(both, cluster, steps));
      pairs.push_back({first, second, found.speedup});
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& a, const Pair& b) { return a.speedup > b.speedup; });
  return pairs;
}

}  // namespace

absl::Status simulate_shared(const PlanningOptions& planning, const PlanningInputs& inputs,
                             const plans::Plan& plan, const SharedArguments& arguments,
                             int32_t steps, bool as_json) {
  if (!inputs.has_job || !planning.profile_path.empty()) {
    return absl::InvalidArgumentError(
        "--beside estimates the times of each job from its model: it needs job files, and takes no "
        "--profile");
  }
  if (!arguments.plans.empty() && arguments.plans.size() != arguments.beside.size()) {
    return absl::InvalidArgumentError("give --beside-plan once for each --beside, or not at all");
  }
  std::vector<NamedJob> jobs = {named(planning.job_path, inputs, plan)};
  for (size_t n = 0; n < arguments.beside.size(); ++n) {
    const std::string plan_path = arguments.plans.empty() ? "" : arguments.plans[n];
    SKEIN_ASSIGN_OR_RETURN(NamedJob beside, load_beside(planning, inputs.job.spec.device,
                                                        arguments.beside[n], plan_path));
    jobs.push_back(std::move(beside));
  }
  std::vector<plans::SharedJob> shared;
  for (const NamedJob& each : jobs) shared.push_back(each.job);
  const plans::ClusterSpec& cluster = inputs.request.cluster;
  SKEIN_ASSIGN_OR_RETURN(const plans::SharedSimulation found,
                         simulate_long_enough(shared, cluster, steps));
  Json json = to_json(jobs, found);
  if (!as_json) {
    print_plans(jobs);
    print_table(jobs, found);
  }
  if (jobs.size() > 2) {
    SKEIN_ASSIGN_OR_RETURN(const std::vector<Pair> pairs, find_pairs(jobs, cluster, steps));
    if (!as_json) std::printf("in pairs:\n");
    for (const Pair& each : pairs) {
      const std::string& first = jobs[each.first].name;
      const std::string& second = jobs[each.second].name;
      json["pairs"].push_back({{"jobs", {first, second}}, {"speedup", each.speedup}});
      if (!as_json) {
        std::printf("  %s and %s: %.2f times as fast as one after the other\n", first.c_str(),
                    second.c_str(), each.speedup);
      }
    }
  }
  if (as_json) std::printf("%s\n", json_text(json).c_str());
  return absl::OkStatus();
}

}  // namespace skein::cli
