#include "plans/tokens/token_planner.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plans/base/status_macros.hpp"
#include "plans/plan/layout_plan.hpp"
#include "plans/planner/plan_memory.hpp"
#include "plans/tokens/sub_models.hpp"
#include "plans/tokens/token_plan.hpp"
#include "plans/tokens/token_tuner.hpp"

namespace skein::plans {
namespace {

constexpr size_t kSubModelsMax = 4;
/// Steps that are simulated of each plan: buckets follow what the step before was like.
constexpr uint32_t kSteps = 3;
/// Plans that are tried. The planner changes to none that promises 5 % more, so a rival that was
/// found to be faster stays.
constexpr size_t kTriedMax = 3;
constexpr double kRivalMax = 1.04;

/// Each has a card that is as slow as the slowest path between two of them.
LinkSpeed slowest_path(const ClusterSpec& cluster) {
  LinkSpeed slowest{std::numeric_limits<double>::infinity(), 0};
  const auto count = static_cast<int32_t>(cluster.devices.size());
  for (int32_t a = 0; a < count; ++a) {
    for (int32_t b = 0; b < a; ++b) {
      const LinkSpeed path = path_speed(cluster, a, b);
      slowest.bytes_per_second = std::min(slowest.bytes_per_second, path.bytes_per_second);
      slowest.latency_us = std::max(slowest.latency_us, path.latency_us);
    }
  }
  return slowest;
}

TokenSimulationOptions options_of(const JobSpec& job, const PlanRequest& request) {
  TokenSimulationOptions options;
  options.profile = request.profile;
  for (const ClusterDevice& device : request.cluster.devices) {
    options.speeds.push_back(device.speed);
  }
  const LinkSpeed path = slowest_path(request.cluster);
  options.bytes_per_second = path.bytes_per_second;
  options.latency_us = path.latency_us;
  options.request_us = kCommitUs;  // One message to the coordinator, and one back.
  options.claims_ahead = static_cast<uint32_t>(job.tokens.ahead);
  options.recompute = job.training.recompute;
  options.follows_training_mode = true;
  options.steps = kSteps;
  return options;
}

/// One to four sub-models, all that thresholds tell apart.
std::vector<std::vector<LayerRange>> sub_models_to_try(const Profile& profile) {
  const std::vector<int64_t> thresholds = threshold_rows(profile);
  std::vector<std::vector<LayerRange>> all;
  for (size_t count = 1; count <= kSubModelsMax; ++count) {
    std::vector<LayerRange> ranges = bin_sub_models(thresholds, count);
    if (all.empty() || ranges != all.back()) all.push_back(std::move(ranges));
  }
  return all;
}

Plan to_plan(const JobSpec& job, const TokenPlan& tokens) {
  std::vector<TokenStage> stages;
  for (size_t level = 0; level < tokens.sub_models.size(); ++level) {
    const auto samples = static_cast<int64_t>(tokens.shape.samples_of_token[level]);
    stages.push_back({tokens.sub_models[level], samples, tokens.level_workers[level]});
  }
  return assemble_token_plan(job, stages, static_cast<int64_t>(tokens.shape.samples));
}

TokenPlan tokens_of(const JobSpec& job, const Plan& plan) {
  TokenPlan tokens;
  for (const StagePlan& stage : plan.stages) tokens.sub_models.push_back(stage.layers);
  tokens.shape = token_shape(plan);
  tokens.level_workers = level_workers(plan);
  tokens.policy = {job.tokens.depth_first, job.tokens.own_buckets};
  return tokens;
}

/// The same, with those of most memory where only a few train a sub-model.
TokenPlan with_most_memory(TokenPlan tokens, const ClusterSpec& cluster) {
  std::vector<WorkerId> order;
  for (uint32_t id = 1; id <= cluster.devices.size(); ++id) order.push_back(WorkerId{id});
  const auto bytes = [&](WorkerId id) {
    const int64_t limit = cluster.devices[id.value - 1].memory_bytes;
    return limit > 0 ? limit : std::numeric_limits<int64_t>::max();
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](WorkerId a, WorkerId b) { return bytes(a) > bytes(b); });
  for (std::vector<WorkerId>& level : tokens.level_workers) {
    if (level.size() == order.size()) continue;
    std::copy_n(order.begin(), level.size(), level.begin());
    std::sort(level.begin(), level.end());
  }
  return tokens;
}

std::string describe(const TokenPlan& tokens) {
  const size_t levels = tokens.sub_models.size();
  const std::string models =
      absl::StrJoin(tokens.sub_models, ", ", [](std::string* out, const LayerRange& layers) {
        absl::StrAppend(out, layers.begin, "-", layers.end - 1);
      });
  const std::string workers = absl::StrJoin(
      tokens.level_workers, ", ",
      [](std::string* out, const auto& level) { absl::StrAppend(out, level.size()); });
  return absl::StrCat("tokens of ", levels, levels == 1 ? " sub-model" : " sub-models", ", layers ",
                      models, ", by ", workers, " workers, of ",
                      absl::StrJoin(tokens.shape.samples_of_token, ", "), " samples");
}

/// The plan, or the same with others where only a few train a sub-model; none: neither fits the
/// memory.
absl::StatusOr<std::optional<PlannedPipeline>> fit(const JobSpec& job, const TokenPlan& tuned,
                                                   const PlanRequest& request,
                                                   const TokenSimulationOptions& options) {
  for (const TokenPlan& tokens : {tuned, with_most_memory(tuned, request.cluster)}) {
    Plan plan = to_plan(job, tokens);
    if (lacking_bytes(plan, request.profile, request.cluster) > 0) continue;
    SKEIN_RETURN_IF_ERROR(validate(plan, job.model));
    SKEIN_ASSIGN_OR_RETURN(const TokenSimulation simulated, simulate_tokens(tokens, options));
    return PlannedPipeline{std::move(plan), simulated.mean_step_us(), describe(tokens), {}};
  }
  return std::nullopt;
}

bool has_plan(const std::vector<PlannedPipeline>& all, const Plan& plan) {
  return std::any_of(all.begin(), all.end(),
                     [&](const PlannedPipeline& each) { return each.plan == plan; });
}

}  // namespace

absl::StatusOr<PlannedPipeline> plan_tokens(const JobSpec& job, const PlanRequest& request) {
  const TokenSimulationOptions options = options_of(job, request);
  std::vector<TunedTokens> tried;
  size_t left_out = 0;
  for (const std::vector<LayerRange>& ranges : sub_models_to_try(request.profile)) {
    TokenSearch search;
    search.sub_models = ranges;
    search.samples = static_cast<uint64_t>(request.global_batch_rows);
    search.policy = {job.tokens.depth_first, job.tokens.own_buckets};
    SKEIN_ASSIGN_OR_RETURN(TokenTuning tuned, tune_tokens(search, options));
    tried.insert(tried.end(), std::make_move_iterator(tuned.tried.begin()),
                 std::make_move_iterator(tuned.tried.end()));
    left_out += tuned.left_out;
  }
  std::stable_sort(tried.begin(), tried.end(), [](const TunedTokens& a, const TunedTokens& b) {
    return a.step_us < b.step_us;
  });
  const size_t wanted = job.tokens.trial_steps > 0 ? kTriedMax : 1;
  std::vector<PlannedPipeline> found;
  double best_us = std::numeric_limits<double>::infinity();
  const auto promises_less = [&best_us](const PlannedPipeline& each) {
    return each.objective_us > kRivalMax * best_us;
  };
  for (const TunedTokens& each : tried) {
    // One that was found with others, of more memory, may be slower than this one.
    std::erase_if(found, promises_less);
    const bool is_rival = found.size() < wanted && each.step_us <= kRivalMax * best_us;
    if (each.step_us >= best_us && !is_rival) break;
    SKEIN_ASSIGN_OR_RETURN(auto fitting, fit(job, each.plan, request, options));
    if (!fitting || has_plan(found, fitting->plan)) continue;
    best_us = std::min(best_us, fitting->objective_us);
    found.push_back(*std::move(fitting));
  }
  if (!found.empty()) {
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& a, const auto& b) { return a.objective_us < b.objective_us; });
    std::erase_if(found, promises_less);
    if (found.size() > wanted) found.resize(wanted);
    PlannedPipeline chosen = std::move(found.front());
    if (left_out > 0) {
      absl::StrAppend(&chosen.reason, "; of ", tried.size() + left_out, " choices ", tried.size(),
                      " were simulated");
    }
    chosen.rivals.assign(std::make_move_iterator(found.begin() + 1),
                         std::make_move_iterator(found.end()));
    return chosen;
  }
  const Plan fastest = to_plan(job, tried.front().plan);
  return absl::ResourceExhaustedError(absl::StrCat(
      "steps by tokens: no choice of sub-models and tokens fits the memory; the fastest one lacks ",
      lacking_bytes(fastest, request.profile, request.cluster),
      " bytes on a worker; try training.recompute = true or a smaller global_batch_size"));
}

absl::StatusOr<TokenPrediction> predict_tokens(const JobSpec& job, const Plan& plan,
                                               const std::vector<MeasuredWorker>& measured) {
  const std::set<WorkerId> workers = plan_workers(plan);
  std::vector<MeasuredWorker> own = measured;
  std::erase_if(own, [&](const MeasuredWorker& each) { return !workers.contains(each.id); });
  const std::vector<WorkerId> ids = ids_of(own);
  SKEIN_ASSIGN_OR_RETURN(const Plan positioned, with_positions(plan, ids));
  SKEIN_ASSIGN_OR_RETURN(
      const TokenSimulation simulated,
      simulate_tokens(tokens_of(job, positioned), options_of(job, measured_request(job, own))));
  TokenPrediction prediction;
  prediction.step_us = simulated.mean_step_us();
  for (size_t n = 0; n < ids.size(); ++n) {
    prediction.busy_us[ids[n]] = simulated.busy_us[n] / kSteps;
  }
  return prediction;
}

}  // namespace skein::plans
