#include "plans/job/job_spec.hpp"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plans/base/status_macros.hpp"
#include "plans/collectives/reducer_kind.hpp"
#include "plans/job/byte_vocabulary.hpp"
#include "plans/job/sample_mixture.hpp"
#include "plans/schedule/schedule.hpp"
#include "plans/share/device_turns.hpp"
#include "plans/simulator/job_scenario.hpp"
#include "plans/sync/policy_kind.hpp"
#include "plans/tokens/token_keys.hpp"

namespace skein::plans {
namespace {

/// A schedule lists every micro-batch of a step for every stage.
constexpr int64_t kMicrobatchesMax = 65536;
constexpr int64_t kPriorityMax = 1'000;

template <class Value>
absl::Status expect(bool holds, const char* key, const Value& value, const char* rule) {
  if (holds) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(key, " = ", value, ": ", rule));
}

absl::Status at_least(int64_t value, int64_t least, const char* key) {
  return expect(value >= least, key, value, absl::StrCat("must be at least ", least).c_str());
}

absl::Status is_one_of(const std::string& value, std::initializer_list<const char*> names,
                       const char* key) {
  std::string list;
  for (const char* name : names) {
    if (value == name) return absl::OkStatus();
    absl::StrAppend(&list, list.empty() ? "" : ", ", "\"", name, "\"");
  }
  return absl::InvalidArgumentError(absl::StrCat(key, " = \"", value, "\": must be one of ", list));
}

absl::Status check_sharing(const SharingSpec& sharing) {
  SKEIN_RETURN_IF_ERROR(
      expect(sharing.priority >= -kPriorityMax && sharing.priority <= kPriorityMax,
             "sharing.priority", sharing.priority, "must be within -1000 and 1000"));
  return expect(sharing.weight >= 1 && sharing.weight <= kTurnWeightMax, "sharing.weight",
                sharing.weight, "must be at least 1 and at most 100");
}

absl::Status check_rope_scaling(const ModelSpec& model) {
  const ModelSpec defaults;
  SKEIN_RETURN_IF_ERROR(
      is_one_of(model.rope_type, {"default", "linear", "llama3"}, "model.rope_type"));
  const bool is_scaled = model.rope_type != "default";
  SKEIN_RETURN_IF_ERROR(expect(!is_scaled || has_rotary(model), "model.rope_type", model.rope_type,
                               "goes with model.position_embedding_type = \"rotary\""));
  SKEIN_RETURN_IF_ERROR(expect(std::isfinite(model.rope_factor) && model.rope_factor >= 1,
                               "model.rope_factor", model.rope_factor, "must be at least 1"));
  SKEIN_RETURN_IF_ERROR(expect(is_scaled || model.rope_factor == 1, "model.rope_factor",
                               model.rope_factor,
                               "goes with model.rope_type = \"linear\" or \"llama3\""));
  const bool is_llama3 = model.rope_type == "llama3";
  constexpr const char* kLlama3Only = "goes with model.rope_type = \"llama3\"";
  const double low = model.rope_low_freq_factor, high = model.rope_high_freq_factor;
  SKEIN_RETURN_IF_ERROR(expect(is_llama3 || low == defaults.rope_low_freq_factor,
                               "model.rope_low_freq_factor", low, kLlama3Only));
  SKEIN_RETURN_IF_ERROR(expect(is_llama3 || high == defaults.rope_high_freq_factor,
                               "model.rope_high_freq_factor", high, kLlama3Only));
  SKEIN_RETURN_IF_ERROR(expect(
      is_llama3 || model.rope_original_positions == defaults.rope_original_positions,
      "model.rope_original_max_position_embeddings", model.rope_original_positions, kLlama3Only));
  SKEIN_RETURN_IF_ERROR(
      expect(std::isfinite(low) && low > 0, "model.rope_low_freq_factor", low, "must be above 0"));
  SKEIN_RETURN_IF_ERROR(
      expect(std::isfinite(high) && high > low, "model.rope_high_freq_factor", high,
             absl::StrCat("must be above model.rope_low_freq_factor = ", low).c_str()));
  return at_least(model.rope_original_positions, 1, "model.rope_original_max_position_embeddings");
}

absl::Status check_choices(const ModelSpec& model) {
  SKEIN_RETURN_IF_ERROR(is_one_of(model.norm, {"layer_norm", "rms_norm"}, "model.norm"));
  SKEIN_RETURN_IF_ERROR(is_one_of(model.mlp, {"gelu", "swiglu"}, "model.mlp"));
  SKEIN_RETURN_IF_ERROR(is_one_of(model.position_embedding_type, {"learned", "rotary"},
                                  "model.position_embedding_type"));
  constexpr int64_t kWidthMax = 1 << 20;
  SKEIN_RETURN_IF_ERROR(expect(model.intermediate_size >= 0 && model.intermediate_size <= kWidthMax,
                               "model.intermediate_size", model.intermediate_size,
                               "must be in [0, 1048576]; 0: in proportion to model.n_embd"));
  SKEIN_RETURN_IF_ERROR(expect(std::isfinite(model.rope_theta) && model.rope_theta >= 1,
                               "model.rope_theta", model.rope_theta, "must be at least 1"));
  SKEIN_RETURN_IF_ERROR(expect(!has_rotary(model) || head_size(model) % 2 == 0,
                               model.head_size > 0 ? "model.head_dim" : "model.n_embd",
                               model.head_size > 0 ? model.head_size : model.channels,
                               "must give heads of an even size, as rotary positions turn pairs of "
                               "channels"));
  return check_rope_scaling(model);
}

absl::Status check_heads(const ModelSpec& model) {
  constexpr int64_t kHeadsMax = 65536, kWidthMax = 1 << 20;
  SKEIN_RETURN_IF_ERROR(at_least(model.heads, 1, "model.n_head"));
  SKEIN_RETURN_IF_ERROR(
      expect(model.heads <= kHeadsMax, "model.n_head", model.heads, "must be at most 65536"));
  SKEIN_RETURN_IF_ERROR(
      expect(model.kv_heads >= 0 && model.heads % kv_heads(model) == 0, "model.num_key_value_heads",
             model.kv_heads,
             absl::StrCat("must divide model.n_head = ", model.heads, "; 0: as many").c_str()));
  SKEIN_RETURN_IF_ERROR(expect(model.head_size >= 0 && model.head_size <= kWidthMax / model.heads,
                               "model.head_dim", model.head_size,
                               "must be 0 (model.n_embd / model.n_head) or more, and at most "
                               "1048576 for all heads together"));
  return expect(model.head_size > 0 || model.channels % model.heads == 0, "model.n_embd",
                model.channels,
                absl::StrCat("must be a multiple of model.n_head = ", model.heads,
                             ", or model.head_dim be given")
                    .c_str());
}

absl::Status check_model(const ModelSpec& model) {
  SKEIN_RETURN_IF_ERROR(is_one_of(model.name, {"gpt2", "llama", "qwen2"}, "model.name"));
  SKEIN_RETURN_IF_ERROR(at_least(model.vocab_size, 1, "model.vocab_size"));
  SKEIN_RETURN_IF_ERROR(expect(model.vocab_size <= (1 << 24), "model.vocab_size", model.vocab_size,
                               "must be at most 16777216"));
  SKEIN_RETURN_IF_ERROR(at_least(model.positions, 1, "model.positions"));
  SKEIN_RETURN_IF_ERROR(expect(model.positions <= (1 << 30), "model.positions", model.positions,
                               "must be at most 1073741824"));
  SKEIN_RETURN_IF_ERROR(at_least(model.layers, 1, "model.n_layer"));
  SKEIN_RETURN_IF_ERROR(
      expect(model.layers <= 4096, "model.n_layer", model.layers, "must be at most 4096"));
  SKEIN_RETURN_IF_ERROR(at_least(model.channels, 1, "model.n_embd"));
  SKEIN_RETURN_IF_ERROR(
      expect(model.channels <= 65536, "model.n_embd", model.channels, "must be at most 65536"));
  SKEIN_RETURN_IF_ERROR(check_heads(model));
  return check_choices(model);
}

absl::Status check_training(const JobSpec& job) {
  const TrainingSpec& training = job.training;
  SKEIN_RETURN_IF_ERROR(at_least(training.steps, 1, "training.steps"));
  SKEIN_RETURN_IF_ERROR(at_least(training.seq_len, 1, "training.seq_len"));
  SKEIN_RETURN_IF_ERROR(
      expect(training.seq_len <= job.model.positions, "training.seq_len", training.seq_len,
             absl::StrCat("must be at most model.positions = ", job.model.positions).c_str()));
  SKEIN_RETURN_IF_ERROR(at_least(training.micro_batch_size, 1, "training.micro_batch_size"));
  SKEIN_RETURN_IF_ERROR(at_least(training.global_batch_size, 1, "training.global_batch_size"));
  SKEIN_RETURN_IF_ERROR(expect(
      training.global_batch_size % training.micro_batch_size == 0, "training.global_batch_size",
      training.global_batch_size,
      absl::StrCat("must be a multiple of training.micro_batch_size = ", training.micro_batch_size)
          .c_str()));
  SKEIN_RETURN_IF_ERROR(
      expect(training.global_batch_size / training.micro_batch_size <= kMicrobatchesMax,
             "training.global_batch_size", training.global_batch_size,
             absl::StrCat("must be at most ", kMicrobatchesMax,
                          " times training.micro_batch_size = ", training.micro_batch_size)
                 .c_str()));
  return expect(std::isfinite(training.max_norm) && training.max_norm >= 0, "training.max_norm",
                training.max_norm, "must be 0 (no clipping) or more");
}

absl::Status check_optimizer(const JobSpec& job) {
  const OptimizerSpec& optimizer = job.optimizer;
  SKEIN_RETURN_IF_ERROR(is_one_of(optimizer.name, {"adamw", "sgd"}, "optimizer.name"));
  auto in_unit = [](double value, const char* key) {
    return expect(value >= 0 && value < 1, key, value, "must be in [0, 1)");
  };
  SKEIN_RETURN_IF_ERROR(expect(std::isfinite(optimizer.lr) && optimizer.lr > 0, "optimizer.lr",
                               optimizer.lr, "must be above 0"));
  SKEIN_RETURN_IF_ERROR(in_unit(optimizer.beta1, "optimizer.beta1"));
  SKEIN_RETURN_IF_ERROR(in_unit(optimizer.beta2, "optimizer.beta2"));
  SKEIN_RETURN_IF_ERROR(in_unit(optimizer.momentum, "optimizer.momentum"));
  SKEIN_RETURN_IF_ERROR(
      expect(optimizer.eps > 0, "optimizer.eps", optimizer.eps, "must be above 0"));
  SKEIN_RETURN_IF_ERROR(expect(optimizer.weight_decay >= 0, "optimizer.weight_decay",
                               optimizer.weight_decay, "must be 0 or more"));
  SKEIN_RETURN_IF_ERROR(at_least(job.lr_scheduler.warmup_steps, 0, "lr_scheduler.warmup_steps"));
  SKEIN_RETURN_IF_ERROR(is_one_of(job.lr_scheduler.decay_type,
                                  {"cosine", "linear", "sqrt", "polynomial", "none"},
                                  "lr_scheduler.decay_type"));
  const double power = job.lr_scheduler.decay_power, ratio = job.lr_scheduler.decay_ratio;
  const bool is_polynomial = job.lr_scheduler.decay_type == "polynomial";
  SKEIN_RETURN_IF_ERROR(expect(std::isfinite(power) && power > 0, "lr_scheduler.decay_power", power,
                               "must be above 0"));
  SKEIN_RETURN_IF_ERROR(expect(is_polynomial || power == LrSchedulerSpec().decay_power,
                               "lr_scheduler.decay_power", power,
                               "goes with decay_type = \"polynomial\""));
  SKEIN_RETURN_IF_ERROR(expect(ratio > 0 && ratio <= 1, "lr_scheduler.decay_ratio", ratio,
                               "must be in (0, 1]; decay_type = \"none\" never decays"));
  SKEIN_RETURN_IF_ERROR(
      expect(job.lr_scheduler.decay_type != "none" || ratio == LrSchedulerSpec().decay_ratio,
             "lr_scheduler.decay_ratio", ratio, "goes with a decay, and decay_type is \"none\""));
  const double factor = job.lr_scheduler.min_lr_factor;
  return expect(factor >= 0 && factor <= 1, "lr_scheduler.min_lr_factor", factor,
                "must be in [0, 1]");
}

template <class Value>
std::string listed(const std::vector<Value>& values) {
  return absl::StrCat("[", absl::StrJoin(values, ", "), "]");
}

absl::Status check_mixture(const DataSpec& data) {
  const size_t sources = data.mixture.size();
  const bool has_weights = !data.weights.empty();
  const std::string mixture = listed(data.mixture);
  SKEIN_RETURN_IF_ERROR(expect(sources == 0 || data.dataset != "kjv", "data.mixture", mixture,
                               "sources go with data.dataset = \"text\" or \"tokens\""));
  SKEIN_RETURN_IF_ERROR(expect(sources == 0 || data.path.empty(), "data.mixture", mixture,
                               "sources stand for data.path; leave that out"));
  for (const std::string& path : data.mixture) {
    SKEIN_RETURN_IF_ERROR(expect(!path.empty(), "data.mixture", "\"\"", "names no file"));
  }
  SKEIN_RETURN_IF_ERROR(expect(
      !has_weights || data.weights.size() == sources, "data.weights", listed(data.weights),
      absl::StrCat("must be one number for each of the ", sources, " in data.mixture").c_str()));
  if (!has_weights) return absl::OkStatus();
  absl::Status weights = SampleMixture::make(data.weights, /*seed=*/0).status();
  if (weights.ok()) return weights;
  return absl::InvalidArgumentError(absl::StrCat("data.weights: ", std::string(weights.message())));
}

absl::Status check_data(const DataSpec& data) {
  SKEIN_RETURN_IF_ERROR(is_one_of(data.dataset, {"kjv", "text", "tokens"}, "data.dataset"));
  for (const auto& [path, key] :
       {std::pair{&data.path, "data.path"}, {&data.validation_path, "data.validation_path"}}) {
    SKEIN_RETURN_IF_ERROR(expect(data.dataset != "kjv" || path->empty(), key, *path,
                                 "goes with data.dataset = \"text\" or \"tokens\"; \"kjv\" has a "
                                 "text of its own"));
  }
  SKEIN_RETURN_IF_ERROR(check_mixture(data));
  const bool is_named = data.dataset == "kjv" || !data.path.empty() || !data.mixture.empty();
  SKEIN_RETURN_IF_ERROR(expect(is_named, "data.path", "\"\"", "must name the file to train on"));
  const double fraction = data.validation_fraction;
  return expect(fraction > 0 && fraction <= 0.5, "data.validation_fraction", fraction,
                "must be in (0, 0.5]");
}

absl::Status check_parallelism(const ParallelismSpec& parallelism) {
  SKEIN_RETURN_IF_ERROR(at_least(parallelism.pipeline_parallel_degree, kAutoDegree,
                                 "parallelism.pipeline_parallel_degree"));
  SKEIN_RETURN_IF_ERROR(at_least(parallelism.data_parallel_replicate_degree, 1,
                                 "parallelism.data_parallel_replicate_degree"));
  SKEIN_RETURN_IF_ERROR(at_least(parallelism.virtual_stages, 1, "parallelism.virtual_stages"));
  for (int64_t blocks : parallelism.layout) {
    SKEIN_RETURN_IF_ERROR(at_least(blocks, 0, "parallelism.layout (one entry)"));
  }
  for (int64_t replicas : parallelism.replicas) {
    SKEIN_RETURN_IF_ERROR(at_least(replicas, 1, "parallelism.replicas (one entry)"));
  }
  return parse_schedule_kind(parallelism.pipeline_parallel_schedule).status();
}

absl::Status check_device(const DeviceSpec& device) {
  SKEIN_RETURN_IF_ERROR(is_one_of(device.type, {"cpu", "cuda", "auto", "sleep"}, "device.type"));
  SKEIN_RETURN_IF_ERROR(
      is_one_of(device.precision, {"bfloat16", "tf32", "float32"}, "device.precision"));
  constexpr int64_t kOrdinalMax = 1023;  // More GPUs than any machine has.
  SKEIN_RETURN_IF_ERROR(expect(device.ordinal >= -1 && device.ordinal <= kOrdinalMax,
                               "device.ordinal", device.ordinal, "must be in [-1, 1023]"));
  constexpr int64_t kMemoryMb = 1 << 30;  // A PiB, far above any device's.
  SKEIN_RETURN_IF_ERROR(expect(device.memory_limit_mb >= 0 && device.memory_limit_mb <= kMemoryMb,
                               "device.memory_limit_mb", device.memory_limit_mb,
                               "must be in [0, 2^30]"));
  SKEIN_RETURN_IF_ERROR(at_least(device.threads, 1, "device.threads"));
  SKEIN_RETURN_IF_ERROR(
      expect(device.threads <= 1024, "device.threads", device.threads, "must be at most 1024"));
  SKEIN_RETURN_IF_ERROR(expect(device.speed > 0 && device.speed <= 1, "device.speed", device.speed,
                               "must be in (0, 1]"));
  for (double speed : device.speeds) {
    SKEIN_RETURN_IF_ERROR(
        expect(speed > 0 && speed <= 1, "device.speeds (one entry)", speed, "must be in (0, 1]"));
  }
  const double times[] = {device.sleep_forward_us, device.sleep_backward_us,
                          device.sleep_update_us};
  const char* keys[] = {"device.sleep_forward_us", "device.sleep_backward_us",
                        "device.sleep_update_us"};
  for (int i = 0; i < 3; ++i) {
    SKEIN_RETURN_IF_ERROR(
        expect(times[i] >= 0 && times[i] <= 1e9, keys[i], times[i], "must be in [0, 1e9]"));
  }
  return absl::OkStatus();
}

/// Whether data fit the weights that training begins with.
absl::Status check_weights(const JobSpec& job) {
  if (!job.model_from.empty() && job.data.dataset != "tokens" &&
      job.model.vocab_size > kByteVocabularyMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.dataset = \"", job.data.dataset,
                     "\": it is read as bytes, and the weights "
                     "of model.from are for a vocabulary of ",
                     job.model.vocab_size, "; give \"tokens\" and a .bin of theirs as data.path"));
  }
  return absl::OkStatus();
}

absl::Status check_intervals(const JobSpec& job) {
  SKEIN_RETURN_IF_ERROR(at_least(job.validation.interval, 0, "validation.interval"));
  SKEIN_RETURN_IF_ERROR(at_least(job.validation.batches, 0, "validation.batches"));
  SKEIN_RETURN_IF_ERROR(at_least(job.checkpoint.interval, 1, "checkpoint.interval"));
  SKEIN_RETURN_IF_ERROR(at_least(job.checkpoint.keep_latest_k, 0, "checkpoint.keep_latest_k"));
  SKEIN_RETURN_IF_ERROR(at_least(job.metrics.log_freq, 1, "metrics.log_freq"));
  SKEIN_RETURN_IF_ERROR(at_least(job.profiling.profile_freq, 1, "profiling.profile_freq"));
  constexpr double kSecondsMost = 1e7;  // Four months.
  auto check_seconds = [](double value, const char* key) {
    return expect(value > 0 && value <= kSecondsMost, key, value, "must be in (0, 1e7]");
  };
  const ElasticSpec& elastic = job.elastic;
  SKEIN_RETURN_IF_ERROR(
      check_seconds(elastic.heartbeat_interval_seconds, "elastic.heartbeat_interval_seconds"));
  SKEIN_RETURN_IF_ERROR(
      check_seconds(elastic.heartbeat_timeout_seconds, "elastic.heartbeat_timeout_seconds"));
  SKEIN_RETURN_IF_ERROR(
      expect(elastic.heartbeat_timeout_seconds >= 2 * elastic.heartbeat_interval_seconds,
             "elastic.heartbeat_timeout_seconds", elastic.heartbeat_timeout_seconds,
             "must be at least twice elastic.heartbeat_interval_seconds"));
  SKEIN_RETURN_IF_ERROR(at_least(elastic.min_workers, 1, "elastic.min_workers"));
  SKEIN_RETURN_IF_ERROR(expect(
      elastic.max_workers == 0 || elastic.max_workers >= elastic.min_workers, "elastic.max_workers",
      elastic.max_workers, "must be 0 (no limit) or at least elastic.min_workers"));
  SKEIN_RETURN_IF_ERROR(at_least(elastic.snapshot_interval, -1, "elastic.snapshot_interval"));
  SKEIN_RETURN_IF_ERROR(
      check_seconds(elastic.coordinator_timeout_seconds, "elastic.coordinator_timeout_seconds"));
  SKEIN_RETURN_IF_ERROR(check_seconds(job.comm.init_timeout_seconds, "comm.init_timeout_seconds"));
  SKEIN_RETURN_IF_ERROR(
      check_seconds(job.comm.train_timeout_seconds, "comm.train_timeout_seconds"));
  const std::string& backend = job.comm.backend;
  SKEIN_RETURN_IF_ERROR(expect(backend == "auto" || backend == "gloo" || backend == "nccl",
                               "comm.backend", backend, "use auto, gloo or nccl"));
  return expect(job.comm.bucket_cap_mb >= 0 && std::isfinite(job.comm.bucket_cap_mb),
                "comm.bucket_cap_mb", job.comm.bucket_cap_mb,
                "must be at least 0 (all gradients at the end)");
}

absl::Status check_sync(const JobSpec& job) {
  const SyncSpec& sync = job.sync;
  SKEIN_RETURN_IF_ERROR(parse_policy_kind(sync.policy).status());
  SKEIN_RETURN_IF_ERROR(at_least(sync.period, 1, "sync.period"));
  SKEIN_RETURN_IF_ERROR(at_least(sync.local_steps, 1, "sync.local_steps"));
  SKEIN_RETURN_IF_ERROR(at_least(sync.group_size, 2, "sync.group_size"));
  SKEIN_RETURN_IF_ERROR(at_least(sync.wave, 1, "sync.wave"));
  SKEIN_RETURN_IF_ERROR(at_least(sync.bound, 0, "sync.bound"));
  SKEIN_RETURN_IF_ERROR(
      expect(sync.groups >= 0 && sync.groups <= std::numeric_limits<int32_t>::max(), "sync.groups",
             sync.groups, "must be at least 0 (as few as stragglers allow)"));
  SKEIN_RETURN_IF_ERROR(expect(sync.loss_rise_max >= 0 && std::isfinite(sync.loss_rise_max),
                               "sync.loss_rise_max", sync.loss_rise_max,
                               "must be at least 0 (the loss does not matter)"));
  SKEIN_RETURN_IF_ERROR(
      expect(sync.loss_rise_max == 0 || (job.validation.batches > 0 && job.validation.interval > 0),
             "sync.loss_rise_max", sync.loss_rise_max,
             "needs losses that are held out; set validation.batches and validation.interval"));
  SKEIN_RETURN_IF_ERROR(expect(sync.staleness_decay > 0 && sync.staleness_decay <= 1,
                               "sync.staleness_decay", sync.staleness_decay,
                               "must be in (0, 1]; 1: all members weigh the same"));
  SKEIN_RETURN_IF_ERROR(at_least(sync.round_steps, 1, "sync.round_steps"));
  SKEIN_RETURN_IF_ERROR(expect(sync.round_reducer == "mean" || sync.round_reducer == "adasum",
                               "sync.round_reducer", sync.round_reducer, "use mean or adasum"));
  SKEIN_RETURN_IF_ERROR(
      expect(sync.claims_in_flight >= 1 && sync.claims_in_flight <= kClaimsInFlightMax,
             "sync.claims_in_flight", sync.claims_in_flight,
             absl::StrCat("must be at least 1, which flushes a pipeline replica between two "
                          "claims, and at most ",
                          kClaimsInFlightMax)
                 .c_str()));
  SKEIN_RETURN_IF_ERROR(expect(sync.clip_by == "stage" || sync.clip_by == "share", "sync.clip_by",
                               sync.clip_by, "use stage or share"));
  SKEIN_RETURN_IF_ERROR(parse_reducer_kind(sync.reducer).status());
  SKEIN_RETURN_IF_ERROR(expect(sync.density > 0 && sync.density <= 1, "sync.density", sync.density,
                               "must be in (0, 1]"));
  SKEIN_RETURN_IF_ERROR(check_pipelines(job));
  return check_tokens(job);
}

}  // namespace

absl::Status validate(const JobSpec& job) {
  SKEIN_RETURN_IF_ERROR(expect(!job.name.empty() && job.name.find('/') == std::string::npos,
                               "job.name", job.name,
                               "must be a plain name, as the run folder is named after it"));
  // Job files hold signed integers.
  SKEIN_RETURN_IF_ERROR(expect(job.debug.seed <= uint64_t{std::numeric_limits<int64_t>::max()},
                               "debug.seed", job.debug.seed,
                               "must be at most 9223372036854775807"));
  SKEIN_RETURN_IF_ERROR(check_model(job.model));
  SKEIN_RETURN_IF_ERROR(check_data(job.data));
  SKEIN_RETURN_IF_ERROR(check_training(job));
  SKEIN_RETURN_IF_ERROR(check_optimizer(job));
  SKEIN_RETURN_IF_ERROR(check_parallelism(job.parallelism));
  SKEIN_RETURN_IF_ERROR(check_device(job.device));
  SKEIN_RETURN_IF_ERROR(check_scenario(job));
  SKEIN_RETURN_IF_ERROR(check_sync(job));
  SKEIN_RETURN_IF_ERROR(check_sharing(job.sharing));
  SKEIN_RETURN_IF_ERROR(check_weights(job));
  return check_intervals(job);
}

int64_t microbatch_count(const JobSpec& job) {
  return job.training.global_batch_size / job.training.micro_batch_size;
}

}  // namespace skein::plans
