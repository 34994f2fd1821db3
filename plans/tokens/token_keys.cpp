#include "plans/tokens/token_keys.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plans/base/status_macros.hpp"
#include "plans/sync/policy_kind.hpp"
#include "plans/tokens/token_pool.hpp"

namespace skein::plans {
namespace {

template <class... Why>
absl::Status refuse(const Why&... why) {
  return absl::InvalidArgumentError(absl::StrCat(why...));
}

/// Keys that say something else about who computes what.
absl::Status check_other_keys(const JobSpec& job) {
  const char* why = "with sync.policy = \"tokens\" ";
  const ParallelismSpec& parallelism = job.parallelism;
  const bool is_planned = parallelism.pipeline_parallel_degree == kAutoDegree;
  if (is_planned && !(job.tokens.samples.empty() && job.tokens.workers.empty())) {
    return refuse(
        job.tokens.samples.empty() ? "tokens.workers" : "tokens.samples",
        ": with parallelism.pipeline_parallel_degree = \"auto\" the planner chooses these; "
        "leave them out, or give the number of sub-models");
  }
  if (is_planned && job.tokens.reproducible) {
    return refuse(
        "tokens.reproducible = true: with parallelism.pipeline_parallel_degree = \"auto\" what was "
        "measured decides on the tokens, and these on the bits; give the number of sub-models");
  }
  if (!parallelism.plan.empty() || !parallelism.replicas.empty()) {
    return refuse(parallelism.plan.empty() ? "parallelism.replicas" : "parallelism.plan", ": ", why,
                  "every worker may train every sub-model; limit that by tokens.workers");
  }
  if (parallelism.data_parallel_replicate_degree != 1 || parallelism.virtual_stages != 1) {
    return refuse("parallelism.data_parallel_replicate_degree and virtual_stages: ", why,
                  "leave them out: workers pull tokens, as many as there are");
  }
  if (job.sync.reducer != "sum") {
    return refuse("sync.reducer = \"", job.sync.reducer, "\": ", why,
                  "gradients are sums over as many samples as a worker came to; leave it out");
  }
  if (job.comm.backend == "nccl") {
    return refuse(
        "comm.backend = \"nccl\": ", why,
        "sub-models are reduced as they end, in no order that devices could agree on; use "
        "\"auto\" or \"gloo\"");
  }
  return absl::OkStatus();
}

absl::Status check_samples(const JobSpec& job) {
  const std::vector<int64_t>& samples = job.tokens.samples;
  const std::string all = absl::StrCat("tokens.samples = [", absl::StrJoin(samples, ", "), "]: ");
  const int64_t levels = sub_model_count(job);
  if (!samples.empty() && static_cast<int64_t>(samples.size()) != levels) {
    return refuse(all, "one entry for each of the ", levels, " sub-models is expected");
  }
  int64_t before = 1;
  for (const int64_t each : samples) {
    if (each < before || each % before != 0) {
      return refuse(all, "each must be a multiple of the one before it, and at least 1");
    }
    if (&each != &samples.front() && each / before > kTokenInputsMax) {
      return refuse(all, "one may be ", kTokenInputsMax, " times the one before it at most");
    }
    before = each;
  }
  const int64_t least = samples.empty() ? job.training.micro_batch_size : samples.front();
  if (job.training.global_batch_size / least > kTokensMax) {
    return refuse(samples.empty() ? "training.micro_batch_size" : "tokens.samples", ": ",
                  job.training.global_batch_size / least, " tokens in a step are more than ",
                  kTokensMax, "; make them larger");
  }
  if (job.training.global_batch_size % before != 0) {
    return refuse(all, "the last one must divide training.global_batch_size = ",
                  job.training.global_batch_size);
  }
  return absl::OkStatus();
}

}  // namespace

int64_t sub_model_count(const JobSpec& job) {
  if (!job.parallelism.layout.empty()) return static_cast<int64_t>(job.parallelism.layout.size());
  if (job.parallelism.pipeline_parallel_degree > 0) return job.parallelism.pipeline_parallel_degree;
  return std::max<int64_t>(1, static_cast<int64_t>(job.tokens.samples.size()));
}

absl::Status check_tokens(const JobSpec& job) {
  const TokenSpec& tokens = job.tokens;
  if (!trains_by_tokens(job)) {
    if (tokens == TokenSpec()) return absl::OkStatus();
    return refuse("the keys of [tokens] are for sync.policy = \"tokens\", and it is \"",
                  job.sync.policy, "\"");
  }
  constexpr int64_t kAheadMax = 64;
  if (tokens.ahead < 1 || tokens.ahead > kAheadMax) {
    return refuse("tokens.ahead = ", tokens.ahead, ": must be in [1, ", kAheadMax, "]");
  }
  constexpr int64_t kTrialStepsMax = 1000;
  if (tokens.trial_steps < 0 || tokens.trial_steps > kTrialStepsMax) {
    return refuse("tokens.trial_steps = ", tokens.trial_steps, ": must be in [0, ", kTrialStepsMax,
                  "]");
  }
  if (tokens.trial_steps > 0 && job.parallelism.pipeline_parallel_degree != kAutoDegree) {
    return refuse(
        "tokens.trial_steps: there is one plan to try; leave it out, or have "
        "parallelism.pipeline_parallel_degree = \"auto\"");
  }
  SKEIN_RETURN_IF_ERROR(check_other_keys(job));
  const int64_t levels = sub_model_count(job);
  if (!tokens.workers.empty() && static_cast<int64_t>(tokens.workers.size()) != levels) {
    return refuse("tokens.workers has ", tokens.workers.size(), " entries and there are ", levels,
                  " sub-models; give one for each, 0 for all workers");
  }
  for (const int64_t each : tokens.workers) {
    if (each < 0) return refuse("tokens.workers (one entry) = ", each, ": must be at least 0");
  }
  if (job.model.tied_head && levels > 1 && !tokens.workers.empty() && tokens.workers.front() > 0) {
    return refuse("tokens.workers = [", absl::StrJoin(tokens.workers, ", "),
                  "]: with model.tie_word_embeddings = true the last sub-model has a second use of "
                  "the first one's embedding, so all must train the first one; begin with 0");
  }
  return check_samples(job);
}

}  // namespace skein::plans
