#include "plans/planner/pipelines_planner.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plans/base/status_macros.hpp"
#include "plans/base/units.hpp"
#include "plans/base/upper_median.hpp"
#include "plans/plan/layout_plan.hpp"
#include "plans/plan/pipeline_cuts.hpp"
#include "plans/plan/pipeline_plan.hpp"
#include "plans/plan/plan_ranks.hpp"
#include "plans/schedule/continuous_1f1b.hpp"
#include "plans/simulator/consensus_distance.hpp"
#include "plans/simulator/policy_rounds.hpp"
#include "plans/simulator/policy_simulation.hpp"
#include "plans/simulator/simulator.hpp"
#include "plans/sync/policy_choice.hpp"
#include "plans/sync/policy_kind.hpp"

namespace skein::plans {
namespace {

/// A policy is judged over so many iterations of the slowest pipeline replica, ...
constexpr double kJudgedIterations = 50;
/// ... but at most about so many of all together.
constexpr double kJudgedIterationsMax = 20000;
/// A policy with rounds is judged over so many; the first one does not count.
constexpr double kJudgedRounds = 4;
/// Claims by speed are worth it from this on, beside those of one size.
constexpr double kSizedGain = 1.05;

using Devices = std::vector<int32_t>;  // A pipeline replica's, in the order of its layers.

/// Predicts one pipeline replica, alone. It keeps the times, each with all that it depends on: the
/// cluster of the request may change in between.
class PipelineTimes {
 public:
  enum class Memory { kMustFit, kIsThere };  // kIsThere: the plan runs already.

  PipelineTimes(const JobSpec& job, const PlanRequest& request, Memory memory = Memory::kMustFit)
      : job_(job), request_(request), must_fit_(memory == Memory::kMustFit) {}

  struct Timed {
    PipelineCuts pipeline;  // Worker n is device n - 1.
    double iteration_us = 0;
  };

  /// The best order and cuts for a set of devices and so many rows. Pipeline replicas of like
  /// devices are alike.
  absl::StatusOr<Timed> best_of(Devices devices, int64_t rows) {
    if (static_cast<int64_t>(devices.size()) > layers()) {
      return absl::InvalidArgumentError("more workers than layers");
    }
    SKEIN_RETURN_IF_ERROR(check_tied_embedding(job_, static_cast<int64_t>(devices.size())));
    const auto faster = [this](int32_t a, int32_t b) { return speed(a) > speed(b); };
    std::stable_sort(devices.begin(), devices.end(), faster);
    const Devices descending = devices;
    std::reverse(devices.begin(), devices.end());
    absl::StatusOr<Timed> best = timed(descending, rows);
    if (speed(descending.front()) != speed(descending.back())) {
      absl::StatusOr<Timed> other = timed(devices, rows);
      const bool is_better = other.ok() && (!best.ok() || other->iteration_us < best->iteration_us);
      if (is_better) best = std::move(other);
    }
    return best;
  }

  absl::StatusOr<double> iteration_us(const PipelineCuts& pipeline) {
    SKEIN_ASSIGN_OR_RETURN(const Iteration iteration, iteration_of(pipeline));
    return iteration.us;
  }

  /// What its iterations take with the workers as they are in each of `steps`. What one of them
  /// needs longer holds up all the others: a little too much, as some had time to spare.
  absl::StatusOr<std::vector<double>> disturbed_us(const PipelineCuts& pipeline,
                                                   const std::vector<ClusterSpec>& steps) {
    SKEIN_ASSIGN_OR_RETURN(const Iteration iteration, iteration_of(pipeline));
    std::vector<double> all_us;
    for (const ClusterSpec& step : steps) {
      double us = iteration.us;
      for (size_t i = 0; i < pipeline.workers.size(); ++i) {
        const size_t device = pipeline.workers[i].value - 1;
        const double ratio = request_.cluster.devices[device].speed / step.devices[device].speed;
        us += (ratio - 1) * iteration.busy_us[i];
      }
      all_us.push_back(us);
    }
    return all_us;
  }

  /// A whole step of it.
  absl::StatusOr<Simulation> simulation_of(const PipelineCuts& pipeline) const {
    SKEIN_ASSIGN_OR_RETURN(const ScheduleKind kind,
                           parse_schedule_kind(job_.parallelism.pipeline_parallel_schedule));
    Plan plan;
    plan.microbatch_count = microbatch_count(job_);
    plan.microbatch_rows = pipeline.rows;
    plan.recompute = job_.training.recompute;
    for (size_t i = 0; i < pipeline.workers.size(); ++i) {
      const ReplicaPlan replica{
          ReplicaId{}, pipeline.workers[i], {0, pipeline.rows}, static_cast<int32_t>(i)};
      plan.stages.push_back({layers_of(pipeline, i, layers()), {replica}});
    }
    number_replicas(plan.stages);
    plan.groups = reduction_groups(plan.stages, request_.profile.tied_bytes > 0);
    SKEIN_RETURN_IF_ERROR(set_schedule(plan, kind));
    if (must_fit_) {
      SKEIN_RETURN_IF_ERROR(
          check_memory(plan, request_.profile, request_.cluster, job_.sync.claims_in_flight));
    }
    return simulate(plan, request_.profile, request_.cluster, request_.simulation);
  }

 private:
  /// What the time depends on: the rows, and of each worker its first layer, speed and memory, its
  /// host (numbered in the order of the pipeline), and the path to the next worker.
  using Key =
      std::pair<int64_t, std::vector<std::tuple<int64_t, double, int64_t, size_t, double, double>>>;

  struct Iteration {
    double us = 0;
    std::vector<double> busy_us;  // [workers of the pipeline], in its order.
  };

  absl::StatusOr<Iteration> iteration_of(const PipelineCuts& pipeline) {
    const Key key = key_of(pipeline);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    absl::StatusOr<Iteration> iteration = simulated(pipeline);
    known_.emplace(key, iteration);
    return iteration;
  }

  double speed(int32_t device) const { return device_at(device).speed; }
  const ClusterDevice& device_at(int32_t device) const {
    return request_.cluster.devices[static_cast<size_t>(device)];
  }

  absl::StatusOr<Timed> timed(const Devices& order, int64_t rows) {
    Timed timed;
    timed.pipeline.rows = rows;
    for (int32_t device : order) {
      timed.pipeline.workers.push_back(WorkerId{static_cast<uint32_t>(device) + 1});
    }
    timed.pipeline.cuts = best_cuts(order, rows);
    SKEIN_ASSIGN_OR_RETURN(timed.iteration_us, iteration_us(timed.pipeline));
    if (job_.sync.claims_in_flight > 1) return timed;
    PipelineCuts flushed = timed.pipeline;
    move_cuts_for_flush(order, flushed);
    if (flushed.cuts == timed.pipeline.cuts) return timed;
    const absl::StatusOr<double> us = iteration_us(flushed);
    if (us.ok() && *us < timed.iteration_us) timed = {std::move(flushed), *us};
    return timed;
  }

  /// With a flush every worker's time counts once, and the slowest's again for each further
  /// micro-batch. Moves cuts by a layer as long as the sum falls; no more workers than before have
  /// too little memory then.
  void move_cuts_for_flush(const Devices& order, PipelineCuts& pipeline) {
    const std::vector<double>& us_before = us_before_of(pipeline.rows);
    const auto further = static_cast<double>(microbatch_count(job_) - 1);
    // What does not fit, and the time; as in `best_cuts`.
    const auto cost = [&] {
      int32_t too_large = 0;
      double sum_us = 0, longest_us = 0;
      for (size_t i = 0; i < order.size(); ++i) {
        const LayerRange range = layers_of(pipeline, i, layers());
        const double us = (us_before[static_cast<size_t>(range.end)] -
                           us_before[static_cast<size_t>(range.begin)]) /
                          speed(order[i]);
        sum_us += us;
        longest_us = std::max(longest_us, us);
        if (!fits(order, i, range, pipeline.rows)) ++too_large;
      }
      return std::pair(too_large, sum_us + further * longest_us);
    };
    const auto may_lie = [&](size_t c) {
      const int64_t before = c == 0 ? 0 : pipeline.cuts[c - 1];
      const int64_t after = c + 1 < pipeline.cuts.size() ? pipeline.cuts[c + 1] : layers();
      return before < pipeline.cuts[c] && pipeline.cuts[c] < after;
    };
    constexpr double kLess = 1 - 1e-9;  // Rounding is no gain.
    auto least = cost();
    for (bool has_moved = true; has_moved;) {
      has_moved = false;
      for (size_t c = 0; c < pipeline.cuts.size(); ++c) {
        for (const int64_t by : {-1, 1}) {
          pipeline.cuts[c] += by;
          const auto moved = may_lie(c) ? cost() : least;
          if (moved.first <= least.first && moved.second < kLess * least.second) {
            least = moved;
            has_moved = true;
          } else {
            pipeline.cuts[c] -= by;
          }
        }
      }
    }
  }

  /// So that the slowest is as fast as can be among the cuts that fit the memory; if none do, it
  /// is as fast as can be. Dynamic programming over devices and layers.
  std::vector<int64_t> best_cuts(const Devices& order, int64_t rows) {
    const std::vector<double>& us_before = us_before_of(rows);
    const auto layer_count = static_cast<size_t>(layers());
    constexpr double kNever = std::numeric_limits<double>::infinity();
    // What does not fit when the first devices have the first layers, then the slowest's time.
    using Cost = std::pair<int32_t, double>;
    std::vector<Cost> before(layer_count + 1, {0, kNever});
    before[0] = {0, 0};
    std::vector<std::vector<size_t>> begins(order.size(), std::vector<size_t>(layer_count + 1));
    for (size_t i = 0; i < order.size(); ++i) {
      std::vector<Cost> costs(layer_count + 1, {0, kNever});
      for (size_t end = i + 1; end + (order.size() - i - 1) <= layer_count; ++end) {
        for (size_t begin = i; begin < end; ++begin) {
          if (before[begin].second == kNever) continue;
          const LayerRange range{static_cast<int64_t>(begin), static_cast<int64_t>(end)};
          const double us = (us_before[end] - us_before[begin]) / speed(order[i]);
          const Cost cost{before[begin].first + (fits(order, i, range, rows) ? 0 : 1),
                          std::max(before[begin].second, us)};
          if (costs[end].second != kNever && costs[end] <= cost) continue;
          costs[end] = cost;
          begins[i][end] = begin;
        }
      }
      before = std::move(costs);
    }
    std::vector<int64_t> cuts;
    size_t end = layer_count;
    for (size_t i = order.size(); i-- > 1;) {
      end = begins[i][end];
      cuts.insert(cuts.begin(), static_cast<int64_t>(end));
    }
    return cuts;
  }

  /// As 1F1B stashes, with a flush or without, or all micro-batches; `check_memory` judges what is
  /// chosen.
  bool fits(const Devices& order, size_t i, const LayerRange& range, int64_t rows) {
    const int64_t limit = device_at(order[i]).memory_bytes;
    if (limit == 0) return true;
    const auto [found, is_new] = memory_.try_emplace({rows, range.begin, range.end});
    if (is_new) {
      found->second = stage_memory(request_.profile, range, rows, job_.training.recompute);
    }
    const StageMemory& memory = found->second;
    const Continuous1F1B in_order{static_cast<int32_t>(order.size()),
                                  static_cast<int32_t>(microbatch_count(job_)),
                                  static_cast<int32_t>(job_.sync.claims_in_flight)};
    const auto stage = static_cast<int32_t>(i);
    const bool is_1f1b = job_.parallelism.pipeline_parallel_schedule == "1F1B";
    const int64_t stashes = is_1f1b ? in_order.stash_peak(stage) : microbatch_count(job_);
    return memory.state_bytes + stashes * memory.stash_bytes + memory.extra_bytes +
               in_order.old_versions(stage) * memory.version_bytes <=
           limit;
  }

  int64_t layers() const { return static_cast<int64_t>(request_.profile.layers.size()); }

  /// [layers + 1] of the layers before, on a device of speed 1.0.
  const std::vector<double>& us_before_of(int64_t rows) {
    std::vector<double>& before = us_before_[rows];
    if (!before.empty()) return before;
    double sum_us = 0;
    for (int64_t layer = 0; layer < layers(); ++layer) {
      before.push_back(sum_us);
      sum_us += layer_times(request_.profile, layer, rows).total_us();
    }
    before.push_back(sum_us);
    return before;
  }

  Key key_of(const PipelineCuts& pipeline) const {
    Key key{pipeline.rows, {}};
    std::map<int32_t, size_t> hosts;
    for (size_t i = 0; i < pipeline.workers.size(); ++i) {
      const auto device = static_cast<int32_t>(pipeline.workers[i].value) - 1;
      const auto next = static_cast<int32_t>(
          pipeline.workers[std::min(i + 1, pipeline.workers.size() - 1)].value - 1);
      const LinkSpeed path =
          next == device ? LinkSpeed{} : path_speed(request_.cluster, device, next);
      key.second.push_back({i == 0 ? 0 : pipeline.cuts[i - 1], speed(device),
                            device_at(device).memory_bytes,
                            hosts.emplace(device_at(device).host, hosts.size()).first->second,
                            path.bytes_per_second, path.latency_us});
    }
    const LinkSpeed ends = path_of_ends(pipeline);
    key.second.push_back({0, 0, 0, 0, ends.bytes_per_second, ends.latency_us});
    return key;
  }

  /// Between the ends of a pipeline of several workers, if these share an embedding.
  LinkSpeed path_of_ends(const PipelineCuts& pipeline) const {
    if (request_.profile.tied_bytes == 0 || pipeline.workers.size() < 2) return {};
    return path_speed(request_.cluster, static_cast<int32_t>(pipeline.workers.front().value) - 1,
                      static_cast<int32_t>(pipeline.workers.back().value) - 1);
  }

  /// The weights of a tied embedding, on their way to the last stage before its first forward.
  double tied_weights_us(const PipelineCuts& pipeline) const {
    if (request_.profile.tied_bytes == 0 || pipeline.workers.size() < 2) return 0;
    const LinkSpeed ends = path_of_ends(pipeline);
    return ends.latency_us + static_cast<double>(request_.profile.tied_bytes) /
                                 ends.bytes_per_second * kMicrosecondsPerSecond;
  }

  /// With a flush: the whole iteration. Without one, what its slowest worker computes of it.
  absl::StatusOr<Iteration> simulated(const PipelineCuts& pipeline) const {
    SKEIN_ASSIGN_OR_RETURN(const Simulation simulation, simulation_of(pipeline));
    std::map<WorkerId, double> busy_us;
    for (const SimulatedWorker& each : simulation.workers) {
      busy_us[each.id] = each.busy_us / request_.simulation.steps;
    }
    Iteration iteration;
    for (const WorkerId worker : pipeline.workers) iteration.busy_us.push_back(busy_us[worker]);
    iteration.us = job_.sync.claims_in_flight == 1
                       ? simulation.step_us + tied_weights_us(pipeline)
                       : *std::max_element(iteration.busy_us.begin(), iteration.busy_us.end());
    return iteration;
  }

  const JobSpec& job_;
  const PlanRequest& request_;
  const bool must_fit_;
  std::map<int64_t, std::vector<double>> us_before_;                     // By rows.
  std::map<std::tuple<int64_t, int64_t, int64_t>, StageMemory> memory_;  // By rows, and layers.
  std::map<Key, absl::StatusOr<Iteration>> known_;
};

/// What pipeline replicas pay to average, beside waiting for one another.
struct AverageCost {
  double exchange_us = 0;  // As in `PolicySimulationOptions`, as is the next.
  double latency_us = 0;
  double commit_us = 0;  // At the end of a round, by the coordinator.
};

/// Stages are between all cuts of all pipeline replicas. The most that one worker has.
int64_t stages_of_busiest(const std::vector<PipelineCuts>& pipelines) {
  std::set<int64_t> cuts;
  for (const PipelineCuts& each : pipelines) cuts.insert(each.cuts.begin(), each.cuts.end());
  int64_t most = 1;
  for (const PipelineCuts& each : pipelines) {
    for (size_t i = 0; i < each.workers.size(); ++i) {
      const auto first = i == 0 ? cuts.begin() : cuts.upper_bound(each.cuts[i - 1]);
      const auto last = i < each.cuts.size() ? cuts.lower_bound(each.cuts[i]) : cuts.end();
      most = std::max<int64_t>(most, 1 + std::distance(first, last));
    }
  }
  return most;
}

/// Members have as many bytes as the largest share of any worker, and the slowest of the links
/// between pipeline replicas. A ring goes round twice, and each stage has its own.
AverageCost average_cost(const std::vector<PipelineCuts>& pipelines, const PlanRequest& request) {
  const auto layers = static_cast<int64_t>(request.profile.layers.size());
  int64_t bytes = 0;
  double slowest = std::numeric_limits<double>::infinity(), latency_us = 0;
  for (size_t a = 0; a < pipelines.size(); ++a) {
    for (size_t i = 0; i < pipelines[a].workers.size(); ++i) {
      bytes = std::max(bytes, parameter_bytes(request.profile, layers_of(pipelines[a], i, layers)));
    }
    const size_t b = (a + 1) % pipelines.size();
    if (b == a) continue;
    for (size_t i = 0; i < pipelines[a].workers.size(); ++i) {
      const WorkerId from = pipelines[a].workers[i];
      const WorkerId to = pipelines[b].workers[std::min(i, pipelines[b].workers.size() - 1)];
      const LinkSpeed path = path_speed(request.cluster, static_cast<int32_t>(from.value) - 1,
                                        static_cast<int32_t>(to.value) - 1);
      slowest = std::min(slowest, path.bytes_per_second);
      latency_us = std::max(latency_us, path.latency_us);
    }
  }
  if (std::isinf(slowest)) return {};
  const double hop_us = latency_us + request.simulation.action_overhead_us;
  return {static_cast<double>(bytes) / slowest * kMicrosecondsPerSecond,
          2 * hop_us * static_cast<double>(stages_of_busiest(pipelines)),
          request.simulation.commit_us};
}

/// What stalls add to an iteration, in the mean.
double stall_us_each(const StragglerProfile& stalls) {
  constexpr double kPiecesOfIteration = 2;  // A forward and a backward.
  return kPiecesOfIteration * stalls.stall_rate * stalls.stall_us;
}

/// What pipeline replicas take beside stalls, and these.
struct Disturbed {
  std::vector<double> typical_us;
  StragglerProfile stalls;
};

/// `step_us`         [pipeline replicas][steps], none: nothing disturbs them.
/// `undisturbed_us`  [pipeline replicas]
Disturbed split_stalls(StepsOf kind, const std::vector<std::vector<double>>& step_us,
                       const std::vector<double>& undisturbed_us) {
  Disturbed result{undisturbed_us, {}};
  if (step_us.front().empty()) return result;
  result.stalls.layout = {.pipelines = static_cast<uint32_t>(step_us.size()), .stages = 1};
  if (kind == StepsOf::kStalls) {
    measure_stalls(step_us, undisturbed_us, result.stalls);
    return result;
  }
  measure_stragglers(step_us, result.stalls);
  result.typical_us.clear();
  for (const std::vector<double>& own : step_us) result.typical_us.push_back(upper_median(own));
  return result;
}

/// A pipeline replica counts as one stage that takes its iteration's time. Of `stalls` only
/// `stall_rate` and `stall_us` are read.
PipelinesProgress judge(const JobSpec& job, const std::vector<PipelineCuts>& pipelines,
                        const std::vector<double>& iteration_us, const AverageCost& cost,
                        const StragglerProfile& stalls = {}) {
  const auto count = static_cast<uint32_t>(iteration_us.size());
  const auto [fastest, slowest] = std::minmax_element(iteration_us.begin(), iteration_us.end());
  PolicySimulationOptions options;
  options.layout = {.pipelines = count, .stages = 1};
  options.forward_us = {*fastest / 3};
  options.backward_us = {*fastest * 2 / 3};
  options.exchange_us = cost.exchange_us;
  options.latency_us = cost.latency_us;
  // Shards are with the pipeline replicas: each serves all others in turn.
  options.server_us = 2 * cost.exchange_us / count;
  options.server_latency_us = 2 * cost.exchange_us - options.server_us + cost.latency_us;
  options.moments_per_weight = job.optimizer.name == "adamw" ? 2 : 1;
  for (const PipelineCuts& each : pipelines) {
    options.claim_samples.push_back(static_cast<uint64_t>(each.rows * microbatch_count(job)));
  }
  const auto samples_each = static_cast<double>(pipeline_samples(job));
  if (count == 1) {
    return {static_cast<double>(options.claim_samples.front()) / samples_each *
                kMicrosecondsPerSecond / (*fastest + stall_us_each(stalls)),
            1};
  }
  options.scenario = sleeping_pieces(stalls.stall_us, 1, /*seed=*/1);
  options.scenario.slowdown.probability = stalls.stall_rate;
  for (double us : iteration_us) options.scenario.slowness.push_back(us / *fastest);
  options.duration_us =
      std::min(kJudgedIterations * *slowest,
               std::max(kJudgedIterations, kJudgedIterationsMax / count) * *fastest);
  const double values = 1 + options.moments_per_weight;
  const double global_us = 2 * (count - 1.0) / count * values * options.exchange_us +
                           count * options.latency_us + cost.commit_us;
  const double updating_share = set_rounds(job, global_us, kJudgedRounds, options);
  const auto policy = make_policy(job, options.layout);
  if (has_server(job)) {
    const PolicySimulation result = simulate_policy(*policy, options);
    return {updating_share * result.samples_per_second / samples_each, 1};
  }
  ConsensusDistance distance(options.layout, options.warm_up_us, options.claim_samples);
  const PolicySimulation result = simulate_policy(*policy, options, &distance);
  const DriftKind kind{.averages_moments = job.sync.average_moments,
                       .is_adaptive = job.optimizer.name == "adamw",
                       .pipelines = options.layout.pipelines};
  return {updating_share * result.samples_per_second / samples_each,
          progress_per_step(distance.mean(), kind)};
}

/// The same number of devices in each, as near as can be, in the order given.
std::vector<Devices> in_order(const Devices& order, size_t count) {
  std::vector<Devices> groups;
  for (size_t n = 0; n < count; ++n) {
    const RowRange own = even_rows(static_cast<int64_t>(order.size()), static_cast<int64_t>(n),
                                   static_cast<int64_t>(count));
    groups.emplace_back(order.begin() + own.begin, order.begin() + own.end());
  }
  return groups;
}

/// Each device, the fastest first, goes where least speed is: all are as fast as can be.
std::vector<Devices> alike(const Devices& descending, const ClusterSpec& cluster, size_t count) {
  std::vector<Devices> groups(count);
  std::vector<double> speed(count);
  for (int32_t device : descending) {
    const auto least = std::min_element(speed.begin(), speed.end()) - speed.begin();
    groups[static_cast<size_t>(least)].push_back(device);
    speed[static_cast<size_t>(least)] += cluster.devices[static_cast<size_t>(device)].speed;
  }
  return groups;
}

/// Numbers of pipeline replicas that are looked at: all small ones, and all devices by themselves.
std::vector<size_t> counts_up_to(size_t most) {
  constexpr size_t kEachUpTo = 16;
  std::vector<size_t> counts;
  for (size_t count = 1; count < most; count += count < kEachUpTo ? 1 : count / 4) {
    counts.push_back(count);
  }
  counts.push_back(most);
  return counts;
}

/// All ways to share out these devices that are looked at, each once.
std::vector<std::vector<Devices>> groupings(const ClusterSpec& cluster, const Devices& devices) {
  const auto at = [&](int32_t device) { return cluster.devices[static_cast<size_t>(device)]; };
  Devices by_host = devices;
  std::sort(by_host.begin(), by_host.end(), [&](int32_t a, int32_t b) {
    return std::tuple(at(a).host, -at(a).speed, a) < std::tuple(at(b).host, -at(b).speed, b);
  });
  Devices by_speed = by_host;
  std::stable_sort(by_speed.begin(), by_speed.end(),
                   [&](int32_t a, int32_t b) { return at(a).speed > at(b).speed; });
  std::vector<std::vector<Devices>> all;
  for (size_t count : counts_up_to(by_speed.size())) {
    for (const std::vector<Devices>& each :
         {in_order(by_speed, count), alike(by_speed, cluster, count), in_order(by_host, count)}) {
      if (std::find(all.begin(), all.end(), each) == all.end()) all.push_back(each);
    }
  }
  return all;
}

/// Those first that are worth most in a plan: who has room for a layer, and is fast.
Devices by_worth(const JobSpec& job, const PlanRequest& request) {
  int64_t least_bytes = std::numeric_limits<int64_t>::max();
  for (int64_t layer = 0; layer < static_cast<int64_t>(request.profile.layers.size()); ++layer) {
    const StageMemory memory = stage_memory(request.profile, {layer, layer + 1}, pipeline_rows(job),
                                            job.training.recompute);
    least_bytes = std::min(least_bytes, memory.state_bytes + memory.stash_bytes);
  }
  const auto worth = [&](int32_t device) {
    const ClusterDevice& each = request.cluster.devices[static_cast<size_t>(device)];
    const bool has_room = each.memory_bytes == 0 || each.memory_bytes >= least_bytes;
    return std::tuple(has_room, each.speed);
  };
  Devices devices(request.cluster.devices.size());
  std::iota(devices.begin(), devices.end(), 0);
  std::stable_sort(devices.begin(), devices.end(),
                   [&](int32_t a, int32_t b) { return worth(a) > worth(b); });
  return devices;
}

/// The best plan of a kind that was found.
struct FoundPipelines {
  std::vector<PipelineCuts> pipelines;  // None: nothing was found.
  PipelinesProgress progress;
};

struct Choice {
  FoundPipelines even, sized;  // By claims of one size, and by speed.
  size_t looked_at = 0;

  bool is_empty() const { return even.pipelines.empty() && sized.pipelines.empty(); }
  /// Claims by speed if they promise clearly more than any way with claims of one size.
  const FoundPipelines& best() const {
    const bool is_sized = sized.progress.per_second() >= kSizedGain * even.progress.per_second();
    return even.pipelines.empty() || (is_sized && !sized.pipelines.empty()) ? sized : even;
  }
};

/// A way to share out the workers, and what comes of it.
struct JudgedGrouping {
  std::vector<PipelineCuts> pipelines;
  std::vector<double> iteration_us;  // [pipeline replicas], undisturbed.
  PipelinesProgress progress;
};

absl::StatusOr<JudgedGrouping> judge_grouping(const JobSpec& job, const PlanRequest& request,
                                              const std::vector<Devices>& grouping,
                                              const std::vector<int64_t>& rows,
                                              const std::vector<ClusterSpec>& steps,
                                              PipelineTimes& times) {
  JudgedGrouping result;
  std::vector<std::vector<double>> step_us;
  for (size_t n = 0; n < grouping.size(); ++n) {
    SKEIN_ASSIGN_OR_RETURN(PipelineTimes::Timed timed, times.best_of(grouping[n], rows[n]));
    result.pipelines.push_back(std::move(timed.pipeline));
    result.iteration_us.push_back(timed.iteration_us);
    SKEIN_ASSIGN_OR_RETURN(step_us.emplace_back(),
                           times.disturbed_us(result.pipelines.back(), steps));
  }
  const Disturbed seen = split_stalls(StepsOf::kStalls, step_us, result.iteration_us);
  result.progress = judge(job, result.pipelines, seen.typical_us,
                          average_cost(result.pipelines, request), seen.stalls);
  return result;
}

/// Rows for pipeline replicas that take so long for `rows_each`, as many in all, so that they take
/// about the same time for one claim; at least one each. What a share lacks to a whole row goes to
/// the largest rests.
std::vector<int64_t> rows_by_speed(const std::vector<double>& iteration_us, int64_t rows_each) {
  const auto count = static_cast<int64_t>(iteration_us.size());
  double speeds = 0;
  for (double us : iteration_us) speeds += 1 / us;
  std::vector<int64_t> rows;
  std::vector<std::pair<double, size_t>> rests;  // The largest first.
  int64_t left = rows_each * count;
  for (size_t n = 0; n < iteration_us.size(); ++n) {
    const double share = static_cast<double>(rows_each * count) / iteration_us[n] / speeds;
    rows.push_back(std::max<int64_t>(1, static_cast<int64_t>(share)));
    rests.emplace_back(static_cast<double>(rows.back()) - share, n);
    left -= rows.back();
  }
  std::sort(rests.begin(), rests.end());
  for (size_t i = 0; left > 0; ++i, --left) ++rows[rests[i % rests.size()].second];
  // Slow ones were rounded up to a row.
  for (; left < 0; ++left) --*std::max_element(rows.begin(), rows.end());
  return rows;
}

/// One claim of each is no more than a round.
bool fits_round(const JobSpec& job, const std::vector<int64_t>& rows) {
  const int64_t samples =
      std::accumulate(rows.begin(), rows.end(), int64_t{0}) * microbatch_count(job);
  return static_cast<double>(samples) <= static_cast<double>(job.training.global_batch_size) *
                                             static_cast<double>(round_steps_max(job));
}

/// ResourceExhausted if it is better than what was found and does not fit the memory.
absl::Status take_if_better(const JobSpec& job, const PlanRequest& request,
                            const JudgedGrouping& judged, FoundPipelines& found) {
  const bool is_better =
      found.pipelines.empty() || judged.progress.per_second() > found.progress.per_second();
  if (!is_better) return absl::OkStatus();
  // Between all cuts there may be more stages, which stash a little more.
  SKEIN_ASSIGN_OR_RETURN(const Plan whole,
                         make_plan_of_cuts(job, judged.pipelines, request.generation));
  SKEIN_RETURN_IF_ERROR(
      check_memory(whole, request.profile, request.cluster, job.sync.claims_in_flight));
  found = {judged.pipelines, judged.progress};
  return absl::OkStatus();
}

/// The best of the ways to share out these devices, if it is better than what is chosen. `refused`
/// is why one was not possible.
void choose_among(const JobSpec& job, const PlanRequest& request,
                  const std::vector<ClusterSpec>& steps, const Devices& devices,
                  PipelineTimes& times, Choice& choice, absl::Status& refused) {
  const auto refuse = [&refused](const absl::Status& status) {
    if (refused.ok() || absl::IsInvalidArgument(refused)) refused = status;
  };
  for (const std::vector<Devices>& grouping : groupings(request.cluster, devices)) {
    const std::vector<int64_t> like(grouping.size(), pipeline_rows(job));
    const auto even = judge_grouping(job, request, grouping, like, steps, times);
    if (!even.ok()) {
      refuse(even.status());
      continue;
    }
    ++choice.looked_at;
    if (const absl::Status status = take_if_better(job, request, *even, choice.even);
        !status.ok()) {
      refuse(status);
    }
    const std::vector<int64_t> sized = rows_by_speed(even->iteration_us, pipeline_rows(job));
    if (sized == like || !fits_round(job, sized)) continue;
    const auto by_speed = judge_grouping(job, request, grouping, sized, steps, times);
    if (!by_speed.ok()) continue;
    take_if_better(job, request, *by_speed, choice.sized).IgnoreError();
  }
}

/// How many pipeline replicas of how many workers there are, and what is expected of them.
std::string reason_of(const std::vector<PipelineCuts>& pipelines, const PipelinesProgress& progress,
                      const std::string& claims, size_t looked_at) {
  std::vector<size_t> sizes;
  for (const PipelineCuts& each : pipelines) sizes.push_back(each.workers.size());
  return absl::StrCat(
      pipelines.size(), pipelines.size() == 1 ? " pipeline replica of " : " pipeline replicas of ",
      absl::StrJoin(sizes, "+"), " workers", claims.empty() ? "" : ", claims by speed of ", claims,
      claims.empty() ? "" : " samples", ", ", absl::SixDigits(progress.claims_per_second),
      claims.empty() ? " iterations" : " claims of the job's size", " a second worth ",
      absl::SixDigits(progress.worth), " each: the best of ", looked_at,
      " ways to share out the workers");
}

}  // namespace

absl::StatusOr<PlannedPipeline> plan_pipeline_replicas(const JobSpec& job,
                                                       const PlanRequest& request,
                                                       const std::vector<ClusterSpec>& steps) {
  constexpr double kSlow =
      0.1;  // Without devices that have less of the fastest's speed, it may be better.
  PipelineTimes times(job, request);
  Choice choice;
  absl::Status refused;
  Devices devices = by_worth(job, request);
  const size_t count = devices.size();
  const auto speed = [&](int32_t device) {
    return request.cluster.devices[static_cast<size_t>(device)].speed;
  };
  choose_among(job, request, steps, devices, times, choice, refused);
  while (choice.is_empty() && devices.size() > 1) {
    devices.resize(devices.size() - std::max<size_t>(1, devices.size() / 16));
    choose_among(job, request, steps, devices, times, choice, refused);
  }
  if (choice.is_empty()) return refused;
  const auto slow = std::find_if(devices.begin(), devices.end(), [&](int32_t device) {
    return speed(device) < kSlow * speed(devices.front());
  });
  if (slow != devices.end()) {
    devices.erase(slow, devices.end());
    choose_among(job, request, steps, devices, times, choice, refused);
  }
  const FoundPipelines& best = choice.best();
  PlannedPipeline chosen;
  SKEIN_ASSIGN_OR_RETURN(chosen.plan, make_plan_of_cuts(job, best.pipelines, request.generation));
  const double claims_of_step = static_cast<double>(job.training.global_batch_size) /
                                static_cast<double>(pipeline_samples(job));
  chosen.objective_us = claims_of_step * 1e6 / best.progress.claims_per_second;
  chosen.reason =
      reason_of(best.pipelines, best.progress, claims_text(chosen.plan), choice.looked_at);
  const size_t left_out = count - plan_workers(chosen.plan).size();
  if (left_out > 0) absl::StrAppend(&chosen.reason, "; ", left_out, " have no place in it");
  return chosen;
}

absl::StatusOr<PipelinesProgress> predict_progress(const JobSpec& job, const Plan& plan,
                                                   const PlanRequest& request,
                                                   const std::vector<ClusterSpec>& steps,
                                                   StepsOf kind) {
  const std::vector<PipelineCuts> pipelines = cuts_of(plan);
  std::vector<double> undisturbed_us;
  PlanRequest disturbed = request;
  // In most steps most pipeline replicas are as before: one object simulates these once.
  PipelineTimes times(job, disturbed, PipelineTimes::Memory::kIsThere);
  for (const PipelineCuts& each : pipelines) {
    SKEIN_ASSIGN_OR_RETURN(undisturbed_us.emplace_back(), times.iteration_us(each));
  }
  std::vector<std::vector<double>> step_us(pipelines.size());
  for (const ClusterSpec& step : steps) {
    disturbed.cluster = step;
    for (size_t p = 0; p < pipelines.size(); ++p) {
      SKEIN_ASSIGN_OR_RETURN(const double us, times.iteration_us(pipelines[p]));
      step_us[p].push_back(us);
    }
  }
  const Disturbed seen = split_stalls(kind, step_us, undisturbed_us);
  return judge(job, pipelines, seen.typical_us, average_cost(pipelines, request), seen.stalls);
}

absl::StatusOr<std::map<WorkerId, double>> predict_busy_us(const JobSpec& job, const Plan& plan,
                                                           const PlanRequest& request) {
  const PipelineTimes times(job, request, PipelineTimes::Memory::kIsThere);
  std::map<WorkerId, double> busy_us;
  for (const PipelineCuts& each : cuts_of(plan)) {
    SKEIN_ASSIGN_OR_RETURN(const Simulation simulation, times.simulation_of(each));
    for (const SimulatedWorker& worker : simulation.workers) busy_us[worker.id] = worker.busy_us;
  }
  return busy_us;
}

}  // namespace skein::plans
