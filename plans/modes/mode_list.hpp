#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "plans/coordinator/planner_questions.hpp"
#include "plans/elastic/replan.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/modes/training_mode.hpp"
#include "plans/plan/plan.hpp"
#include "plans/worker/worker_program.hpp"

namespace skein::plans {

/// A training mode: its part in the planning of a job, in the coordinator and in a worker.
struct ModeEntry {
  std::string name;  // As in the text of a plan.
  /// The job begins in this mode.
  bool (*begins)(const JobSpec& job) = nullptr;
  PlanMaker make_plan = nullptr;
  /// The plan is one of this mode.
  std::unique_ptr<TrainingMode> (*make)(const JobSpec& job, const Plan& plan) = nullptr;
  /// The worker's part: what happens between two passes over the pipeline.
  std::unique_ptr<WorkerProgram> (*make_program)(ProgramOptions options) = nullptr;
  /// The replicas of a stage add up their gradients, in the groups that the plan has. False: they
  /// meet in groups that the plan does not know, so workers form none when it begins.
  bool reduces_gradients = true;
  /// Workers follow the plan's lists of actions, so that devices can agree on one order of what
  /// they do together. False: hosts add up gradients and pass activations on.
  bool follows_lists = true;
  /// Passes over a pipeline that may be in flight at once; null: one ends before the next begins.
  int32_t (*passes_in_flight)(const JobSpec& job) = nullptr;
  int32_t passes_of(const JobSpec& job) const {
    return passes_in_flight ? passes_in_flight(job) : 1;
  }
  /// Makes a plan for now, for a job whose plan the planner chooses and that has just lost workers.
  PlanMaker make_quick_plan = quick_replan;
};
using ModeList = std::vector<ModeEntry>;

/// All training modes of the product. To add one, write its class and list it in `mode_list.cpp`.
const ModeList& training_modes();
/// `modes` if somebody has given others, else those of the product.
inline const ModeList& modes_or_own(const ModeList* modes) {
  return modes ? *modes : training_modes();
}

/// InvalidArgument, with the names of all modes, if there is no such mode: for plans of a file or
/// of a peer.
absl::Status check_mode(const ModeList& modes, const std::string& name);
/// Ends the process if there is no such mode: plans and jobs have been checked.
const ModeEntry& find_mode(const ModeList& modes, const std::string& name);
/// The first one that the job begins in.
const ModeEntry& first_mode(const ModeList& modes, const JobSpec& job);

}  // namespace skein::plans
