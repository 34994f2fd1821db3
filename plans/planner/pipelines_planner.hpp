#pragma once

#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/job/job_spec.hpp"
#include "plans/planner/planner.hpp"

namespace skein::plans {

/// Plans pipeline replicas for a policy, on workers that may be unlike: how many, who is in which,
/// and cuts of their own for each. Ours.
///
/// Looked at are numbers of pipeline replicas (up to 16 each one), with the workers shared out in
/// three ways: like ones together (the fast ones are in nobody's way), unlike ones together
/// (pipeline replicas as like as can be, so that nobody waits at a policy), and by host (what
/// travels within a pipeline replica stays inside). Layers go to a worker by its speed; with a
/// flush cuts are moved while all workers' times, once around, fall. A pipeline replica's time is
/// what the simulator says of it, alone; the policy is then simulated over pipeline replicas of
/// such times, with the job's rounds: with claims of one size, and with claims sized by speed, so
/// that all take about the same time for one. Taken is what makes most progress: claims of the
/// job's size a second, each counted at what it is worth so far apart from the others
/// (`progress_per_step`; with a server, all the same). Workers are left out where no plan has a
/// place for all, those of least memory and speed first, and such as are ten times as slow as the
/// fastest if that makes more progress.
///
/// `request`  As for other planners; its rows of a micro-batch, its schedules and `may_recompute`
///            are not used: a pipeline replica's iteration is that of the job.
/// `steps`    The cluster in each of several iterations, undisturbed but for stalls, if workers are
///            known to stall: plans are chosen for workers that do so. A stall holds up its
///            pipeline replica.
/// Returns    A plan in the mode of local updates. The objective is the time of a step of the job,
///            of all pipeline replicas together.
/// ResourceExhausted   if no plan fits the memory; says what the first one that was tried lacks.
/// InvalidArgument     if the schedule cannot be made, or a tied embedding needs one stage.
/// Cost                for n workers, at most 6 n simulations of the policy, and one of each
///                     pipeline replica that is like no other.
absl::StatusOr<PlannedPipeline> plan_pipeline_replicas(const JobSpec& job,
                                                       const PlanRequest& request,
                                                       const std::vector<ClusterSpec>& steps = {});

/// What pipeline replicas do.
struct PipelinesProgress {
  double claims_per_second = 0;  // Such as are of the job's size, over all pipeline replicas.
  double worth = 1;              // One's, beside one of all together.
  double per_second() const { return claims_per_second * worth; }
};

/// What a cluster in several steps shows.
enum class StepsOf {
  kWork,    // All that workers took: what is typical of a pipeline replica is told from stalls.
  kStalls,  // As `stalls_of`: workers are as the request says, but for their stalls.
};

/// Progress under the job's policy of a plan of pipeline replicas, as counted there.
/// `steps`: the cluster as it was in each of several iterations, if it is not always the same: a
/// pipeline replica's iterations are simulated in each of these, and from them come its stalls.
/// Cost: a simulation of each pipeline replica, and one more for each step that finds its workers
/// otherwise than any before.
absl::StatusOr<PipelinesProgress> predict_progress(const JobSpec& job, const Plan& plan,
                                                   const PlanRequest& request,
                                                   const std::vector<ClusterSpec>& steps = {},
                                                   StepsOf kind = StepsOf::kWork);

/// How long each worker of such a plan is busy in an iteration of its pipeline replica, in
/// microseconds times one factor for all.
absl::StatusOr<std::map<WorkerId, double>> predict_busy_us(const JobSpec& job, const Plan& plan,
                                                           const PlanRequest& request);

}  // namespace skein::plans
