#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "plans/job/model_spec.hpp"

namespace skein::plans {

/// Where training text or tokens come from. `dataset` is "kjv", "text" or "tokens".
struct DataSpec {
  std::string dataset = "kjv";
  /// Text file (dataset "text"), token file or manifest ("tokens"), or a pattern of several; unused
  /// for "kjv".
  std::string path;
  /// Several of these instead of `path`, and how many samples are from each, in proportion. Without
  /// weights each window is used once a pass.
  std::vector<std::string> mixture;
  std::vector<double> weights;
  /// The same for validation; empty: what a manifest lists for it, else the tail of each source.
  std::string validation_path;
  /// Share of the data that is held out for validation where one file holds both; in (0, 0.5].
  double validation_fraction = 0.05;
  bool operator==(const DataSpec&) const = default;
};

struct TrainingSpec {
  int64_t steps = 1000;
  int64_t seq_len = 256;           // T; at most the model's positions.
  int64_t micro_batch_size = 8;    // B, samples of one micro-batch.
  int64_t global_batch_size = 32;  // Samples of one step; a multiple of micro_batch_size.
  double max_norm = 1.0;           // Clipping by the global norm; 0 turns it off.
  bool recompute = false;          // Keep only a layer's input and compute its stash again.
  bool operator==(const TrainingSpec&) const = default;
};

struct OptimizerSpec {
  std::string name = "adamw";  // "adamw" or "sgd".
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  // On matrices only: never on biases, norms.
  double momentum = 0.9;      // Used by "sgd" only.
  bool operator==(const OptimizerSpec&) const = default;
};

struct LrSchedulerSpec {
  int64_t warmup_steps = 100;
  // "cosine", "linear", "sqrt", "polynomial" or "none".
  std::string decay_type = "cosine";
  double decay_power = 2;      // The exponent with "polynomial".
  double decay_ratio = 1;      // Last share of the steps that decays; 1: all after the warm-up.
  double min_lr_factor = 0.1;  // Final lr / peak lr.
  bool operator==(const LrSchedulerSpec&) const = default;
};

/// The planner chooses stages, replicas, rows, schedule and micro-batches.
inline constexpr int64_t kAutoDegree = -1;
/// More claims than a pipeline has stages hide nothing but the way to the coordinator.
inline constexpr int64_t kClaimsInFlightMax = 16;

struct ParallelismSpec {
  int64_t pipeline_parallel_degree = 0;        // Ranks; 0: one per worker / replicas; kAutoDegree.
  int64_t data_parallel_replicate_degree = 1;  // Replicas of every stage, unless `replicas`.
  std::vector<int64_t> layout;                 // Transformer blocks per stage; empty: even by cost.
  std::vector<int64_t> replicas;               // Replicas per rank; empty: the degree above.
  std::string pipeline_parallel_schedule = "1F1B";  // As `parse_schedule_kind`.
  int64_t virtual_stages = 1;                       // Stages of each rank.
  std::string plan;  // File with the text of a plan that is used as it is; empty: as above.
  bool plans_of_others = true;  // Our planner looks at the other planners' plans, too.
  bool operator==(const ParallelismSpec&) const = default;
};

/// What the worker computes on. Emulated devices are slowed by `speed` or only sleep.
struct DeviceSpec {
  std::string type = "cpu";      // "cpu", "cuda", "auto" (cuda if there, else cpu) or "sleep".
  int64_t threads = 1;           // Host threads per device.
  double speed = 1.0;            // In (0, 1]: 0.5 takes twice the time for every action.
  std::vector<double> speeds;    // Speeds of workers 1, 2, ...; `speed` for those beyond the list.
  double sleep_forward_us = 0;   // Type "sleep": F of one block and a whole micro-batch.
  double sleep_backward_us = 0;  // Type "sleep": B of one block and a whole micro-batch.
  double sleep_update_us = 0;    // Type "sleep": the optimizer's update of one block.
  /// How devices are slower than they should be: "H0" to "H7", or the text of a `Scenario`; empty:
  /// they are not.
  std::string scenario;
  std::string scenario_trace;          // File with the speeds of an H6; empty: the scenario's own.
  double scenario_step_seconds = 0;    // To which a named scenario is in proportion; 0: not known.
  std::string precision = "bfloat16";  // On cuda, also of activations.
  int64_t ordinal = -1;                // GPU of a cuda device; -1: by the worker's local rank.
  int64_t memory_limit_mb = 0;         // MiB that plans count on and cuda gives out; 0: all.
  bool operator==(const DeviceSpec&) const = default;
};

struct ValidationSpec {
  int64_t interval = 100;  // Steps between validations; 0: only after the last step.
  int64_t batches = 8;     // Times training.micro_batch_size samples; 0 turns validation off.
  bool operator==(const ValidationSpec&) const = default;
};

struct CheckpointSpec {
  bool enable = true;
  int64_t interval = 500;         // Steps between checkpoints; the last step always writes one.
  int64_t keep_latest_k = 3;      // Older complete ones are deleted; 0 keeps all.
  std::string initial_load_path;  // A checkpoint, or a run folder whose latest one is loaded.
  bool operator==(const CheckpointSpec&) const = default;
};

struct ElasticSpec {
  double heartbeat_interval_seconds = 1.0;
  double heartbeat_timeout_seconds = 10.0;  // The lease: silence past it is a loss.
  int64_t min_workers = 1;                  // With fewer the run waits for workers to join.
  int64_t max_workers = 0;                  // More than so many stay idle; 0: no limit.
  int64_t snapshot_interval = -1;  // Steps between snapshots in memory; 0: none, -1: chosen.
  bool watch_speeds = true;        // Plans again for workers that become slower or faster.
  double coordinator_timeout_seconds = 60.0;  // So long workers wait for a lost coordinator.
  bool operator==(const ElasticSpec&) const = default;
};

/// How the replicas of a stage put what they have learnt together.
struct SyncSpec {
  std::string policy = "allreduce";  // As `parse_policy_kind`: who averages with whom, when.
  int64_t period = 10;  // "sdpipe": P, all pipeline replicas are connected every P updates of each.
  int64_t local_steps = 1;  // "overlapped": updates of each, in the mean, between two averages.
  int64_t group_size = 3;   // "partial_reduce", "prague": pipeline replicas of a group, >= 2.
  int64_t wave = 4;         // "hetpipe": steps of a pipeline replica from one push to the next one.
  int64_t bound = 3;  // "ps_bounded": steps, "hetpipe": waves that one may be ahead of the slowest.
  int64_t groups = 0;         // "grouped_ps": so many groups; 0: as few as stragglers allow.
  bool group_servers = true;  // "grouped_ps": each group has a server of its own in between.
  /// "grouped_ps": share by which the validation's loss may be above its lowest, else there are
  /// half as many groups; 0: it does not matter.
  double loss_rise_max = 0;
  /// "sdpipe", "partial_reduce": weights in an average fall by this factor with each step
  /// that a member is behind the newest; in (0, 1], 1: equal ones.
  double staleness_decay = 1;
  /// Averages take in the optimizer's state. Not with "adpsgd", "overlapped", "auto" and servers.
  bool average_moments = false;
  int64_t round_steps = 50;  // Pipeline replicas under local updates all meet after so many steps.
  /// What then becomes of their weights: "mean", or "adasum" of what each has added to those that
  /// the round began with.
  std::string round_reducer = "mean";
  /// Claims that a pipeline replica trains on at once; above 1, its stages go on without a flush.
  int64_t claims_in_flight = 1;
  /// With several claims in flight a stage clips by its own gradient's norm: to
  /// `training.max_norm` ("stage"), or to its share of that by its parameters ("share").
  std::string clip_by = "stage";
  std::string reducer = "sum";  // As `parse_reducer_kind`.
  double density = 0.01;        // In (0, 1]: share of the values that top k reducers send.
  bool operator==(const SyncSpec&) const = default;
};

/// How steps are cut into tokens, where `sync.policy` is "tokens".
struct TokenSpec {
  /// Samples of a token of each sub-model, from the first one on: each a multiple of the one
  /// before, the last one a divisor of the global batch. Empty: `training.micro_batch_size` for
  /// all.
  std::vector<int64_t> samples;
  /// The most workers that may train each sub-model; 0 or empty: all of them.
  std::vector<int64_t> workers;
  bool depth_first = true;  // The deepest sub-model's tokens go first; else whichever is oldest.
  bool own_buckets = true;  // A worker helps others only when it has nothing left of its own.
  int64_t ahead = 2;        // Tokens that a worker is granted before it has computed them.
  /// Steps for which each of the plans that promise most is tried, where the planner chooses; 0:
  /// the one that promises most is taken.
  int64_t trial_steps = 0;
  /// Sums of gradients have the same bits whoever came to which token, and when; else those of the
  /// order in which tokens were computed.
  bool reproducible = false;
  bool operator==(const TokenSpec&) const = default;
};

struct CommSpec {
  double init_timeout_seconds = 300;   // From start to the first step.
  double train_timeout_seconds = 300;  // No step committed for so long: the run fails.
  /// Gradients of replicas are added up in buckets of so many MiB and at least a layer, as soon as
  /// the last backward has completed them; 0: all of them after it. Of layers of 3 MiB on 1 Gbit/s,
  /// a cap of 4 or 1 hides some nine tenths, PyTorch's 25 a third.  // measured, bench/overlap.py
  double bucket_cap_mb = 4;
  /// What adds up gradients: "nccl" among GPUs, "gloo" by way of their hosts, "auto": NCCL where
  /// all members of a group have it, else Gloo.
  std::string backend = "auto";
  bool operator==(const CommSpec&) const = default;
};

/// How the job shares devices with the other jobs of its workers.
struct SharingSpec {
  int64_t priority = 0;  // Of jobs with unlike ones the larger goes first, piece of work by piece.
  int64_t weight = 1;    // In [1, 100]: the job's part of the turns among jobs of its priority.
  /// Its passes alternate with those of such jobs; else their work mixes, piece by piece.
  bool takes_turns = true;
  bool operator==(const SharingSpec&) const = default;
};

struct MetricsSpec {
  int64_t log_freq = 10;  // Steps between progress lines; metrics.jsonl has every step.
  bool operator==(const MetricsSpec&) const = default;
};

struct ProfilingSpec {
  bool enable_profiling = true;
  int64_t profile_freq = 50;  // Every so many steps one whole step goes into the trace.
  bool operator==(const ProfilingSpec&) const = default;
};

struct DebugSpec {
  uint64_t seed = 1337;
  bool operator==(const DebugSpec&) const = default;
};

/// One training run: the contents of a job file with defaults filled in.
struct JobSpec {
  std::string name = "skein";             // job.name
  std::string dump_folder = "./outputs";  // job.dump_folder
  ModelSpec model;
  std::string model_from;  // model.from: a folder of weights to begin with; empty: fresh ones.
  DataSpec data;
  TrainingSpec training;
  OptimizerSpec optimizer;
  LrSchedulerSpec lr_scheduler;
  ParallelismSpec parallelism;
  DeviceSpec device;
  ValidationSpec validation;
  CheckpointSpec checkpoint;
  ElasticSpec elastic;
  SyncSpec sync;
  TokenSpec tokens;
  CommSpec comm;
  SharingSpec sharing;
  MetricsSpec metrics;
  ProfilingSpec profiling;
  DebugSpec debug;
  bool operator==(const JobSpec&) const = default;
};

/// Checks every range and relation that does not need a cluster. The message of an error names the
/// key as the user writes it (`training.micro_batch_size`), its value and what to do.
/// InvalidArgument   if any is broken; the first one in the order of the sections.
absl::Status validate(const JobSpec& job);

/// Samples of one validation, whatever the micro-batches of a plan are.
inline int64_t validation_samples(const JobSpec& job) {
  return job.validation.batches * job.training.micro_batch_size;
}
/// Number of micro-batches of one step, M = global_batch_size / micro_batch_size.
int64_t microbatch_count(const JobSpec& job);

}  // namespace skein::plans
