#include "tests/sim/scenario.hpp"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plans/base/rng.hpp"
#include "plans/plan/pipeline_plan.hpp"
#include "plans/profile/estimate.hpp"
#include "plans/schedule/continuous_1f1b.hpp"
#include "plans/sync/policy_kind.hpp"
#include "tests/sim/part_memory.hpp"

namespace skein::sim {
namespace {

constexpr uint64_t kSecond = 1'000'000;

struct FaultWeight {
  FaultKind kind;
  int weight;
};
constexpr FaultWeight kWeights[] = {
    {FaultKind::kCrash, 8},
    {FaultKind::kVanish, 3},
    {FaultKind::kCrashCoordinator, 4},
    {FaultKind::kPause, 4},
    {FaultKind::kPauseCoordinator, 1},
    {FaultKind::kSlow, 2},
    {FaultKind::kPartition, 2},
    {FaultKind::kIsolate, 2},
    {FaultKind::kHalfOpen, 2},
    {FaultKind::kDropLink, 2},
    {FaultKind::kJoin, 4},
    {FaultKind::kDrain, 3},
    {FaultKind::kDamage, 4},
};

/// Draws for one scenario.
struct Draw {
  plans::Rng rng;

  uint64_t between(uint64_t low, uint64_t high) { return low + rng.below(high - low + 1); }
  bool chance(double probability) { return rng.uniform() < probability; }
  template <class T, size_t N>
  T one_of(const T (&choices)[N]) {
    return choices[rng.below(N)];
  }
};

plans::JobSpec small_job(Draw& draw) {
  plans::JobSpec job;
  job.model.layers = static_cast<int64_t>(draw.between(2, 4));
  job.model.heads = 1;
  job.model.channels = 8;
  job.model.vocab_size = 24;
  job.model.positions = 8;
  job.model.tied_head = draw.chance(0.4);
  job.data.dataset = "tokens";
  job.training.steps = static_cast<int64_t>(draw.between(10, 30));
  job.training.seq_len = 8;
  job.training.micro_batch_size = draw.chance(0.5) ? 4 : 2;
  job.training.global_batch_size = 8;
  job.training.recompute = draw.chance(0.2);
  // Plain SGD: what rounds differently stays as small as it is.
  job.optimizer.name = "sgd";
  job.optimizer.lr = 0.3;
  job.lr_scheduler.warmup_steps = 4;
  job.device.sleep_forward_us = 40'000;
  job.device.sleep_backward_us = 80'000;
  job.device.sleep_update_us = 10'000;
  job.validation.interval = 5;
  job.validation.batches = draw.chance(0.3) ? 1 : 0;
  job.checkpoint.enable = draw.chance(0.8);
  job.checkpoint.interval = static_cast<int64_t>(draw.between(3, 8));
  job.checkpoint.keep_latest_k = 2;
  job.elastic.heartbeat_interval_seconds = 0.5;
  job.elastic.heartbeat_timeout_seconds = 3;
  job.elastic.min_workers = 1;
  job.elastic.snapshot_interval = draw.one_of({-1, 0, 1, 2, 3});
  job.elastic.coordinator_timeout_seconds = 30;
  job.comm.init_timeout_seconds = 200;
  job.comm.train_timeout_seconds = 200;
  job.profiling.enable_profiling = draw.chance(0.2);
  job.profiling.profile_freq = 4;
  return job;
}

/// Ranks and replicas that fit `workers`, or the open layout.
void choose_layout(Draw& draw, int64_t workers, plans::JobSpec& job) {
  plans::ParallelismSpec& parallelism = job.parallelism;
  parallelism.pipeline_parallel_schedule = draw.one_of({"1F1B", "GPipe", "1F1B"});
  if (draw.chance(0.4)) return;
  const int64_t ranks_most = std::min(workers, job.model.layers);
  const auto ranks = static_cast<int64_t>(draw.between(1, static_cast<uint64_t>(ranks_most)));
  parallelism.pipeline_parallel_degree = ranks;
  parallelism.data_parallel_replicate_degree =
      std::min(workers / ranks, job.training.micro_batch_size);
}

/// In some jobs the planner chooses, by what workers have measured. Drawn apart from the rest, so
/// that it is the same for a seed with and without it.
void choose_planner(uint64_t seed, plans::JobSpec& job) {
  Draw draw{plans::Rng(seed, plans::random_stream("planner", 7))};
  if (!draw.chance(0.25)) return;
  job.parallelism = {};
  job.parallelism.pipeline_parallel_degree = plans::kAutoDegree;
}

/// Steps that are pulled as tokens, of one to three sub-models and sizes that double; in a fifth of
/// the jobs the planner chooses them.
void choose_tokens(uint64_t seed, plans::JobSpec& job) {
  Draw draw{plans::Rng(seed, plans::random_stream("tokens", 1))};
  job.sync.policy = kTokens;
  const auto levels = static_cast<int64_t>(draw.between(1, 3));
  job.parallelism = {};
  job.parallelism.pipeline_parallel_degree = levels;
  int64_t samples = draw.one_of({1, 1, 2});
  for (int64_t level = 0; level < levels; ++level) {
    job.tokens.samples.push_back(samples);
    const int64_t most = draw.one_of({0, 0, 0, 1, 2});
    job.tokens.workers.push_back(level == 0 && job.model.tied_head ? 0 : most);
    if (draw.chance(0.5)) samples *= 2;
  }
  job.tokens.depth_first = draw.chance(0.7);
  job.tokens.own_buckets = draw.chance(0.7);
  job.tokens.ahead = static_cast<int64_t>(draw.between(1, 3));
  Draw sums{plans::Rng(seed, plans::random_stream("tokens", 4))};
  job.tokens.reproducible = sums.chance(0.5);
  Draw planner{plans::Rng(seed, plans::random_stream("tokens", 2))};
  if (!planner.chance(0.2)) return;
  job.parallelism.pipeline_parallel_degree = plans::kAutoDegree;
  job.tokens.reproducible = false;  // Its tokens would differ from run to run.
  job.tokens.samples.clear();
  job.tokens.workers.clear();
  Draw trials{plans::Rng(seed, plans::random_stream("tokens", 3))};
  job.tokens.trial_steps = trials.one_of({0, 1, 2});
}

/// In some jobs whoever is silent is lost sooner.
void choose_lease(uint64_t seed, plans::JobSpec& job) {
  Draw draw{plans::Rng(seed, plans::random_stream("lease", 1))};
  if (draw.chance(0.2)) job.elastic.heartbeat_timeout_seconds = draw.one_of({1.5, 2.0});
}

/// Local updates: many short rounds, so that faults hit all parts of them.
void choose_pipelines(Draw& draw, const std::string& policy, Scenario& scenario) {
  plans::JobSpec& job = scenario.job;
  plans::ParallelismSpec& parallelism = job.parallelism;
  job.sync.policy = policy;
  job.training.steps = static_cast<int64_t>(draw.between(20, 60));
  job.sync.round_steps = static_cast<int64_t>(draw.between(1, 6));
  job.sync.period = static_cast<int64_t>(draw.between(1, 4));
  job.sync.local_steps = static_cast<int64_t>(draw.between(1, 2));
  job.sync.group_size = static_cast<int64_t>(draw.between(2, 3));
  job.sync.wave = static_cast<int64_t>(draw.between(1, 3));
  job.sync.bound = static_cast<int64_t>(draw.between(0, 2));
  const uint64_t stages = draw.between(1, 3);
  const uint64_t pipelines = draw.between(2, stages == 1 ? 5 : 4);
  scenario.worker_count = static_cast<int64_t>(stages * pipelines + (draw.chance(0.2) ? 1 : 0));
  const bool is_open = draw.chance(0.15);  // As many stages as there are workers for.
  parallelism.pipeline_parallel_schedule = draw.one_of({"1F1B", "GPipe", "1F1B"});
  parallelism.pipeline_parallel_degree = is_open ? 0 : static_cast<int64_t>(stages);
  parallelism.data_parallel_replicate_degree = draw.one_of({1, 2, 2, 4});
  job.training.micro_batch_size = draw.one_of({4, 4, 8});
  if (is_open || stages > 1) job.model.tied_head = false;
  // With moments the mean of the end of a round has more to do.
  if (draw.chance(0.5)) {
    job.optimizer.name = "adamw";
    job.optimizer.lr = 0.01;
  } else {
    job.optimizer.lr = 0.1;
  }
  // Nothing honest waits for so long: a pipeline replica that hangs is found early.
  job.comm.train_timeout_seconds = 60;
}

/// In some of them a micro-batch is no multiple of the pipeline replicas. Drawn apart from the
/// rest.
void choose_uneven(uint64_t seed, plans::JobSpec& job) {
  constexpr std::string_view kStream = "uneven";
  Draw draw{plans::Rng(seed, plans::random_stream(kStream.data(), kStream.size()))};
  if (draw.chance(0.15)) job.parallelism.data_parallel_replicate_degree = 3;
}

/// "grouped_ps": groups with servers of their own and without, as many as stragglers want or a
/// given number. Drawn apart from the rest.
void choose_groups(uint64_t seed, plans::JobSpec& job) {
  Draw draw{plans::Rng(seed, plans::random_stream("groups", 6))};
  job.sync.groups = draw.one_of({0, 0, 1, 2, 3});
  job.sync.group_servers = draw.chance(0.7);
  if (job.validation.batches > 0 && draw.chance(0.5)) job.sync.loss_rise_max = 0.001;
}

/// In some of them what replicas have added in a round is reduced by Adasum. Drawn apart from the
/// rest.
void choose_round_reducer(uint64_t seed, plans::JobSpec& job) {
  constexpr std::string_view kStream = "round-reducer";
  Draw draw{plans::Rng(seed, plans::random_stream(kStream.data(), kStream.size()))};
  if (draw.chance(0.2)) job.sync.round_reducer = "adasum";
}

/// In half of those that may, the head is tied to the embedding. Drawn apart from the rest.
void choose_tied(uint64_t seed, plans::JobSpec& job) {
  Draw draw{plans::Rng(seed, plans::random_stream("tied", 4))};
  if (job.sync.claims_in_flight == 1 && draw.chance(0.5)) job.model.tied_head = true;
}

/// In some of them the planner shares the workers out, with cuts of their own for each pipeline
/// replica; where a worker has no room for all layers, two have. Drawn apart from the rest.
void choose_pipelines_planner(uint64_t seed, Scenario& scenario) {
  plans::JobSpec& job = scenario.job;
  Draw draw{plans::Rng(seed, plans::random_stream("pipelines-planner", 1))};
  if (!draw.chance(0.3)) return;
  job.parallelism.pipeline_parallel_degree = plans::kAutoDegree;
  if (job.sync.claims_in_flight > 1) job.model.tied_head = false;
  if (!draw.chance(0.8)) return;
  const int64_t rows = plans::pipeline_rows(job);
  const plans::Profile profile =
      plans::estimate_profile(job.model, job.training.seq_len, {rows}, job.optimizer, 1e7, 1e12);
  const int64_t M = plans::microbatch_count(job);
  const plans::Continuous1F1B order{2, static_cast<int32_t>(M),
                                    static_cast<int32_t>(job.sync.claims_in_flight)};
  const auto bytes = [&](const plans::LayerRange& layers, int32_t stage) {
    const plans::StageMemory memory = plans::stage_memory(profile, layers, rows, false);
    return memory.state_bytes + memory.stash_bytes * std::max<int64_t>(M, order.stash_peak(stage)) +
           memory.version_bytes * order.old_versions(stage);
  };
  const int64_t layers = plans::layer_count(job.model);
  int64_t least = bytes({0, layers}, 0);
  for (int64_t cut = 1; cut < layers; ++cut) {
    least = std::min(least, std::max(bytes({0, cut}, 0), bytes({cut, layers}, 1)));
  }
  scenario.memory_bytes = least + least / 20;
  job.elastic.min_workers = 2;
}

/// Several claims in flight, in half of the runs that can have them. Drawn apart from the rest.
void choose_claims(uint64_t seed, plans::JobSpec& job) {
  Draw draw{plans::Rng(seed, plans::random_stream("in-flight", 1))};
  if (draw.chance(0.5) || job.parallelism.pipeline_parallel_schedule != "1F1B") return;
  const auto claims = static_cast<int64_t>(draw.between(2, 3));
  if (claims >= plans::round_steps_max(job)) return;
  job.sync.claims_in_flight = claims;
  job.training.max_norm = draw.one_of({0.0, 1.0});
  job.sync.clip_by = draw.one_of({"stage", "share"});
  job.comm.bucket_cap_mb = draw.one_of({4.0, 1e-6});  // Signals with the report, or before it.
}

/// What the disk does, in some runs. Drawn apart from the rest, so that all others are the same
/// with and without it.
void choose_disk(uint64_t seed, Scenario& scenario) {
  Draw draw{plans::Rng(seed, plans::random_stream("disk", 4))};
  if (!draw.chance(0.4)) return;
  scenario.job.checkpoint.keep_latest_k = draw.one_of({1, 2});
  scenario.disk_us_max = draw.one_of({uint64_t{0}, kSecond / 2, 4 * kSecond});
  auto add = [&](FaultKind kind) {
    Fault fault;
    fault.kind = kind;
    fault.at_us = draw.between(kSecond, 15 * kSecond);
    scenario.faults.push_back(fault);
  };
  for (uint64_t count = draw.between(0, 2); count > 0; --count) add(FaultKind::kDamageCheckpoint);
  if (scenario.disk_us_max > 0 && draw.chance(0.5)) add(FaultKind::kLoseShard);
}

/// In some runs not all workers see the run's folder, or none does. Drawn apart from the rest.
void choose_folders(uint64_t seed, Scenario& scenario) {
  Draw draw{plans::Rng(seed, plans::random_stream("folders", 1))};
  if (draw.chance(0.25)) scenario.elsewhere_chance = draw.one_of({0.3, 0.6, 1.0});
}

FaultKind draw_kind(Draw& draw) {
  int total = 0;
  for (const FaultWeight& each : kWeights) total += each.weight;
  auto left = static_cast<int>(draw.rng.below(static_cast<uint64_t>(total)));
  for (const FaultWeight& each : kWeights) {
    left -= each.weight;
    if (left < 0) return each.kind;
  }
  return FaultKind::kCrash;
}

Fault draw_fault(Draw& draw) {
  Fault fault;
  fault.kind = draw_kind(draw);
  fault.at_us = draw.between(kSecond / 10, 15 * kSecond);
  // Some are over before a lease of three seconds is, some are not.
  fault.duration_us = draw.between(kSecond / 20, draw.chance(0.5) ? 2 * kSecond : 8 * kSecond);
  fault.target = draw.rng.below(60);
  fault.other = draw.rng.below(60);
  return fault;
}

/// What keeps the coordinator from hearing or writing while others live. Drawn apart from the rest,
/// so that the other faults are the same for a seed with and without it.
void choose_stalls(uint64_t seed, Scenario& scenario) {
  Draw draw{plans::Rng(seed, plans::random_stream("stalls", 1))};
  if (!draw.chance(0.3)) return;
  const uint64_t count = draw.between(1, 2);
  for (uint64_t n = 0; n < count; ++n) {
    Fault fault = draw_fault(draw);
    fault.kind = draw.one_of({FaultKind::kStall, FaultKind::kRestart, FaultKind::kFullDisk});
    scenario.faults.push_back(fault);
  }
}

/// Bursts of faults within one exchange of a group: somebody is kept from hearing what happens,
/// while others are taken out of it. Drawn apart from the rest.
void draw_bursts(uint64_t seed, bool is_dense, Scenario& scenario) {
  constexpr FaultKind kDeaf[] = {FaultKind::kPause, FaultKind::kPause, FaultKind::kIsolate,
                                 FaultKind::kPartition, FaultKind::kSlow};
  constexpr FaultKind kGone[] = {FaultKind::kCrash,  FaultKind::kCrash, FaultKind::kCrash,
                                 FaultKind::kVanish, FaultKind::kDrain, FaultKind::kDropLink};
  Draw draw{plans::Rng(seed, plans::random_stream("bursts", 1))};
  if (!draw.chance(0.25) && !is_dense) return;
  scenario.tensor_us_max = draw.one_of({uint64_t{50'000}, uint64_t{200'000}, uint64_t{200'000}});
  scenario.late_chance = 0.1;
  // In short rounds nearly all groups are those of a round's end.
  scenario.job.sync.round_steps = static_cast<int64_t>(draw.between(6, 16));
  scenario.faults.clear();
  const uint64_t bursts = draw.between(1, 3);
  for (uint64_t burst = 0; burst < bursts; ++burst) {
    const uint64_t start_us = draw.between(kSecond, 12 * kSecond);
    const uint64_t count = draw.between(2, 4);
    for (uint64_t n = 0; n < count; ++n) {
      Fault& fault = scenario.faults.emplace_back(draw_fault(draw));
      const bool is_deaf = n == 0 || draw.chance(0.3);
      fault.kind = is_deaf ? draw.one_of(kDeaf) : draw.one_of(kGone);
      fault.at_us = start_us + (is_deaf ? 0 : draw.between(0, scenario.tensor_us_max));
    }
  }
}

/// Other runs and other keys in the coordinator's place. Drawn apart from the rest, and put behind
/// it, so that seeds and the numbers of their other faults keep their meaning.
void add_changes_of_identity(uint64_t seed, std::vector<Fault>& faults) {
  Draw draw{plans::Rng(seed, plans::random_stream("identity", 8))};
  for (FaultKind kind : {FaultKind::kOtherJob, FaultKind::kOtherKeys}) {
    if (!draw.chance(0.1)) continue;
    Fault fault = draw_fault(draw);
    fault.kind = kind;
    faults.push_back(fault);
  }
}

/// A supervisor that starts what cannot live. Drawn apart from the rest, and put behind it.
void add_crash_loop(uint64_t seed, std::vector<Fault>& faults) {
  Draw draw{plans::Rng(seed, plans::random_stream("loops", 1))};
  if (!draw.chance(0.1)) return;
  Fault fault = draw_fault(draw);
  fault.kind = FaultKind::kCrashLoop;
  fault.at_us = draw.between(kSecond / 2, 4 * kSecond);
  fault.duration_us = draw.between(6 * kSecond, 20 * kSecond);
  faults.push_back(fault);
}

/// A link that stays down. Drawn apart from the rest, and put behind it.
void add_blackhole(uint64_t seed, std::vector<Fault>& faults) {
  Draw draw{plans::Rng(seed, plans::random_stream("blackholes", 1))};
  if (!draw.chance(0.1)) return;
  Fault fault = draw_fault(draw);
  fault.kind = FaultKind::kBlackhole;
  fault.duration_us = 0;
  faults.push_back(fault);
}

/// Entries that were never synced. Drawn apart from the rest, and put behind it.
void add_power_cut(uint64_t seed, std::vector<Fault>& faults) {
  Draw draw{plans::Rng(seed, plans::random_stream("power", 1))};
  if (!draw.chance(0.1)) return;
  Fault fault = draw_fault(draw);
  fault.kind = FaultKind::kPowerCut;
  faults.push_back(fault);
}

/// A coordinator that does not come back in time, dead or paused. In half of the latter it wakes up
/// to a full disk, on which workers have left what they held, and to one that would begin anew.
/// Each is drawn apart from the rest, and put behind it.
void add_abandonment(uint64_t seed, const plans::JobSpec& job, std::vector<Fault>& faults) {
  Draw dead{plans::Rng(seed, plans::random_stream("abandoned", 1))};
  Draw paused{plans::Rng(seed, plans::random_stream("standstill", 1))};
  for (auto& [draw, kind] : {std::pair<Draw&, FaultKind>{dead, FaultKind::kAbandon},
                             std::pair<Draw&, FaultKind>{paused, FaultKind::kStandstill}}) {
    if (!draw.chance(0.1)) continue;
    Fault fault = draw_fault(draw);
    fault.kind = kind;
    // Workers give up one after the other, and what they hold has to be written. Of one that is
    // paused they hear nothing for a lease first.
    const auto patience_s = static_cast<uint64_t>(job.elastic.coordinator_timeout_seconds);
    const uint64_t more_s = kind == FaultKind::kStandstill ? 15 : 0;
    fault.duration_us = (patience_s + more_s + draw.between(5, 15)) * kSecond;
    faults.push_back(fault);
    if (kind != FaultKind::kStandstill || !draw.chance(0.5)) continue;
    const uint64_t wakes_us = fault.at_us + fault.duration_us;
    for (const FaultKind then : {FaultKind::kFullRunDisk, FaultKind::kJoin}) {
      Fault found = draw_fault(draw);
      found.kind = then;
      found.at_us = wakes_us - kSecond / 2;
      found.duration_us = draw.between(5, 10) * kSecond;
      found.variant = draw.rng.below(60);
      faults.push_back(found);
    }
  }
}

/// Kinds of which one seed in ten has one. Each is drawn apart from the rest, and put behind it.
void add_rare(uint64_t seed, std::vector<Fault>& faults) {
  struct Rare {
    FaultKind kind;
    std::string_view stream;
  };
  constexpr Rare kRare[] = {
      {FaultKind::kOneWay, "one-way"},    {FaultKind::kLastingOneWay, "lasting-one-way"},
      {FaultKind::kMute, "mute"},         {FaultKind::kFullRunDisk, "full-run-disk"},
      {FaultKind::kTear, "tear"},         {FaultKind::kSecond, "second-coordinator"},
      {FaultKind::kStranger, "stranger"}, {FaultKind::kResetLink, "reset-link"},
      {FaultKind::kStop, "stop"},
  };
  for (const Rare& rare : kRare) {
    Draw draw{plans::Rng(seed, plans::random_stream(rare.stream.data(), rare.stream.size()))};
    if (!draw.chance(0.1)) continue;
    Fault fault = draw_fault(draw);
    fault.kind = rare.kind;
    fault.variant = draw.rng.below(60);
    // Until then its workers have given it up.
    if (rare.kind == FaultKind::kSecond) fault.duration_us = draw.between(6, 12) * kSecond;
    faults.push_back(fault);
  }
}

/// One seed in ten has one of a kind. Drawn apart from the rest, and put behind it.
void add_failures(uint64_t seed, std::vector<Fault>& faults) {
  Draw misread{plans::Rng(seed, plans::random_stream("misread", 7))};
  Draw no_memory{plans::Rng(seed, plans::random_stream("no-memory", 9))};
  for (auto& [draw, kind] : {std::pair<Draw&, FaultKind>{misread, FaultKind::kMisread},
                             std::pair<Draw&, FaultKind>{no_memory, FaultKind::kNoMemory}}) {
    if (!draw.chance(0.1)) continue;
    Fault fault = draw_fault(draw);
    fault.kind = kind;
    faults.push_back(fault);
  }
}

/// Everything dies at once. Drawn apart from the rest, and put behind all of it.
void add_all_down(uint64_t seed, std::vector<Fault>& faults) {
  Draw draw{plans::Rng(seed, plans::random_stream("all-down", 8))};
  if (!draw.chance(0.1)) return;
  Fault fault = draw_fault(draw);
  fault.kind = FaultKind::kAllDown;
  fault.variant = draw.rng.below(60);
  faults.push_back(fault);
}

/// In some runs the workers are the coordinator's own, as those of `skein train`. Drawn apart.
void choose_owner(uint64_t seed, Scenario& scenario) {
  Draw draw{plans::Rng(seed, plans::random_stream("owned", 5))};
  scenario.owns_workers = draw.chance(0.1);
}

/// Hosts with several workers each, that die or are cut off as a whole. Drawn apart from the rest,
/// and put behind it.
void choose_hosts(uint64_t seed, Scenario& scenario) {
  constexpr std::string_view kStream = "hosts";
  Draw draw{plans::Rng(seed, plans::random_stream(kStream.data(), kStream.size()))};
  if (scenario.worker_count < 2 || !draw.chance(0.2)) return;
  const auto most = static_cast<uint64_t>(std::min<int64_t>(scenario.worker_count, 4));
  scenario.host_count = static_cast<int64_t>(draw.between(2, most));
  for (uint64_t count = draw.between(0, 2); count > 0; --count) {
    Fault fault = draw_fault(draw);
    fault.kind = draw.one_of({FaultKind::kHostDown, FaultKind::kHostCut});
    fault.variant = draw.rng.below(60);
    // Some for longer than workers wait for their coordinator.
    if (fault.kind == FaultKind::kHostCut && draw.chance(0.2)) fault.duration_us = 40 * kSecond;
    scenario.faults.push_back(fault);
  }
}

/// Up to twelve workers. Drawn apart from the rest: the faults stay those of the seed.
void choose_many(uint64_t seed, bool has_pipelines, Scenario& scenario) {
  constexpr std::string_view kStream = "many";
  Draw draw{plans::Rng(seed, plans::random_stream(kStream.data(), kStream.size()))};
  if (!draw.chance(0.1)) return;
  plans::ParallelismSpec& parallelism = scenario.job.parallelism;
  const bool is_planned = parallelism.pipeline_parallel_degree == plans::kAutoDegree;
  if (has_pipelines) {
    const int64_t stages = std::max<int64_t>(1, parallelism.pipeline_parallel_degree);
    scenario.worker_count = 12 / stages * stages;
    return;
  }
  scenario.worker_count = static_cast<int64_t>(draw.between(7, 12));
  scenario.job.training.micro_batch_size = draw.one_of({4, 8});
  if (is_planned) return;
  const auto ranks_most = static_cast<uint64_t>(std::min<int64_t>(scenario.job.model.layers, 4));
  const auto ranks = static_cast<int64_t>(draw.between(1, ranks_most));
  parallelism.pipeline_parallel_degree = ranks;
  parallelism.data_parallel_replicate_degree =
      std::min(scenario.worker_count / ranks, scenario.job.training.micro_batch_size);
}

/// In one run of five devices run out of memory. Those of as many workers as there are at first
/// have enough; at 1.05 those of one fewer mostly have not, and below 2 the models of two plans do
/// not fit together. Drawn apart from the rest.
void choose_device_memory(uint64_t seed, Scenario& scenario) {
  constexpr std::string_view kStream = "device-memory";
  Draw draw{plans::Rng(seed, plans::random_stream(kStream.data(), kStream.size()))};
  if (!draw.chance(0.2) || scenario.has_third_mode) return;
  const int64_t least = least_device_bytes(scenario.job, scenario.worker_count);
  const int64_t percent = draw.one_of({105, 130, 180});
  scenario.device_bytes = least * percent / 100;
  if (scenario.device_bytes > 0) scenario.memory_bytes = 0;
}

Draw draw_of(uint64_t seed, std::string_view stream) {
  return {plans::Rng(seed, plans::random_stream(stream.data(), stream.size()))};
}

/// A process that dies between two operations on files, in one seed of ten with checkpoints; in one
/// of four of these it is a worker that writes what it holds, as its coordinator is gone. Drawn
/// apart from the rest, and put behind it.
void add_cut_short(uint64_t seed, const plans::JobSpec& job, std::vector<Fault>& faults) {
  Draw draw = draw_of(seed, "cut-short");
  if (!job.checkpoint.enable || !draw.chance(0.1)) return;
  Fault fault = draw_fault(draw);
  fault.kind = FaultKind::kCutShort;
  fault.variant = draw.rng.below(60);
  faults.push_back(fault);
  if (fault.variant % 4 != 3) return;
  fault.kind = FaultKind::kAbandon;
  fault.at_us += draw.between(1, 3) * kSecond;
  const auto patience_s = static_cast<uint64_t>(job.elastic.coordinator_timeout_seconds);
  fault.duration_us = (patience_s + draw.between(5, 15)) * kSecond;
  faults.push_back(fault);
}

/// Devices that fail, and that hang, each in one seed of ten. Drawn apart from the rest, and put
/// behind it.
void add_device_failures(uint64_t seed, std::vector<Fault>& faults) {
  Draw fails = draw_of(seed, "device-fails");
  Draw hangs = draw_of(seed, "device-hangs");
  for (auto& [draw, kind] : {std::pair<Draw&, FaultKind>{fails, FaultKind::kDeviceFails},
                             std::pair<Draw&, FaultKind>{hangs, FaultKind::kDeviceHangs}}) {
    if (!draw.chance(0.1)) continue;
    Fault fault = draw_fault(draw);
    fault.kind = kind;
    fault.duration_us = 0;
    faults.push_back(fault);
  }
}

/// In one run of four payloads take time, and in one of four groups meet over the coordinator; in
/// half of these it, or a member, dies in the middle of that. Drawn apart from the rest, and put
/// behind it.
void choose_middles(uint64_t seed, Scenario& scenario) {
  scenario.payloads_take_time = draw_of(seed, "tensor-halves").chance(0.25);
  Draw draw = draw_of(seed, "rendezvous");
  scenario.meets_by_coordinator = draw.chance(0.25);
  if (!scenario.meets_by_coordinator || !draw.chance(0.5)) return;
  Fault fault = draw_fault(draw);
  fault.kind = FaultKind::kOrphanGroup;
  fault.variant = draw.rng.below(60);
  fault.duration_us = draw.between(2, 5) * kSecond;
  scenario.faults.push_back(fault);
}

}  // namespace

bool needs_worker(FaultKind kind) {
  switch (kind) {
    case FaultKind::kCrashCoordinator:
    case FaultKind::kPauseCoordinator:
    case FaultKind::kJoin:
    case FaultKind::kDamageCheckpoint:
    case FaultKind::kLoseShard:
    case FaultKind::kFullDisk:
    case FaultKind::kOtherJob:
    case FaultKind::kOtherKeys:
    case FaultKind::kCrashLoop:
    case FaultKind::kPowerCut:
    case FaultKind::kAbandon:
    case FaultKind::kStandstill:
    case FaultKind::kFullRunDisk:
    case FaultKind::kTear:
    case FaultKind::kSecond:
    case FaultKind::kStranger:
    case FaultKind::kStop:
    case FaultKind::kAllDown:
    case FaultKind::kCutShort:
    case FaultKind::kOrphanGroup:
      return false;
    case FaultKind::kCrash:
    case FaultKind::kVanish:
    case FaultKind::kPause:
    case FaultKind::kSlow:
    case FaultKind::kPartition:
    case FaultKind::kIsolate:
    case FaultKind::kHalfOpen:
    case FaultKind::kDropLink:
    case FaultKind::kDrain:
    case FaultKind::kDamage:
    case FaultKind::kStall:
    case FaultKind::kRestart:
    case FaultKind::kBlackhole:
    case FaultKind::kOneWay:
    case FaultKind::kLastingOneWay:
    case FaultKind::kMute:
    case FaultKind::kResetLink:
    case FaultKind::kHostDown:
    case FaultKind::kHostCut:
    case FaultKind::kMisread:
    case FaultKind::kNoMemory:
    case FaultKind::kDeviceFails:
    case FaultKind::kDeviceHangs:
      return true;
  }
  return true;
}

const char* to_text(FaultKind kind) {
  constexpr const char* kNames[kFaultKinds] = {"crash",
                                               "vanish",
                                               "crash-coordinator",
                                               "pause",
                                               "pause-coordinator",
                                               "slow",
                                               "partition",
                                               "isolate",
                                               "half-open",
                                               "drop-link",
                                               "join",
                                               "drain",
                                               "damage",
                                               "damage-checkpoint",
                                               "lose-shard",
                                               "stall",
                                               "restart",
                                               "full-disk",
                                               "other-job",
                                               "other-keys",
                                               "crash-loop",
                                               "blackhole",
                                               "power-cut",
                                               "abandon",
                                               "standstill",
                                               "one-way",
                                               "lasting-one-way",
                                               "mute",
                                               "full-run-disk",
                                               "tear",
                                               "host-down",
                                               "host-cut",
                                               "second-coordinator",
                                               "stranger",
                                               "reset-link",
                                               "stop",
                                               "misread",
                                               "no-memory",
                                               "all-down",
                                               "cut-short",
                                               "device-fails",
                                               "device-hangs",
                                               "orphan-group"};
  return kNames[static_cast<int>(kind)];
}

std::string to_text(const Fault& fault) {
  return absl::StrCat(to_text(fault.kind), "@", static_cast<double>(fault.at_us) * 1e-6, "s(",
                      fault.target, ",", static_cast<double>(fault.duration_us) * 1e-6, "s)");
}

Scenario make_scenario(uint64_t seed, const std::string& policy, bool is_dense) {
  const bool has_pipelines = policy != "allreduce" && policy != kThirdMode && policy != kTokens;
  Draw draw{plans::Rng(
      seed, has_pipelines
                ? plans::random_stream("columns", 7)  // Old word: seeds keep their meaning.
                : plans::random_stream("scenario", 8))};
  Scenario scenario;
  scenario.seed = seed;
  scenario.has_third_mode = policy == kThirdMode;
  scenario.job = small_job(draw);
  if (has_pipelines) {
    choose_pipelines(draw, policy, scenario);
    choose_uneven(seed, scenario.job);
    if (policy == "grouped_ps") choose_groups(seed, scenario.job);
    choose_claims(seed, scenario.job);
    choose_tied(seed, scenario.job);
    choose_round_reducer(seed, scenario.job);
    choose_pipelines_planner(seed, scenario);
  } else {
    scenario.worker_count = static_cast<int64_t>(draw.chance(0.1) ? 1 : draw.between(2, 6));
    choose_layout(draw, scenario.worker_count, scenario.job);
    choose_planner(seed, scenario.job);
  }
  scenario.tensor_us_max = draw.one_of({uint64_t{5'000}, uint64_t{50'000}, uint64_t{200'000}});
  const uint64_t count = draw.chance(0.05) ? 0 : draw.between(1, 8);
  for (uint64_t n = 0; n < count; ++n) {
    scenario.faults.push_back(draw_fault(draw));
    // Several at once: of a machine, or while a change is on its way.
    if (n > 0 && draw.chance(0.3)) {
      const uint64_t gap = draw.chance(0.5) ? 0 : draw.between(0, kSecond);
      scenario.faults[n].at_us = scenario.faults[n - 1].at_us + gap;
    }
  }
  if (has_pipelines) draw_bursts(seed, is_dense, scenario);
  choose_stalls(seed, scenario);
  std::stable_sort(scenario.faults.begin(), scenario.faults.end(),
                   [](const Fault& a, const Fault& b) { return a.at_us < b.at_us; });
  add_changes_of_identity(seed, scenario.faults);
  choose_disk(seed, scenario);
  choose_folders(seed, scenario);
  add_crash_loop(seed, scenario.faults);
  add_blackhole(seed, scenario.faults);
  add_power_cut(seed, scenario.faults);
  add_abandonment(seed, scenario.job, scenario.faults);
  add_rare(seed, scenario.faults);
  choose_many(seed, has_pipelines, scenario);
  if (policy == kTokens) choose_tokens(seed, scenario.job);
  choose_hosts(seed, scenario);
  add_failures(seed, scenario.faults);
  choose_lease(seed, scenario.job);
  add_all_down(seed, scenario.faults);
  choose_owner(seed, scenario);
  choose_device_memory(seed, scenario);
  add_cut_short(seed, scenario.job, scenario.faults);
  add_device_failures(seed, scenario.faults);
  choose_middles(seed, scenario);
  const plans::ParallelismSpec& layout = scenario.job.parallelism;
  scenario.shape = absl::StrCat(
      scenario.worker_count, " workers, ", scenario.job.model.layers, " blocks, ",
      layout.pipeline_parallel_degree, " ranks x ", layout.data_parallel_replicate_degree, ", ",
      layout.pipeline_parallel_schedule, ", ", scenario.job.training.steps, " steps, snapshots ",
      scenario.job.elastic.snapshot_interval, ", checkpoints ",
      scenario.job.checkpoint.enable ? scenario.job.checkpoint.interval : 0);
  if (scenario.host_count > 0) {
    absl::StrAppend(&scenario.shape, ", on ", scenario.host_count, " hosts");
  }
  if (scenario.owns_workers) absl::StrAppend(&scenario.shape, ", of the coordinator's own");
  if (scenario.disk_us_max > 0) {
    absl::StrAppend(&scenario.shape, ", a disk that takes ",
                    static_cast<double>(scenario.disk_us_max) * 1e-6, " s");
  }
  if (scenario.elsewhere_chance > 0) {
    absl::StrAppend(&scenario.shape, ", ", scenario.elsewhere_chance,
                    " of the workers without the run's folder");
  }
  if (scenario.device_bytes > 0) {
    absl::StrAppend(&scenario.shape, ", devices of ", scenario.device_bytes, " bytes");
  }
  if (scenario.payloads_take_time) absl::StrAppend(&scenario.shape, ", tensors in halves");
  if (scenario.meets_by_coordinator) {
    absl::StrAppend(&scenario.shape, ", groups that meet over the coordinator");
  }
  if (policy == kTokens) {
    absl::StrAppend(&scenario.shape, ", tokens of ",
                    absl::StrJoin(scenario.job.tokens.samples, ", "), " samples",
                    scenario.job.tokens.reproducible ? ", reproducible" : "");
  }
  if (has_pipelines) {
    absl::StrAppend(&scenario.shape, ", ", policy, " in rounds of ", scenario.job.sync.round_steps,
                    ", ", scenario.job.optimizer.name);
    if (scenario.job.sync.claims_in_flight > 1) {
      absl::StrAppend(&scenario.shape, ", ", scenario.job.sync.claims_in_flight,
                      " claims in flight");
    }
    if (scenario.job.sync.round_reducer != plans::SyncSpec().round_reducer) {
      absl::StrAppend(&scenario.shape, ", rounds by ", scenario.job.sync.round_reducer);
    }
    if (scenario.memory_bytes > 0) absl::StrAppend(&scenario.shape, ", little memory");
  }
  return scenario;
}

Scenario companion_of(const Scenario& scenario) {
  Draw draw{plans::Rng(scenario.seed, plans::random_stream("companion", 9))};
  const char* policy =
      draw.one_of({"allreduce", "allreduce", "allreduce", "sdpipe", "adpsgd", "ps"});
  Scenario other = make_scenario(draw.rng.below(uint64_t{1} << 40), policy);
  if (scenario.faults.empty()) other.faults.clear();
  other.device_bytes = 0;  // Both have one device.
  plans::SharingSpec& sharing = other.job.sharing;
  sharing.priority = draw.one_of({0, 0, 0, -1, 1});
  sharing.weight = static_cast<int64_t>(draw.between(1, 3));
  return other;
}

Scenario undisturbed(const Scenario& scenario) {
  Scenario alone = scenario;
  alone.faults.clear();
  alone.disk_us_max = 0;
  alone.device_bytes = 0;
  alone.elsewhere_chance = 0;
  alone.has_third_mode = false;
  alone.worker_count = 1;
  alone.host_count = 0;
  alone.owns_workers = false;
  alone.payloads_take_time = false;
  alone.meets_by_coordinator = false;
  alone.job.parallelism.pipeline_parallel_degree = 1;
  alone.job.parallelism.data_parallel_replicate_degree = 1;
  alone.job.parallelism.pipeline_parallel_schedule = "1F1B";
  alone.job.checkpoint = {};
  alone.job.checkpoint.enable = true;  // Asks for the state after the last step.
  alone.job.checkpoint.interval = 0;
  alone.job.validation.batches = 0;
  // What changes no weight is the same for all, so that seeds share these runs.
  alone.job.training.recompute = false;
  alone.job.training.micro_batch_size = alone.job.training.global_batch_size;
  alone.job.profiling = {};
  alone.job.sync = {};
  alone.job.tokens = {};
  alone.job.sharing = {};
  alone.job.elastic = {};
  alone.job.elastic.snapshot_interval = 0;
  return alone;
}

}  // namespace skein::sim
