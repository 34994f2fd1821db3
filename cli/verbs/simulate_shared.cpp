#include "cli/verbs/simulate_shared.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "actors/device/shared_device.hpp"
#include "cli/report/number_text.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/simulator/shared_simulation.hpp"

namespace skein::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct NamedJob {
  std::string name;
  plans::SharedJob job;
};

NamedJob named(const std::string& path, const PlanningInputs& inputs, plans::Plan plan) {
  NamedJob made;
  made.name = std::filesystem::path(path).stem().string();
  made.job.plan = std::move(plan);
  made.job.profile = inputs.request.profile;
  made.job.sharing = inputs.job.spec.sharing;
  made.job.options = inputs.request.simulation;
  return made;
}

absl::StatusOr<NamedJob> load_beside(const PlanningOptions& first, const plans::DeviceSpec& device,
                                     const std::string& path, const std::string& plan_path) {
  PlanningOptions options = first;
  options.job_path = path;
  options.schedule_csv.clear();  // It is the first job's.
  SKEIN_ASSIGN_OR_RETURN(const PlanningInputs inputs, load_planning_inputs(options));
  SKEIN_RETURN_IF_ERROR(actors::check_same_device(device, inputs.job.spec.device));
  SKEIN_ASSIGN_OR_RETURN(plans::Plan plan, plan_for(options, plan_path, inputs));
  return named(path, inputs, std::move(plan));
}

OrderedJson to_json(const std::vector<NamedJob>& jobs, const plans::SharedSimulation& found) {
  OrderedJson all = OrderedJson::array();
  for (size_t n = 0; n < jobs.size(); ++n) {
    all.push_back({{"job", jobs[n].name},
                   {"step_us", found.jobs[n].step_us},
                   {"alone_us", found.jobs[n].alone_us},
                   {"slower", found.jobs[n].slower()},
                   {"alone_bubble", found.jobs[n].alone_bubble}});
  }
  return {{"kind", "shared"},
          {"simulated", true},
          {"speedup", found.speedup},
          {"used_idle", found.used_idle},
          {"jobs", all}};
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
  std::printf(
      "together %.2f times as fast as one after the other; %.0f%% of the time used that %s "
      "leaves its devices idle alone\n",
      found.speedup, found.used_idle * 100, jobs.front().name.c_str());
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
                             plans::simulate_shared(both, cluster, steps));
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
                         plans::simulate_shared(shared, cluster, steps));
  if (found.speedup == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the fastest job has done its --steps ", steps,
        " before all have warmed up; ask for more, or for a job that does not starve the others"));
  }
  OrderedJson json = to_json(jobs, found);
  if (!as_json) print_table(jobs, found);
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
  if (as_json) std::printf("%s\n", json.dump().c_str());
  return absl::OkStatus();
}

}  // namespace skein::cli
