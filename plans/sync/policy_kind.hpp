#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "plans/job/job_spec.hpp"
#include "plans/sync/group_scheduler.hpp"
#include "plans/sync/pipeline_layout.hpp"

namespace skein::plans {

/// Who averages with whom, when: what `sync.policy` may be.
enum class PolicyKind {
  kAllreduce,      // All replicas add up the gradients of every step.
  kTokens,         // The same, of samples that each worker pulls as it comes to them.
  kSdpipe,         // Whoever is ready within a window averages weights.
  kPartialReduce,  // The first so many that are ready average weights.
  kPrague,         // Random groups that are drawn beforehand.
  kAdPsgd,         // One that is ready averages with a random other one, which need not be.
  kAdPsgdPaired,   // All meet in random pairs after every step.
  kOverlapped,     // All average beside their computing; nobody waits.
  kAuto,           // All-reduce or overlapped averages, whichever the stragglers make better.
  kPs,             // A parameter server: all push and pull every step.
  kPsAsync,        // ... each when it is ready.
  kPsBounded,      // ... nobody too many steps ahead of the slowest.
  kHetPipe,        // ... every so many steps, nobody too many of these ahead.
  kGroupedPs,      // ... within groups of like speed together, groups by themselves.
};

/// "allreduce", "tokens", "sdpipe", "partial_reduce", "prague", "adpsgd", "adpsgd_paired",
/// "overlapped", "auto", "ps", "ps_async", "ps_bounded", "hetpipe" or "grouped_ps". InvalidArgument
/// with the nearest name otherwise.
absl::StatusOr<PolicyKind> parse_policy_kind(const std::string& name);

/// True if pipeline replicas may train under local updates, on samples that are claimed to them;
/// false if all replicas do every step together throughout. The job has been validated.
bool may_run_pipelines(const JobSpec& job);
/// True if they do so from the beginning; else "auto" may let them later.
bool begins_in_pipelines(const JobSpec& job);
/// True if workers pull the pieces of a step as tokens.
bool trains_by_tokens(const JobSpec& job);
/// True if the run chooses, again and again: "auto".
bool chooses_mode(const JobSpec& job);

/// The longest rounds of pipeline replicas have so many steps: `sync.round_steps`, or less where a
/// validation or a checkpoint is due sooner. At least 1. May be more than the job has.
int64_t round_steps_max(const JobSpec& job);
/// What rounds have in the mean. They end at the multiples of each of these intervals, so they are
/// shorter than the longest ones where one interval is no multiple of another one. At least 1, at
/// most `training.steps`.
double round_steps_mean(const JobSpec& job);

/// True if pipeline replicas meet at a parameter server.
bool has_server(const JobSpec& job);

/// The policy of a job that `may_run_pipelines`; all pipeline replicas of the layout are there, and
/// begin with their step 0.
std::unique_ptr<GroupScheduler> make_policy(const JobSpec& job, const PipelineLayout& layout);

/// InvalidArgument   if the job's tied embedding, on so many stages, cannot be trained by pipeline
/// replicas.
absl::Status check_tied_embedding(const JobSpec& job, int64_t stages);

/// InvalidArgument   if the job's layout cannot be run in pipeline replicas; OK for jobs that are
/// not to be.
absl::Status check_pipelines(const JobSpec& job);

}  // namespace skein::plans
