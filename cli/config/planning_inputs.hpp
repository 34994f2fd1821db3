#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/config/job_file.hpp"
#include "plans/planner/planner.hpp"

namespace skein::cli {

/// What `skein plan` and `skein simulate` are asked.
struct PlanningOptions {
  std::string job_path;         // The first file; with a profile and no second, the cluster.
  std::string cluster_path;     // The second file.
  std::string profile_path;     // Empty: estimate from the job's model and these two:
  double estimate_gflops = 60;  // That a device of speed 1.0 reaches: one core of a server.
  double estimate_gbytes = 10;  // Per second, of its memory.
  Overrides overrides;
  std::string planner = "skein";
  std::vector<std::string> schedules;    // That may be chosen; empty: the job's, or 1F1B.
  std::vector<int64_t> microbatch_rows;  // That may be chosen; empty: the job's, or the profile's.
  int64_t batch = 0;  // Samples of one step; 0: the job's, or four micro-batches for each device.
  bool may_recompute = false;  // Also if the job recomputes.
  std::string scenario;        // "H2 factor=4 devices=0"; empty: H0.
  std::string schedule_csv;    // A file that replaces the plan's schedule.
};

struct PlanningInputs {
  /// Without a job file: its name is the profile's, its batch and steps are what is planned, and
  /// the rest means nothing.
  LoadedJob job;
  bool has_job = true;
  bool estimated = false;  // The profile was not measured.
  plans::PlanRequest request;
};

/// Reads and checks all files. A profile and a cluster are enough, whatever the model is.
/// InvalidArgument   names the file, line and key, or the option, and what to do.
absl::StatusOr<PlanningInputs> load_planning_inputs(const PlanningOptions& options);

/// The planner called `name`. InvalidArgument with the names that exist.
absl::StatusOr<plans::Planner> find_planner(const std::string& name);

/// A file of PyTorch's format. InvalidArgument with file, line and cell.
absl::StatusOr<plans::Schedule> load_schedule_csv(const std::string& path);

/// Gives the plan the schedule of a file. InvalidArgument   if it does not fit the plan's stages,
/// ranks and micro-batches; the message says how.
absl::Status use_schedule_csv(const std::string& path, const PlanningInputs& inputs,
                              plans::Plan& plan);

/// The plan of a file, which fits the request, or if `plan_path` is empty the planner's; with the
/// options' schedule, if they name one.
/// InvalidArgument     with the path, and what does not fit.
/// ResourceExhausted   if it does not fit into the devices' memory.
absl::StatusOr<plans::Plan> plan_for(const PlanningOptions& options, const std::string& plan_path,
                                     const PlanningInputs& inputs);

/// Samples and tokens per second at this step time; tokens are 0 without a job, which says how many
/// a sample has.
struct Throughput {
  double samples = 0;
  double tokens = 0;
};
Throughput throughput(const PlanningInputs& inputs, double step_us);

/// "8 layers = embedding, 6 blocks, head", or "40 layers" of a profile without a job.
std::string model_text(const PlanningInputs& inputs);

}  // namespace skein::cli
