#include "plans/sync/policy_kind.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/base/nearest_name.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/sync/ad_psgd.hpp"
#include "plans/sync/hetpipe.hpp"
#include "plans/sync/overlapped_average.hpp"
#include "plans/sync/paired_rounds.hpp"
#include "plans/sync/parameter_server.hpp"
#include "plans/sync/partial_reduce.hpp"
#include "plans/sync/prague.hpp"
#include "plans/sync/progressive_server.hpp"
#include "plans/sync/sdpipe.hpp"

namespace skein::plans {
namespace {

/// In the order of the kinds.
const std::vector<std::string>& names() {
  static const std::vector<std::string> all = {
      "allreduce",  "tokens", "sdpipe", "partial_reduce", "prague",     "adpsgd",  "adpsgd_paired",
      "overlapped", "auto",   "ps",     "ps_async",       "ps_bounded", "hetpipe", "grouped_ps"};
  return all;
}

PolicyKind kind_of(const JobSpec& job) {
  const auto kind = parse_policy_kind(job.sync.policy);
  SKEIN_CHECK(kind.ok()) << kind.status();  // The job has been validated.
  return *kind;
}

/// Steps, each above 0: a round ends at every multiple of each.
std::vector<int64_t> round_intervals(const JobSpec& job) {
  std::vector<int64_t> intervals = {std::max<int64_t>(1, job.sync.round_steps)};
  const auto end_by = [&intervals](int64_t interval) {
    if (interval > 0) intervals.push_back(interval);
  };
  if (job.validation.batches > 0) end_by(job.validation.interval);
  if (job.checkpoint.enable) end_by(job.checkpoint.interval);
  return intervals;
}

/// The least common multiple of two that are above 0, or the largest number if that is larger.
int64_t common_period(int64_t a, int64_t b) {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  const int64_t times = a / std::gcd(a, b);
  return times > kNever / b ? kNever : times * b;
}

/// Members go on computing, on weights that nobody may touch.
bool is_nonblocking(PolicyKind kind) {
  return kind == PolicyKind::kAdPsgd || kind == PolicyKind::kOverlapped ||
         kind == PolicyKind::kAuto;
}

/// Several claims in flight go with the policy, which `policy` names, and the rest of the job.
absl::Status check_claims(const JobSpec& job, const std::string& policy) {
  const auto refuse = [&](auto... why) {
    return absl::InvalidArgumentError(
        absl::StrCat("sync.claims_in_flight = ", job.sync.claims_in_flight, ": ", why...));
  };
  const PolicyKind kind = kind_of(job);
  if (!may_run_pipelines(job)) {
    return refuse(policy, " waits for all in every step; choose a policy of pipeline replicas");
  }
  const ParallelismSpec& parallelism = job.parallelism;
  if (parallelism.pipeline_parallel_schedule != "1F1B" || parallelism.virtual_stages > 1) {
    return refuse(
        "several claims go through a pipeline as 1F1B with one stage for each worker; set "
        "parallelism.pipeline_parallel_schedule = \"1F1B\" and virtual_stages = 1, or leave it "
        "out");
  }
  const int64_t degree = parallelism.pipeline_parallel_degree;
  if (kind == PolicyKind::kAuto && degree != kAutoDegree && degree != 1) {
    return refuse(
        policy,
        " judges a layout of several stages by its steps as they were measured, which end "
        "with a flush; choose \"overlapped\", or parallelism.pipeline_parallel_degree = "
        "\"auto\", where both ways are simulated");
  }
  if (const int64_t steps = round_steps_max(job); job.sync.claims_in_flight >= steps) {
    return refuse(
        "pipeline replicas meet nobody with the last claims of a round, and the longest rounds "
        "have ",
        steps,
        " for each: the least of sync.round_steps, validation.interval and "
        "checkpoint.interval; make rounds several times as long");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PolicyKind> parse_policy_kind(const std::string& name) {
  SKEIN_ASSIGN_OR_RETURN(const size_t place, find_name(name, names(), "sync.policy"));
  return static_cast<PolicyKind>(place);
}

bool may_run_pipelines(const JobSpec& job) { return kind_of(job) > PolicyKind::kTokens; }

bool trains_by_tokens(const JobSpec& job) { return kind_of(job) == PolicyKind::kTokens; }

bool begins_in_pipelines(const JobSpec& job) {
  return may_run_pipelines(job) && kind_of(job) != PolicyKind::kAuto;
}

bool chooses_mode(const JobSpec& job) { return kind_of(job) == PolicyKind::kAuto; }

int64_t round_steps_max(const JobSpec& job) {
  const std::vector<int64_t> intervals = round_intervals(job);
  return *std::min_element(intervals.begin(), intervals.end());
}

double round_steps_mean(const JobSpec& job) {
  const std::vector<int64_t> intervals = round_intervals(job);
  // Inclusion and exclusion: ends that several intervals share count once.
  double ends_per_step = 0;
  for (uint32_t subset = 1; subset < uint32_t{1} << intervals.size(); ++subset) {
    int64_t period = 1;
    for (size_t i = 0; i < intervals.size(); ++i) {
      if ((subset >> i & 1) != 0) period = common_period(period, intervals[i]);
    }
    ends_per_step += (std::popcount(subset) % 2 == 1 ? 1 : -1) / static_cast<double>(period);
  }
  return std::min(1 / ends_per_step, static_cast<double>(job.training.steps));
}

bool has_server(const JobSpec& job) { return kind_of(job) >= PolicyKind::kPs; }

std::unique_ptr<GroupScheduler> make_policy(const JobSpec& job, const PipelineLayout& layout) {
  const std::optional<double> decay =
      job.sync.staleness_decay < 1 ? std::optional(job.sync.staleness_decay) : std::nullopt;
  const auto group_size = static_cast<uint32_t>(job.sync.group_size);
  switch (kind_of(job)) {
    case PolicyKind::kAllreduce:
    case PolicyKind::kTokens:
      break;
    case PolicyKind::kSdpipe:
      return std::make_unique<SdpipePolicy>(
          layout, SdpipeOptions{.period = static_cast<uint64_t>(job.sync.period), .decay = decay});
    case PolicyKind::kPartialReduce:
      return std::make_unique<PartialReducePolicy>(
          layout, PartialReduceOptions{.group_size = group_size, .decay = decay});
    case PolicyKind::kPrague:
      return std::make_unique<PraguePolicy>(
          layout, PragueOptions{.group_size = group_size, .seed = job.debug.seed});
    case PolicyKind::kAdPsgd:
      return std::make_unique<AdPsgdPolicy>(layout, job.debug.seed);
    case PolicyKind::kAdPsgdPaired:
      return std::make_unique<PairedRoundsPolicy>(layout, job.debug.seed);
    case PolicyKind::kAuto:
    case PolicyKind::kOverlapped:
      return std::make_unique<OverlappedAveragePolicy>(
          layout,
          OverlappedAverageOptions{.local_steps = static_cast<uint64_t>(job.sync.local_steps)});
    case PolicyKind::kPs:
      return parameter_server(layout, {ServerMode::kSynchronous, 0});
    case PolicyKind::kPsAsync:
      return parameter_server(layout, {ServerMode::kAsynchronous, 0});
    case PolicyKind::kPsBounded:
      return parameter_server(layout,
                              {ServerMode::kBounded, static_cast<uint64_t>(job.sync.bound)});
    case PolicyKind::kHetPipe:
      return std::make_unique<HetPipePolicy>(
          layout, HetPipeOptions{.wave = static_cast<uint64_t>(job.sync.wave),
                                 .distance = static_cast<uint64_t>(job.sync.bound)});
    case PolicyKind::kGroupedPs:
      return std::make_unique<ProgressiveServerPolicy>(
          layout,
          ProgressiveServerOptions{.regroup = {.group_count = static_cast<int32_t>(job.sync.groups),
                                               .loss_rise_max = job.sync.loss_rise_max},
                                   .has_group_servers = job.sync.group_servers});
  }
  SKEIN_CHECK(false) << "the job has no pipeline replicas";
  return nullptr;
}

absl::Status check_tied_embedding(const JobSpec& job, int64_t stages) {
  if (!job.model.tied_head || stages < 2) return absl::OkStatus();
  // With both moments it is one tensor.
  constexpr int64_t kFloatsMax = std::numeric_limits<uint32_t>::max() / 3;
  if (job.model.vocab_size > kFloatsMax / job.model.channels) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tied embedding of ", job.model.vocab_size, " x ", job.model.channels,
                     " is too large for several stages; set model.tie_word_embeddings = false"));
  }
  if (job.sync.claims_in_flight == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "sync.claims_in_flight = ", job.sync.claims_in_flight, " with ", stages,
      " stages: the first stage would wait in every claim for the gradient of a tied embedding's "
      "other use, and the last one for its weights; set model.tie_word_embeddings = false, "
      "sync.claims_in_flight = 1, or use one stage"));
}

absl::Status check_decay(const JobSpec& job, const std::string& policy) {
  const PolicyKind kind = kind_of(job);
  const bool is_used = kind == PolicyKind::kSdpipe || kind == PolicyKind::kPartialReduce;
  if (is_used || job.sync.staleness_decay == SyncSpec().staleness_decay) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("sync.staleness_decay = ", job.sync.staleness_decay, ": ", policy,
                   " does not weigh members by their delay; \"sdpipe\" and \"partial_reduce\" do"));
}

absl::Status check_pipelines(const JobSpec& job) {
  const ParallelismSpec& parallelism = job.parallelism;
  const std::string policy = absl::StrCat("sync.policy = \"", job.sync.policy, "\"");
  if (!may_run_pipelines(job)) {
    if (job.sync.round_reducer != SyncSpec().round_reducer) {
      return absl::InvalidArgumentError(absl::StrCat(
          "sync.round_reducer = \"", job.sync.round_reducer, "\": ", policy,
          " has no rounds; choose a policy of pipeline replicas, or sync.reducer for gradients"));
    }
    return job.sync.claims_in_flight > 1 ? check_claims(job, policy) : absl::OkStatus();
  }
  if (!parallelism.replicas.empty() || !parallelism.plan.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(policy,
                     " trains whole pipeline replicas: give them by "
                     "parallelism.pipeline_parallel_degree, a number or \"auto\", and "
                     "data_parallel_replicate_degree, without parallelism.replicas or "
                     "parallelism.plan"));
  }
  const int64_t pipelines = parallelism.data_parallel_replicate_degree;
  if (job.training.micro_batch_size < pipelines) {
    return absl::InvalidArgumentError(absl::StrCat(
        "training.micro_batch_size = ", job.training.micro_batch_size, ": with ", policy,
        " it must be at least parallelism.data_parallel_replicate_degree = ", pipelines,
        ", as every pipeline replica trains a part of each micro-batch"));
  }
  SKEIN_RETURN_IF_ERROR(
      check_tied_embedding(job, parallelism.pipeline_parallel_degree * parallelism.virtual_stages));
  if (job.sync.claims_in_flight > 1) SKEIN_RETURN_IF_ERROR(check_claims(job, policy));
  if (job.sync.average_moments && (is_nonblocking(kind_of(job)) || has_server(job))) {
    return absl::InvalidArgumentError(
        absl::StrCat("sync.average_moments = true: ", policy,
                     " moves weights only; leave it out or choose another policy"));
  }
  SKEIN_RETURN_IF_ERROR(check_decay(job, policy));
  if (job.sync.reducer != "sum") {
    return absl::InvalidArgumentError(
        absl::StrCat("sync.reducer = \"", job.sync.reducer, "\": ", policy,
                     " averages weights and reduces no gradients; leave sync.reducer out"));
  }
  return absl::OkStatus();
}

}  // namespace skein::plans
