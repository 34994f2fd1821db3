#include "cli/config/job_keys.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/config/toml_text.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

using plans::JobSpec;

absl::Status expected(const std::string& what, const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", what, ", got ", text));
}

// The TOML form of a value, and back.
std::string to_toml(int64_t value) { return absl::StrCat(value); }
std::string to_toml(uint64_t value) { return absl::StrCat(value); }
std::string to_toml(bool value) { return value ? "true" : "false"; }
std::string to_toml(const std::string& value) { return toml_string(value); }
std::string to_toml(const std::vector<int64_t>& value) {
  return absl::StrCat("[", absl::StrJoin(value, ", "), "]");
}
std::string to_toml(double value) { return toml_number(value); }
std::string to_toml(const std::vector<double>& value) {
  std::vector<std::string> items;
  for (double item : value) items.push_back(to_toml(item));
  return absl::StrCat("[", absl::StrJoin(items, ", "), "]");
}

std::string to_toml(const std::vector<std::string>& value) {
  std::vector<std::string> items;
  for (const std::string& item : value) items.push_back(to_toml(item));
  return absl::StrCat("[", absl::StrJoin(items, ", "), "]");
}

absl::Status from_text(const std::string& text, int64_t& value) {
  std::string digits = text;
  std::erase(digits, '_');
  return absl::SimpleAtoi(digits, &value) ? absl::OkStatus() : expected("an integer", text);
}
absl::Status from_text(const std::string& text, uint64_t& value) {
  return absl::SimpleAtoi(text, &value) ? absl::OkStatus()
                                        : expected("an integer of 0 or more", text);
}
absl::Status from_text(const std::string& text, double& value) {
  std::string digits = text;
  std::erase(digits, '_');
  return absl::SimpleAtod(digits, &value) && std::isfinite(value) ? absl::OkStatus()
                                                                  : expected("a number", text);
}
absl::Status from_text(const std::string& text, bool& value) {
  if (text != "true" && text != "false") return expected("true or false", text);
  value = text == "true";
  return absl::OkStatus();
}
/// The inverse of `toml_string`, without the quotes; text that has other escapes stays as it is.
std::string unescaped(absl::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    int code = 0;
    if (text[i] != '\\' || i + 1 == text.size()) {
      result += text[i];
    } else if (text[i + 1] == '"' || text[i + 1] == '\\') {
      result += text[++i];
    } else if (text[i + 1] == 'u' && i + 5 < text.size() &&
               absl::SimpleHexAtoi(text.substr(i + 2, 4), &code) && code < 0x20) {
      result += static_cast<char>(code);
      i += 5;
    } else {
      result += text[i];
    }
  }
  return result;
}
absl::Status from_text(const std::string& text, std::string& value) {
  const bool has_quotes = text.size() >= 2 && text.front() == text.back() &&
                          (text.front() == '"' || text.front() == '\'');
  const std::string inner = has_quotes ? text.substr(1, text.size() - 2) : text;
  value = has_quotes && text.front() == '"' ? unescaped(inner) : inner;
  return absl::OkStatus();
}
template <class Item>
absl::Status list_from_text(const std::string& text, const char* example,
                            std::vector<Item>& value) {
  absl::string_view inner = text;
  absl::ConsumePrefix(&inner, "[");
  absl::ConsumeSuffix(&inner, "]");
  std::vector<Item> items;
  for (absl::string_view piece : absl::StrSplit(inner, ',', absl::SkipWhitespace())) {
    const absl::string_view word = absl::StripAsciiWhitespace(piece);
    if (!from_text(std::string(word), items.emplace_back()).ok()) return expected(example, text);
  }
  value = std::move(items);
  return absl::OkStatus();
}
absl::Status from_text(const std::string& text, std::vector<int64_t>& value) {
  return list_from_text(text, "a list of integers such as [4, 2, 2]", value);
}
/// Strings in quotes, with commas between them; without quotes none has a comma.
absl::Status from_text(const std::string& text, std::vector<std::string>& value) {
  absl::string_view left = text;
  absl::ConsumePrefix(&left, "[");
  absl::ConsumeSuffix(&left, "]");
  std::vector<std::string> items;
  for (left = absl::StripAsciiWhitespace(left); !left.empty();) {
    const char quote = left.front() == '"' || left.front() == '\'' ? left.front() : '\0';
    size_t end = 1;
    if (quote == '\0') {
      end = std::min(left.find(','), left.size());
    } else {
      while (end < left.size() && left[end] != quote) {
        end += quote == '"' && left[end] == '\\' ? 2 : 1;
      }
      end = std::min(end + 1, left.size());
    }
    const absl::string_view item = absl::StripAsciiWhitespace(left.substr(0, end));
    left = absl::StripLeadingAsciiWhitespace(left.substr(end));
    const bool is_separated = left.empty() || absl::ConsumePrefix(&left, ",");
    if (item.empty() || !is_separated) {
      return expected("a list of strings such as [\"a.bin\", \"b.bin\"]", text);
    }
    SKEIN_RETURN_IF_ERROR(from_text(std::string(item), items.emplace_back()));
    left = absl::StripLeadingAsciiWhitespace(left);
  }
  value = std::move(items);
  return absl::OkStatus();
}
absl::Status from_text(const std::string& text, std::vector<double>& value) {
  return list_from_text(text, "a list of numbers such as [1.0, 0.5]", value);
}

const char* type_name(const int64_t&) { return "integer"; }
const char* type_name(const uint64_t&) { return "integer"; }
const char* type_name(const double&) { return "number"; }
const char* type_name(const bool&) { return "boolean"; }
const char* type_name(const std::string&) { return "string"; }
const char* type_name(const std::vector<int64_t>&) { return "list of integers"; }
const char* type_name(const std::vector<std::string>&) { return "list of strings"; }
const char* type_name(const std::vector<double>&) { return "list of numbers"; }

/// A key whose value is the field that `field` gives. A function pointer: code for each type of
/// value, not for each of a hundred keys.
template <class Value>
JobKey key(const char* section, const char* name, Value& (*field)(JobSpec&), const char* help) {
  JobSpec example;
  JobKey result;
  result.section = section;
  result.name = name;
  result.type = type_name(field(example));
  result.help = help;
  result.get = [field](const JobSpec& job) {
    JobSpec copy = job;
    return to_toml(field(copy));
  };
  result.set = [field](JobSpec& job, const std::string& text) {
    return from_text(text, field(job));
  };
  return result;
}

#define SKEIN_FIELD(path) +[](JobSpec& job) -> decltype(auto) { return (job.path); }

void add_model_and_data(std::vector<JobKey>& keys) {
  keys.push_back(key("job", "name", SKEIN_FIELD(name), "name of the run folder"));
  keys.push_back(
      key("job", "dump_folder", SKEIN_FIELD(dump_folder), "folder in which run folders are made"));
  keys.push_back(key("model", "name", SKEIN_FIELD(model.name),
                     "model family, whose choices are the defaults of norm, mlp, bias, qkv_bias "
                     "and position_embedding_type: \"gpt2\", \"llama\" or \"qwen2\""));
  keys.push_back(key("model", "flavor", SKEIN_FIELD(model.flavor),
                     "named size (byte-tiny, byte-small, byte-medium, gpt2, gpt2-medium, "
                     "gpt2-large, gpt2-xl), or a published model (tinyllama-1.1b, smollm-135m, "
                     "smollm-360m, llama-3.2-1b, qwen2.5-0.5b), which sets the family, too; the "
                     "keys below override it"));
  keys.push_back(
      key("model", "from", SKEIN_FIELD(model_from),
          "folder in Hugging Face's form, or checkpoint or run folder of ours, with whose "
          "weights training begins, at step 0; the keys below but initializer_range are "
          "then taken from its config.json"));
  keys.push_back(key("model", "vocab_size", SKEIN_FIELD(model.vocab_size), "V; 256 for bytes"));
  keys.push_back(key("model", "positions", SKEIN_FIELD(model.positions),
                     "longest sequence that the model is made for"));
  keys.push_back(key("model", "n_layer", SKEIN_FIELD(model.layers), "transformer blocks"));
  keys.push_back(key("model", "n_head", SKEIN_FIELD(model.heads), "heads of queries"));
  keys.push_back(key("model", "num_key_value_heads", SKEIN_FIELD(model.kv_heads),
                     "heads of keys and of values, shared by n_head / that many heads of queries "
                     "each; 0: as many"));
  keys.push_back(key("model", "head_dim", SKEIN_FIELD(model.head_size),
                     "channels of a head; 0: n_embd / n_head"));
  keys.push_back(key("model", "n_embd", SKEIN_FIELD(model.channels), "width"));
  keys.push_back(key("model", "tie_word_embeddings", SKEIN_FIELD(model.tied_head),
                     "the head multiplies by the token embedding"));
  keys.push_back(key("model", "layer_norm_epsilon", SKEIN_FIELD(model.norm_epsilon),
                     "added to the variance, or to the mean square, in norms"));
  keys.push_back(key("model", "norm", SKEIN_FIELD(model.norm), "\"layer_norm\" or \"rms_norm\""));
  keys.push_back(key("model", "mlp", SKEIN_FIELD(model.mlp), "\"gelu\" or \"swiglu\""));
  keys.push_back(key("model", "intermediate_size", SKEIN_FIELD(model.intermediate_size),
                     "width inside the MLP; 0: 4 n_embd, with swiglu 8/3 of it in steps of 32"));
  keys.push_back(key("model", "bias", SKEIN_FIELD(model.has_bias),
                     "products have biases; layer norms always have"));
  keys.push_back(key("model", "qkv_bias", SKEIN_FIELD(model.has_qkv_bias),
                     "those of queries, keys and values have, also with bias = false"));
  keys.push_back(key("model", "position_embedding_type", SKEIN_FIELD(model.position_embedding_type),
                     "\"learned\" or \"rotary\""));
  keys.push_back(key("model", "rope_theta", SKEIN_FIELD(model.rope_theta),
                     "base of the wavelengths of rotary positions"));
  keys.push_back(key("model", "rope_type", SKEIN_FIELD(model.rope_type),
                     "how rotary positions are scaled: \"default\" (not), \"linear\" (all by "
                     "1 / rope_factor) or \"llama3\" (long waves only)"));
  keys.push_back(key("model", "rope_factor", SKEIN_FIELD(model.rope_factor),
                     "by how much scaled waves are longer"));
  keys.push_back(key("model", "rope_low_freq_factor", SKEIN_FIELD(model.rope_low_freq_factor),
                     "\"llama3\": waves that go into the original length less often are scaled"));
  keys.push_back(key("model", "rope_high_freq_factor", SKEIN_FIELD(model.rope_high_freq_factor),
                     "\"llama3\": waves that go into it more often are not; in between partly"));
  keys.push_back(key("model", "rope_original_max_position_embeddings",
                     SKEIN_FIELD(model.rope_original_positions),
                     "\"llama3\": the original length, longest sequence before scaling"));
  keys.push_back(key("model", "initializer_range", SKEIN_FIELD(model.init_std),
                     "standard deviation of initial matrices"));
  keys.push_back(key("data", "dataset", SKEIN_FIELD(data.dataset),
                     "\"kjv\" (built in), \"text\" (bytes of a file) or \"tokens\" (.bin)"));
  keys.push_back(key("data", "path", SKEIN_FIELD(data.path),
                     "file to train on (nanoGPT's and llm.c's .bin are told apart), a pattern of "
                     "several (shard_*.bin), or a manifest of skein-prepare (.json)"));
  keys.push_back(
      key("data", "mixture", SKEIN_FIELD(data.mixture), "several of these instead of path"));
  keys.push_back(key("data", "weights", SKEIN_FIELD(data.weights),
                     "samples from each source of mixture, in proportion, to one in 4096; empty: "
                     "each window once a pass"));
  keys.push_back(key("data", "validation_path", SKEIN_FIELD(data.validation_path),
                     "the same for validation; empty: what a manifest lists for it, else the tail "
                     "of each source"));
  keys.push_back(key("data", "validation_fraction", SKEIN_FIELD(data.validation_fraction),
                     "share of each source that is held out, in (0, 0.5]"));
}

void add_training(std::vector<JobKey>& keys) {
  keys.push_back(key("training", "steps", SKEIN_FIELD(training.steps), "optimizer updates"));
  keys.push_back(key("training", "seq_len", SKEIN_FIELD(training.seq_len), "tokens of a sample"));
  keys.push_back(key("training", "micro_batch_size", SKEIN_FIELD(training.micro_batch_size),
                     "samples that flow through the pipeline as one unit"));
  keys.push_back(key("training", "global_batch_size", SKEIN_FIELD(training.global_batch_size),
                     "samples of a step; a multiple of micro_batch_size"));
  keys.push_back(key("training", "max_norm", SKEIN_FIELD(training.max_norm),
                     "clip gradients to this global norm; 0: never"));
  keys.push_back(key("training", "recompute", SKEIN_FIELD(training.recompute),
                     "keep only inputs of layers, compute the rest again: less memory"));
  keys.push_back(key("optimizer", "name", SKEIN_FIELD(optimizer.name), "\"adamw\" or \"sgd\""));
  keys.push_back(key("optimizer", "lr", SKEIN_FIELD(optimizer.lr), "peak learning rate"));
  keys.push_back(key("optimizer", "beta1", SKEIN_FIELD(optimizer.beta1), "AdamW, in [0, 1)"));
  keys.push_back(key("optimizer", "beta2", SKEIN_FIELD(optimizer.beta2), "AdamW, in [0, 1)"));
  keys.push_back(key("optimizer", "eps", SKEIN_FIELD(optimizer.eps), "AdamW, above 0"));
  keys.push_back(key("optimizer", "weight_decay", SKEIN_FIELD(optimizer.weight_decay),
                     "on matrices and embeddings; never on biases and norms"));
  keys.push_back(key("optimizer", "momentum", SKEIN_FIELD(optimizer.momentum), "SGD, in [0, 1)"));
  keys.push_back(key("lr_scheduler", "warmup_steps", SKEIN_FIELD(lr_scheduler.warmup_steps),
                     "steps of linear warm-up"));
  keys.push_back(
      key("lr_scheduler", "decay_type", SKEIN_FIELD(lr_scheduler.decay_type),
          "\"cosine\", \"linear\", \"sqrt\" (1 - root of the progress), \"polynomial\" or "
          "\"none\""));
  keys.push_back(key("lr_scheduler", "decay_power", SKEIN_FIELD(lr_scheduler.decay_power),
                     "with polynomial: (1 - progress)^power, above 0"));
  keys.push_back(key("lr_scheduler", "decay_ratio", SKEIN_FIELD(lr_scheduler.decay_ratio),
                     "last share of the steps that decays, in (0, 1]; before it the peak (WSD); 1: "
                     "all after the warm-up"));
  keys.push_back(key("lr_scheduler", "min_lr_factor", SKEIN_FIELD(lr_scheduler.min_lr_factor),
                     "last learning rate / peak"));
}

/// An integer for which "auto" stands as well.
JobKey degree_key() {
  JobKey result = key("parallelism", "pipeline_parallel_degree",
                      SKEIN_FIELD(parallelism.pipeline_parallel_degree),
                      "ranks of the pipeline; 0: as many as workers allow; \"auto\": measure, and "
                      "let the planner choose everything");
  result.type = "integer or \"auto\"";
  result.get = [](const JobSpec& job) {
    const int64_t degree = job.parallelism.pipeline_parallel_degree;
    return degree == plans::kAutoDegree ? toml_string("auto") : to_toml(degree);
  };
  result.set = [](JobSpec& job, const std::string& text) -> absl::Status {
    int64_t& degree = job.parallelism.pipeline_parallel_degree;
    const bool is_auto = text == "auto" || text == "\"auto\"";
    if (is_auto) degree = plans::kAutoDegree;
    if (is_auto || (from_text(text, degree).ok() && degree >= 0)) return absl::OkStatus();
    return expected("an integer of 0 or more, or \"auto\"", text);
  };
  return result;
}

void add_parallelism(std::vector<JobKey>& keys) {
  keys.push_back(degree_key());
  keys.push_back(key("parallelism", "data_parallel_replicate_degree",
                     SKEIN_FIELD(parallelism.data_parallel_replicate_degree),
                     "replicas of every stage"));
  keys.push_back(key("parallelism", "layout", SKEIN_FIELD(parallelism.layout),
                     "blocks of each stage, as [4, 2, 2]; empty: even by cost"));
  keys.push_back(key("parallelism", "replicas", SKEIN_FIELD(parallelism.replicas),
                     "replicas of each rank, as [1, 3]; empty: the degree above"));
  keys.push_back(key("parallelism", "virtual_stages", SKEIN_FIELD(parallelism.virtual_stages),
                     "stages of each rank, for Interleaved1F1B"));
  keys.push_back(key("parallelism", "plan", SKEIN_FIELD(parallelism.plan),
                     "file with a plan, as `skein plan --out` writes it; empty: the keys above"));
  keys.push_back(key("parallelism", "plans_of_others", SKEIN_FIELD(parallelism.plans_of_others),
                     "our planner looks at the other planners' plans, too, and is never slower "
                     "than they; false: it plans in a fraction of the time"));
  keys.push_back(key("parallelism", "pipeline_parallel_schedule",
                     SKEIN_FIELD(parallelism.pipeline_parallel_schedule),
                     "\"1F1B\", \"1F1B-PB\", \"GPipe\", \"Interleaved1F1B\", \"ZBH1\", \"ZBH2\" or "
                     "\"Greedy\""));
  keys.push_back(
      key("device", "type", SKEIN_FIELD(device.type),
          "\"cpu\", \"cuda\", \"auto\": cuda if there, or \"sleep\": only takes the times "
          "below"));
  keys.push_back(key("device", "threads", SKEIN_FIELD(device.threads), "host threads of a worker"));
  keys.push_back(key("device", "precision", SKEIN_FIELD(device.precision),
                     "on cuda: \"bfloat16\" (activations, too), \"tf32\" or \"float32\""));
  keys.push_back(key("device", "ordinal", SKEIN_FIELD(device.ordinal),
                     "GPU of a cuda device, of those that CUDA_VISIBLE_DEVICES leaves, from 0; -1: "
                     "the machine's workers take them in turn"));
  keys.push_back(key("device", "memory_limit_mb", SKEIN_FIELD(device.memory_limit_mb),
                     "MiB of each worker that plans may count on, and that a cuda device may give "
                     "out; 0: all there is"));
  keys.push_back(key("device", "speed", SKEIN_FIELD(device.speed),
                     "emulated speed in (0, 1]: 0.5 takes twice the time"));
  keys.push_back(key("device", "speeds", SKEIN_FIELD(device.speeds),
                     "emulated speeds of workers 1, 2, ..., as [1.0, 0.5]; others: speed"));
  keys.push_back(key("device", "sleep_forward_us", SKEIN_FIELD(device.sleep_forward_us),
                     "time of F of one block and a whole micro-batch"));
  keys.push_back(key("device", "sleep_backward_us", SKEIN_FIELD(device.sleep_backward_us),
                     "time of B of one block and a whole micro-batch"));
  keys.push_back(key("device", "sleep_update_us", SKEIN_FIELD(device.sleep_update_us),
                     "time of the optimizer's update of one block"));
  keys.push_back(key("device", "scenario", SKEIN_FIELD(device.scenario),
                     "slowness on purpose (docs/heterogeneity.md): \"H0\" to \"H7\", or a text as "
                     "\"H2 factor=4 devices=0\"; empty: none"));
  keys.push_back(key("device", "scenario_trace", SKEIN_FIELD(device.scenario_trace),
                     "file of an H6: lines seconds,worker,speed; empty: drawn"));
  keys.push_back(
      key("device", "scenario_step_seconds", SKEIN_FIELD(device.scenario_step_seconds),
          "an undisturbed step, to which a scenario given by its name is in proportion"));
}

void add_running(std::vector<JobKey>& keys) {
  keys.push_back(key("validation", "interval", SKEIN_FIELD(validation.interval),
                     "steps between validations; 0: only at the end"));
  keys.push_back(key("validation", "batches", SKEIN_FIELD(validation.batches),
                     "micro-batches of one validation; 0: none"));
  keys.push_back(key("checkpoint", "enable", SKEIN_FIELD(checkpoint.enable), "write checkpoints"));
  keys.push_back(key("checkpoint", "interval", SKEIN_FIELD(checkpoint.interval),
                     "steps between checkpoints; the last step always writes one"));
  keys.push_back(key("checkpoint", "keep_latest_k", SKEIN_FIELD(checkpoint.keep_latest_k),
                     "complete checkpoints that are kept; 0: all"));
  keys.push_back(key("checkpoint", "initial_load_path", SKEIN_FIELD(checkpoint.initial_load_path),
                     "checkpoint, or run folder, to go on from"));
  keys.push_back(key("elastic", "heartbeat_interval_seconds",
                     SKEIN_FIELD(elastic.heartbeat_interval_seconds),
                     "workers say that they live"));
  keys.push_back(key("elastic", "heartbeat_timeout_seconds",
                     SKEIN_FIELD(elastic.heartbeat_timeout_seconds),
                     "a worker silent for so long is lost"));
  keys.push_back(key("elastic", "min_workers", SKEIN_FIELD(elastic.min_workers),
                     "with fewer the run waits for workers to join"));
  keys.push_back(key("elastic", "max_workers", SKEIN_FIELD(elastic.max_workers),
                     "more than so many stay idle; 0: no limit"));
  keys.push_back(key("elastic", "snapshot_interval", SKEIN_FIELD(elastic.snapshot_interval),
                     "steps between snapshots, copies of the state in workers' memory; 0: none, "
                     "-1: chosen to cost less than 2% of the time"));
  keys.push_back(key("elastic", "watch_speeds", SKEIN_FIELD(elastic.watch_speeds),
                     "notice workers that become slower or faster, and plan again for them"));
  keys.push_back(key(
      "elastic", "coordinator_timeout_seconds", SKEIN_FIELD(elastic.coordinator_timeout_seconds),
      "workers wait so long for a lost coordinator to come back; then they save what "
      "they hold and end"));
  keys.push_back(
      key("sync", "policy", SKEIN_FIELD(sync.policy),
          "who averages with whom, when: \"allreduce\" (all, every step), \"tokens\" (the same, of "
          "samples that each worker pulls as it comes to them); or pipeline replicas "
          "under local updates: \"overlapped\", \"sdpipe\", \"partial_reduce\", \"prague\", "
          "\"adpsgd\" or "
          "\"adpsgd_paired\" average weights, "
          "\"ps\", \"ps_async\", \"ps_bounded\", \"hetpipe\" or \"grouped_ps\" have a "
          "parameter server; \"auto\": allreduce or overlapped, as stragglers want it"));
  keys.push_back(key("sync", "period", SKEIN_FIELD(sync.period),
                     "sdpipe: all pipeline replicas are connected every so many updates of each"));
  keys.push_back(
      key("sync", "local_steps", SKEIN_FIELD(sync.local_steps),
          "overlapped: updates of each pipeline replica, in the mean, between two averages"));
  keys.push_back(key("sync", "group_size", SKEIN_FIELD(sync.group_size),
                     "partial_reduce, prague: pipeline replicas of a group"));
  keys.push_back(key("sync", "wave", SKEIN_FIELD(sync.wave),
                     "hetpipe: steps of a pipeline replica from one push to the next one"));
  keys.push_back(
      key("sync", "bound", SKEIN_FIELD(sync.bound),
          "ps_bounded, hetpipe: steps, or waves, that a pipeline replica may be ahead of the "
          "slowest one"));
  keys.push_back(key("sync", "groups", SKEIN_FIELD(sync.groups),
                     "grouped_ps: so many groups; 0: the fewest that keep stragglers within 1.2 "
                     "times the time"));
  keys.push_back(key("sync", "group_servers", SKEIN_FIELD(sync.group_servers),
                     "grouped_ps: a group has a server of its own, which adds up what the members "
                     "push; false: they push straight to the central one"));
  keys.push_back(key("sync", "loss_rise_max", SKEIN_FIELD(sync.loss_rise_max),
                     "grouped_ps: share by which the validation's loss may rise above its lowest, "
                     "else there are half as many groups; 0: it does not matter"));
  keys.push_back(key("sync", "staleness_decay", SKEIN_FIELD(sync.staleness_decay),
                     "sdpipe, partial_reduce: the weight of a member in an average falls by "
                     "this factor with each step it is behind; 1: all weigh the same"));
  keys.push_back(key("sync", "average_moments", SKEIN_FIELD(sync.average_moments),
                     "average the optimizer's state as well as the weights"));
  keys.push_back(key("sync", "round_steps", SKEIN_FIELD(sync.round_steps),
                     "pipeline replicas under local updates all meet after so many steps"));
  keys.push_back(key("sync", "round_reducer", SKEIN_FIELD(sync.round_reducer),
                     "what then becomes of their weights: \"mean\", or \"adasum\" of what each "
                     "has added to them in the round, parameter by parameter"));
  keys.push_back(key("sync", "claims_in_flight", SKEIN_FIELD(sync.claims_in_flight),
                     "claims that a pipeline replica trains on at once; above 1 its stages go on "
                     "without a flush, each with the weights of the forward (1F1B only)"));
  keys.push_back(key("sync", "clip_by", SKEIN_FIELD(sync.clip_by),
                     "with several claims in flight a stage clips by its own norm: \"stage\" to "
                     "training.max_norm, \"share\" to its share of that by parameters"));
  keys.push_back(
      key("sync", "reducer", SKEIN_FIELD(sync.reducer),
          "how replicas put gradients together: \"sum\", \"hisum\" (within hosts first), \"mean\", "
          "\"adasum\", \"topk\", \"hitopk\", \"topka2a\", \"fp16\" or \"bf16\""));
  keys.push_back(key("sync", "density", SKEIN_FIELD(sync.density),
                     "share of the gradients that topk, hitopk and topka2a send, in (0, 1]"));
  keys.push_back(
      key("tokens", "samples", SKEIN_FIELD(tokens.samples),
          "sync.policy = \"tokens\": samples of a token of each sub-model (the stages of "
          "parallelism), as [2, 4, 8]; empty: training.micro_batch_size for all"));
  keys.push_back(key("tokens", "workers", SKEIN_FIELD(tokens.workers),
                     "the most workers that may train each sub-model, as [0, 0, 2]; 0: all"));
  keys.push_back(key("tokens", "depth_first", SKEIN_FIELD(tokens.depth_first),
                     "the deepest sub-model's tokens go first; false: the oldest ones"));
  keys.push_back(key("tokens", "own_buckets", SKEIN_FIELD(tokens.own_buckets),
                     "a worker helps others when it has nothing left of its own samples; false: "
                     "all take from one bucket"));
  keys.push_back(key("tokens", "ahead", SKEIN_FIELD(tokens.ahead),
                     "tokens that a worker is granted before it has computed them"));
  keys.push_back(key("tokens", "trial_steps", SKEIN_FIELD(tokens.trial_steps),
                     "pipeline_parallel_degree = \"auto\": steps for which each of the three plans "
                     "that promise most is tried; then the fastest stays; 0: none is tried"));
  keys.push_back(
      key("tokens", "reproducible", SKEIN_FIELD(tokens.reproducible),
          "the weights have the same bits whoever came to which token, at twice the bytes "
          "of gradients; false: sums are in the order in which tokens are computed"));
  keys.push_back(key("comm", "init_timeout_seconds", SKEIN_FIELD(comm.init_timeout_seconds),
                     "longest wait for workers, and for them to be prepared"));
  keys.push_back(key("comm", "train_timeout_seconds", SKEIN_FIELD(comm.train_timeout_seconds),
                     "longest time without progress"));
  keys.push_back(key("comm", "bucket_cap_mb", SKEIN_FIELD(comm.bucket_cap_mb),
                     "MiB of gradients, and at least a layer, that replicas add up as soon as the "
                     "last backward has completed them; 0: all after it. With several claims "
                     "in flight a stage asks for its group behind the first one"));
  keys.push_back(
      key("comm", "backend", SKEIN_FIELD(comm.backend),
          "what adds up gradients: \"nccl\" among GPUs, \"gloo\" by way of their hosts, or "
          "\"auto\": NCCL where all members of a group have it"));
  keys.push_back(key("sharing", "priority", SKEIN_FIELD(sharing.priority),
                     "on workers of several jobs: those with a larger one go first, and the others "
                     "fill what they leave idle; jobs with the same take turns"));
  keys.push_back(key("sharing", "weight", SKEIN_FIELD(sharing.weight),
                     "the job's part of the turns, or of the time, among jobs of its priority"));
  keys.push_back(key("sharing", "takes_turns", SKEIN_FIELD(sharing.takes_turns),
                     "its passes alternate with those of jobs of its priority, and it computes "
                     "while they communicate; false: pieces of their work mix"));
  keys.push_back(key("metrics", "log_freq", SKEIN_FIELD(metrics.log_freq),
                     "steps between progress lines; metrics.jsonl has every step"));
  keys.push_back(key("profiling", "enable_profiling", SKEIN_FIELD(profiling.enable_profiling),
                     "write traces/trace.json"));
  keys.push_back(key("profiling", "profile_freq", SKEIN_FIELD(profiling.profile_freq),
                     "every so many steps, one goes into the trace"));
  keys.push_back(key("debug", "seed", SKEIN_FIELD(debug.seed), "of weights and data order"));
}

}  // namespace

const std::vector<JobKey>& job_keys() {
  static const std::vector<JobKey> keys = [] {
    std::vector<JobKey> all;
    add_model_and_data(all);
    add_training(all);
    add_parallelism(all);
    add_running(all);
    return all;
  }();
  return keys;
}

const JobKey* find_key(const std::string& full_name) {
  std::string name = full_name;
  std::replace(name.begin(), name.end(), '-', '_');
  if (name == "sync.segment_steps") {  // Old key.
    static bool is_said = false;
    name = "sync.round_steps";
    if (!std::exchange(is_said, true)) {
      std::fprintf(stderr, "skein: %s is called %s now\n", full_name.c_str(), name.c_str());
    }
  }
  for (const JobKey& key : job_keys()) {
    if (key.full_name() == name) return &key;
  }
  return nullptr;
}

}  // namespace skein::cli
