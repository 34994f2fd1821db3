#include "gpu/checkpoint/model_config.hpp"

#include <optional>

#include "absl/strings/str_cat.h"
#include "gpu/checkpoint/checkpoint_listing.hpp"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/files/check_there.hpp"
#include "gpu/files/json_file.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/job/job_spec.hpp"

namespace skein::gpu {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// The name of a model that is of none of the forms of GPT-2, Llama and Qwen2.
constexpr const char* kOwnType = "skein";

bool is_plain_gpt2(const plans::ModelSpec& model) {
  return !plans::has_rms_norm(model) && !plans::has_swiglu(model) && !plans::has_rotary(model) &&
         model.has_bias && plans::kv_heads(model) == model.heads &&
         plans::query_width(model) == model.channels;
}

/// Biases of q, k and v only are what tells Qwen2 from Llama.
bool is_qwen2(const plans::ModelSpec& model) { return model.has_qkv_bias && !model.has_bias; }

OrderedJson gpt2_config(const plans::ModelSpec& model) {
  OrderedJson config = {{"architectures", {"GPT2LMHeadModel"}},
                        {"model_type", "gpt2"},
                        {"vocab_size", model.vocab_size},
                        {"n_positions", model.positions},
                        {"n_ctx", model.positions},
                        {"n_embd", model.channels},
                        {"n_layer", model.layers},
                        {"n_head", model.heads},
                        {"n_inner", nullptr},
                        {"activation_function", "gelu_new"},
                        {"layer_norm_epsilon", model.norm_epsilon},
                        {"resid_pdrop", 0.0},
                        {"embd_pdrop", 0.0},
                        {"attn_pdrop", 0.0},
                        {"initializer_range", model.init_std},
                        {"scale_attn_weights", true},
                        {"scale_attn_by_inverse_layer_idx", false},
                        {"reorder_and_upcast_attn", false},
                        {"tie_word_embeddings", model.tied_head},
                        {"torch_dtype", "float32"}};
  if (model.intermediate_size > 0) config["n_inner"] = model.intermediate_size;
  return config;
}

/// Null for positions that are not scaled.
OrderedJson rope_scaling(const plans::ModelSpec& model) {
  if (model.rope_type == "default") return nullptr;
  OrderedJson scaling = {{"rope_type", model.rope_type}, {"factor", model.rope_factor}};
  if (model.rope_type == "llama3") {
    scaling["low_freq_factor"] = model.rope_low_freq_factor;
    scaling["high_freq_factor"] = model.rope_high_freq_factor;
    scaling["original_max_position_embeddings"] = model.rope_original_positions;
  }
  return scaling;
}

OrderedJson own_config(const plans::ModelSpec& model) {
  OrderedJson config = gpt2_config(model);
  config.erase("architectures");
  config["model_type"] = kOwnType;
  config["norm"] = model.norm;
  config["mlp"] = model.mlp;
  config["bias"] = model.has_bias;
  config["position_embedding_type"] = model.position_embedding_type;
  // Where all products have biases, "false" would deny what these have.
  if (model.has_qkv_bias || !model.has_bias) config["qkv_bias"] = model.has_qkv_bias;
  config["num_key_value_heads"] = plans::kv_heads(model);
  config["head_dim"] = plans::head_size(model);
  config["rope_theta"] = model.rope_theta;
  config["rope_scaling"] = rope_scaling(model);
  return config;
}

/// Rotary positions are said twice: transformers 4 reads `rope_theta` and `rope_scaling`, 5
/// `rope_parameters`.
OrderedJson llama_config(const plans::ModelSpec& model) {
  OrderedJson rope = rope_scaling(model);
  if (rope.is_null()) rope = {{"rope_type", "default"}};
  rope["rope_theta"] = model.rope_theta;
  OrderedJson config = {
      {"architectures", {is_qwen2(model) ? "Qwen2ForCausalLM" : "LlamaForCausalLM"}},
      {"model_type", is_qwen2(model) ? "qwen2" : "llama"},
      {"vocab_size", model.vocab_size},
      {"hidden_size", model.channels},
      {"intermediate_size", plans::mlp_width(model)},
      {"num_hidden_layers", model.layers},
      {"num_attention_heads", model.heads},
      {"num_key_value_heads", plans::kv_heads(model)},
      {"head_dim", plans::head_size(model)},
      {"hidden_act", "silu"},
      {"max_position_embeddings", model.positions},
      {"rms_norm_eps", model.norm_epsilon},
      {"initializer_range", model.init_std},
      {"attention_dropout", 0.0},
      {"rope_theta", model.rope_theta},
      {"rope_scaling", rope_scaling(model)},
      {"rope_parameters", rope},
      {"tie_word_embeddings", model.tied_head},
      {"torch_dtype", "float32"}};
  if (is_qwen2(model)) {
    config["use_sliding_window"] = false;
  } else {
    config["attention_bias"] = model.has_bias;
    config["mlp_bias"] = model.has_bias;
  }
  return config;
}

absl::Status unsupported(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, " describes a model that is not supported (", what, ")"));
}

bool is_set(const nlohmann::json& json, const char* key) {
  return json.contains(key) && !json[key].is_null() && json[key] != false;
}

bool has_value(const nlohmann::json& json, const char* key) {
  return json.contains(key) && !json[key].is_null();
}

absl::Status read_gpt2(const nlohmann::json& json, const std::string& path,
                       plans::ModelSpec& model) {
  std::string activation;
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "activation_function", activation));
  if (activation != "gelu_new") return unsupported(path, absl::StrCat("activation ", activation));
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
    if (is_set(json, key)) return unsupported(path, absl::StrCat(key, ": true"));
  }
  if (json.value("scale_attn_weights", nlohmann::json(true)) != true) {
    return unsupported(path, "scale_attn_weights: false");
  }
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "n_positions", model.positions));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "n_embd", model.channels));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "n_layer", model.layers));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "n_head", model.heads));
  SKEIN_RETURN_IF_ERROR(take_optional(json, path, "n_inner", model.intermediate_size));
  return take_field(json, path, "layer_norm_epsilon", model.norm_epsilon);
}

/// K and D, where a file gives them; 0 as in a job for what they are anyway.
absl::Status take_heads(const nlohmann::json& json, const std::string& path,
                        plans::ModelSpec& model) {
  SKEIN_RETURN_IF_ERROR(take_optional(json, path, "num_key_value_heads", model.kv_heads));
  SKEIN_RETURN_IF_ERROR(take_optional(json, path, "head_dim", model.head_size));
  for (const char* key : {"num_key_value_heads", "head_dim"}) {
    if (has_value(json, key) && json[key] < 1) {
      return absl::DataLossError(absl::StrCat(path, " lacks a proper \"", key, "\""));
    }
  }
  if (model.kv_heads == model.heads) model.kv_heads = 0;
  const bool is_whole = model.heads >= 1 && model.channels % model.heads == 0;
  if (is_whole && model.head_size == model.channels / model.heads) model.head_size = 0;
  return absl::OkStatus();
}

/// What `rope`, the object that a config has for it, says of the scaling of positions.
absl::Status take_scaling(const nlohmann::json& rope, const std::string& path,
                          plans::ModelSpec& model) {
  model.rope_type = "default";
  SKEIN_RETURN_IF_ERROR(take_optional(rope, path, "type", model.rope_type));  // Its older name.
  SKEIN_RETURN_IF_ERROR(take_optional(rope, path, "rope_type", model.rope_type));
  if (model.rope_type == "default" && has_value(rope, "factor")) {
    return unsupported(path, absl::StrCat("rotary positions with a factor and ",
                                          has_value(rope, "rope_type") || has_value(rope, "type")
                                              ? "rope_type default, which has none"
                                              : "no rope_type"));
  }
  if (model.rope_type == "default") return absl::OkStatus();
  if (model.rope_type != "linear" && model.rope_type != "llama3") {
    return unsupported(path, absl::StrCat("rotary positions of rope_type ", model.rope_type));
  }
  SKEIN_RETURN_IF_ERROR(take_field(rope, path, "factor", model.rope_factor));
  if (model.rope_type == "linear") return absl::OkStatus();
  SKEIN_RETURN_IF_ERROR(take_field(rope, path, "low_freq_factor", model.rope_low_freq_factor));
  SKEIN_RETURN_IF_ERROR(take_field(rope, path, "high_freq_factor", model.rope_high_freq_factor));
  return take_field(rope, path, "original_max_position_embeddings", model.rope_original_positions);
}

/// Rotary positions: transformers 5 describes them in `rope_parameters`, 4 in `rope_theta` and
/// `rope_scaling`, which 5 reads like `rope_parameters`. A file that does both, as ours do, says
/// the same twice.
absl::Status take_rope(const nlohmann::json& json, const std::string& path,
                       plans::ModelSpec& model) {
  const nlohmann::json& older = field_or_null(json, "rope_scaling");
  const nlohmann::json& newer = field_or_null(json, "rope_parameters");
  std::optional<double> theta;
  for (const nlohmann::json* each : {&json, &older, &newer}) {
    if (has_value(*each, "partial_rotary_factor") && (*each)["partial_rotary_factor"] != 1) {
      return unsupported(path, "partial_rotary_factor: rotary positions of a part of each head");
    }
    if (!has_value(*each, "rope_theta")) continue;
    SKEIN_RETURN_IF_ERROR(take_field(*each, path, "rope_theta", model.rope_theta));
    if (theta && *theta != model.rope_theta) {
      return unsupported(path, absl::StrCat("rope_theta is ", *theta, " in one place and ",
                                            model.rope_theta, " in another"));
    }
    theta = model.rope_theta;
  }
  plans::ModelSpec other = model;
  if (older.is_object()) SKEIN_RETURN_IF_ERROR(take_scaling(older, path, model));
  if (!newer.is_object()) return absl::OkStatus();
  SKEIN_RETURN_IF_ERROR(take_scaling(newer, path, other));
  if (older.is_object() && other != model) {
    return unsupported(path, "rope_parameters says otherwise than rope_scaling");
  }
  model = other;
  return absl::OkStatus();
}

absl::Status read_own(const nlohmann::json& json, const std::string& path,
                      plans::ModelSpec& model) {
  SKEIN_RETURN_IF_ERROR(read_gpt2(json, path, model));
  SKEIN_RETURN_IF_ERROR(take_heads(json, path, model));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "norm", model.norm));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "mlp", model.mlp));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "bias", model.has_bias));
  SKEIN_RETURN_IF_ERROR(take_optional(json, path, "qkv_bias", model.has_qkv_bias));
  SKEIN_RETURN_IF_ERROR(
      take_field(json, path, "position_embedding_type", model.position_embedding_type));
  return take_rope(json, path, model);
}

/// What of Llama's and Qwen2's families is not ours.
absl::Status check_llama(const nlohmann::json& json, const std::string& path) {
  if (has_value(json, "hidden_act") && json["hidden_act"] != "silu") {
    return unsupported(path, "hidden_act is not silu");
  }
  const bool is_llama = json["model_type"] == "llama";
  if (is_llama && is_set(json, "attention_bias") != is_set(json, "mlp_bias")) {
    return unsupported(path, "biases in one of attention and MLP only");
  }
  if (is_set(json, "use_sliding_window")) return unsupported(path, "use_sliding_window: true");
  const auto types = json.find("layer_types");
  if (types == json.end() || !types->is_array()) return absl::OkStatus();
  for (const nlohmann::json& type : *types) {
    if (type == "full_attention") continue;
    return unsupported(path, absl::StrCat("a layer of ", type.dump()));
  }
  return absl::OkStatus();
}

absl::Status read_llama(const nlohmann::json& json, const std::string& path,
                        const std::string& family, plans::ModelSpec& model) {
  model.name = family;
  plans::apply_family(model);
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "max_position_embeddings", model.positions));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "hidden_size", model.channels));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "num_hidden_layers", model.layers));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "num_attention_heads", model.heads));
  SKEIN_RETURN_IF_ERROR(take_heads(json, path, model));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "intermediate_size", model.intermediate_size));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "rms_norm_eps", model.norm_epsilon));
  SKEIN_RETURN_IF_ERROR(take_rope(json, path, model));
  if (family == "llama") model.has_bias = is_set(json, "attention_bias");
  return check_llama(json, path);
}

}  // namespace

OrderedJson to_config(const plans::ModelSpec& model) {
  if (plans::has_llama_names(model)) return llama_config(model);
  return is_plain_gpt2(model) ? gpt2_config(model) : own_config(model);
}

bool is_mixture(const plans::ModelSpec& model) {
  return !plans::has_llama_names(model) && !is_plain_gpt2(model);
}

absl::StatusOr<plans::ModelSpec> from_config(const nlohmann::json& json, const std::string& path) {
  plans::ModelSpec model;
  std::string type;
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "model_type", type));
  if (type == "gpt2") {
    SKEIN_RETURN_IF_ERROR(read_gpt2(json, path, model));
  } else if (type == "llama" || type == "qwen2") {
    SKEIN_RETURN_IF_ERROR(read_llama(json, path, type, model));
  } else if (type == kOwnType) {
    SKEIN_RETURN_IF_ERROR(read_own(json, path, model));
  } else {
    return unsupported(path, absl::StrCat("model_type ", type));
  }
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "vocab_size", model.vocab_size));
  // Each family's own default is left out of its files.
  model.tied_head = type == "gpt2" || type == kOwnType;
  SKEIN_RETURN_IF_ERROR(take_optional(json, path, "tie_word_embeddings", model.tied_head));
  plans::JobSpec job;  // Its rules for a model are those that matter here too.
  job.model = model;
  job.training.seq_len = 1;
  if (absl::Status status = plans::validate(job); !status.ok()) {
    return absl::DataLossError(absl::StrCat(path, ": ", std::string(status.message())));
  }
  return model;
}

absl::StatusOr<plans::ModelSpec> read_model_config(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kConfigName);
  SKEIN_RETURN_IF_ERROR(check_there(path));
  SKEIN_ASSIGN_OR_RETURN(const nlohmann::json json, read_json(path));
  return from_config(json, path);
}

}  // namespace skein::gpu
