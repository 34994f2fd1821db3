#include "gpu/checkpoint/model_config.hpp"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gpu/checkpoint/checkpoint_listing.hpp"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/checkpoint/json_field.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/job/job_spec.hpp"

namespace skein::gpu {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// The name of a model that is neither of GPT-2's form nor of Llama's.
constexpr const char* kOwnType = "skein";

bool is_plain_gpt2(const plans::ModelSpec& model) {
  return !plans::has_rms_norm(model) && !plans::has_swiglu(model) && !plans::has_rotary(model) &&
         model.has_bias;
}

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

OrderedJson own_config(const plans::ModelSpec& model) {
  OrderedJson config = gpt2_config(model);
  config.erase("architectures");
  config["model_type"] = kOwnType;
  config["norm"] = model.norm;
  config["mlp"] = model.mlp;
  config["bias"] = model.has_bias;
  config["position_embedding_type"] = model.position_embedding_type;
  config["rope_theta"] = model.rope_theta;
  return config;
}

/// Rotary positions are said twice: transformers 4 reads `rope_theta`, 5 `rope_parameters`.
OrderedJson llama_config(const plans::ModelSpec& model) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", model.vocab_size},
          {"hidden_size", model.channels},
          {"intermediate_size", plans::mlp_width(model)},
          {"num_hidden_layers", model.layers},
          {"num_attention_heads", model.heads},
          {"num_key_value_heads", model.heads},
          {"head_dim", model.channels / model.heads},
          {"hidden_act", "silu"},
          {"max_position_embeddings", model.positions},
          {"rms_norm_eps", model.norm_epsilon},
          {"initializer_range", model.init_std},
          {"attention_bias", model.has_bias},
          {"attention_dropout", 0.0},
          {"mlp_bias", model.has_bias},
          {"rope_theta", model.rope_theta},
          {"rope_scaling", nullptr},
          {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", model.rope_theta}}},
          {"tie_word_embeddings", model.tied_head},
          {"torch_dtype", "float32"}};
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
  const bool scales = is_set(json, "scale_attn_by_inverse_layer_idx") ||
                      is_set(json, "add_cross_attention") ||
                      json.value("scale_attn_weights", nlohmann::json(true)) != true;
  if (activation != "gelu_new" || scales) {
    return unsupported(path, absl::StrCat("activation ", activation, ", or scaled attention"));
  }
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "n_positions", model.positions));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "n_embd", model.channels));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "n_layer", model.layers));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "n_head", model.heads));
  SKEIN_RETURN_IF_ERROR(take_optional(json, path, "n_inner", model.intermediate_size));
  return take_field(json, path, "layer_norm_epsilon", model.norm_epsilon);
}

absl::Status read_own(const nlohmann::json& json, const std::string& path,
                      plans::ModelSpec& model) {
  SKEIN_RETURN_IF_ERROR(read_gpt2(json, path, model));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "norm", model.norm));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "mlp", model.mlp));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "bias", model.has_bias));
  SKEIN_RETURN_IF_ERROR(
      take_field(json, path, "position_embedding_type", model.position_embedding_type));
  return take_field(json, path, "rope_theta", model.rope_theta);
}

/// Where transformers 5 describes rotary positions; the config itself if it does not.
const nlohmann::json& rope_of(const nlohmann::json& json) {
  const auto found = json.find("rope_parameters");
  return found != json.end() && found->is_object() ? *found : json;
}

absl::Status take_rope_theta(const nlohmann::json& json, const std::string& path,
                             plans::ModelSpec& model) {
  double outer = model.rope_theta;
  SKEIN_RETURN_IF_ERROR(take_optional(json, path, "rope_theta", outer));
  model.rope_theta = outer;
  SKEIN_RETURN_IF_ERROR(take_optional(rope_of(json), path, "rope_theta", model.rope_theta));
  if (!has_value(json, "rope_theta") || outer == model.rope_theta) return absl::OkStatus();
  return unsupported(path, absl::StrCat("rope_theta ", outer, " and ", model.rope_theta));
}

/// What of Llama's family is not ours: fewer key heads, heads of another size, scaled positions.
absl::Status check_llama(const nlohmann::json& json, const std::string& path,
                         const plans::ModelSpec& model) {
  auto differs = [&json](const char* key, const nlohmann::json& expected) {
    return json.contains(key) && !json[key].is_null() && json[key] != expected;
  };
  const bool has_heads = model.heads >= 1 && model.channels % model.heads == 0;
  if (differs("num_key_value_heads", model.heads)) {
    return unsupported(path, "fewer heads of keys and values than of queries");
  }
  if (has_heads && differs("head_dim", model.channels / model.heads)) {
    return unsupported(path, "heads whose size is not hidden_size / num_attention_heads");
  }
  if (differs("hidden_act", "silu")) return unsupported(path, "hidden_act is not silu");
  const nlohmann::json& rope = rope_of(json);
  const bool is_scaled = has_value(json, "rope_scaling") ||
                         (has_value(rope, "rope_type") && rope["rope_type"] != "default") ||
                         (has_value(rope, "type") && rope["type"] != "default");
  if (is_scaled) return unsupported(path, "scaled rotary positions");
  if (is_set(json, "attention_bias") != is_set(json, "mlp_bias")) {
    return unsupported(path, "biases in one of attention and MLP only");
  }
  return absl::OkStatus();
}

absl::Status read_llama(const nlohmann::json& json, const std::string& path,
                        plans::ModelSpec& model) {
  model.name = "llama";
  plans::apply_family(model);
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "max_position_embeddings", model.positions));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "hidden_size", model.channels));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "num_hidden_layers", model.layers));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "num_attention_heads", model.heads));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "intermediate_size", model.intermediate_size));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "rms_norm_eps", model.norm_epsilon));
  SKEIN_RETURN_IF_ERROR(take_rope_theta(json, path, model));
  model.has_bias = is_set(json, "attention_bias");
  return check_llama(json, path, model);
}

}  // namespace

OrderedJson to_config(const plans::ModelSpec& model) {
  if (plans::has_llama_names(model)) return llama_config(model);
  return is_plain_gpt2(model) ? gpt2_config(model) : own_config(model);
}

absl::StatusOr<plans::ModelSpec> from_config(const nlohmann::json& json, const std::string& path) {
  plans::ModelSpec model;
  std::string type;
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "model_type", type));
  if (type == "gpt2") {
    SKEIN_RETURN_IF_ERROR(read_gpt2(json, path, model));
  } else if (type == "llama") {
    SKEIN_RETURN_IF_ERROR(read_llama(json, path, model));
  } else if (type == kOwnType) {
    SKEIN_RETURN_IF_ERROR(read_own(json, path, model));
  } else {
    return unsupported(path, absl::StrCat("model_type ", type));
  }
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "vocab_size", model.vocab_size));
  // Each family's own default is left out of its files.
  model.tied_head = type != "llama";
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
  if (std::error_code error; !std::filesystem::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat(path, " is not there"));
  }
  SKEIN_ASSIGN_OR_RETURN(const nlohmann::json json, read_json(path));
  return from_config(json, path);
}

}  // namespace skein::gpu
