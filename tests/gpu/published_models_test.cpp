// What published models say of themselves in config.json is read, is what the flavor of that name
// has, and has as many parameters as was published. SmolLM's are read, not remembered: from the
// config.json of HuggingFaceTB/SmolLM-135M-Instruct and SmolLM-360M. SmolLM2 has another theta.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "gpu/checkpoint/model_config.hpp"
#include "plans/job/model_spec.hpp"

namespace skein::gpu {
namespace {

struct Published {
  const char* flavor;
  int64_t parameters;
  const char* config;
};

const std::vector<Published>& published_models() {
  static const std::vector<Published> kModels = {
      {"tinyllama-1.1b", 1'100'048'384, R"({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "bos_token_id": 1,
        "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
        "intermediate_size": 5632, "max_position_embeddings": 2048, "model_type": "llama",
        "num_attention_heads": 32, "num_hidden_layers": 22, "num_key_value_heads": 4,
        "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true,
        "vocab_size": 32000})"},
      {"smollm-135m", 134'515'008, R"({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "hidden_act": "silu", "hidden_size": 576, "intermediate_size": 1536,
        "max_position_embeddings": 2048, "mlp_bias": false, "model_type": "llama",
        "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
        "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
        "tie_word_embeddings": true, "torch_dtype": "bfloat16", "vocab_size": 49152})"},
      {"smollm-360m", 361'821'120, R"({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "hidden_act": "silu", "hidden_size": 960, "intermediate_size": 2560,
        "max_position_embeddings": 2048, "mlp_bias": false, "model_type": "llama",
        "num_attention_heads": 15, "num_hidden_layers": 32, "num_key_value_heads": 5,
        "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
        "tie_word_embeddings": true, "torch_dtype": "bfloat16", "vocab_size": 49152})"},
      {"llama-3.2-1b", 1'235'814'400, R"({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu",
        "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
        "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
        "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
        "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                         "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "use_cache": true, "vocab_size": 128256})"},
      {"qwen2.5-0.5b", 494'032'768, R"({
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
        "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896,
        "initializer_range": 0.02, "intermediate_size": 4864, "max_position_embeddings": 32768,
        "max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14,
        "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true,
        "torch_dtype": "bfloat16", "use_cache": true, "use_mrope": false,
        "use_sliding_window": false, "vocab_size": 151936})"},
      {"gpt2", 124'439'808, R"({
        "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256,
        "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2",
        "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
        "resid_pdrop": 0.1, "vocab_size": 50257})"},
  };
  return kModels;
}

TEST(PublishedModels, AreReadAndAreTheFlavorsOfTheirNames) {
  for (const Published& each : published_models()) {
    const auto read = from_config(nlohmann::json::parse(each.config), "config.json");
    ASSERT_TRUE(read.ok()) << each.flavor << ": " << read.status();
    EXPECT_EQ(plans::parameter_count(*read), each.parameters) << each.flavor;
    plans::ModelSpec flavor;
    flavor.flavor = each.flavor;
    ASSERT_TRUE(plans::apply_flavor(flavor).ok());
    flavor.flavor = "";
    EXPECT_EQ(*read, flavor) << each.flavor;
  }
}

TEST(PublishedModels, SayAboutThemselvesWhatTheySaid) {
  for (const Published& each : published_models()) {
    const nlohmann::json said = nlohmann::json::parse(each.config);
    const nlohmann::json says = to_config(*from_config(said, "config.json"));
    for (const char* key : {"architectures",
                            "model_type",
                            "vocab_size",
                            "hidden_size",
                            "intermediate_size",
                            "num_hidden_layers",
                            "num_attention_heads",
                            "num_key_value_heads",
                            "head_dim",
                            "hidden_act",
                            "max_position_embeddings",
                            "rms_norm_eps",
                            "rope_theta",
                            "rope_scaling",
                            "tie_word_embeddings",
                            "use_sliding_window",
                            "n_embd",
                            "n_head",
                            "n_layer",
                            "n_positions",
                            "layer_norm_epsilon",
                            "activation_function"}) {
      if (!said.contains(key)) continue;
      EXPECT_EQ(says[key], said[key]) << each.flavor << " " << key;
    }
  }
}

TEST(PublishedModels, AWindowThatSlidesIsRefusedByItsName) {
  for (const Published& each : published_models()) {
    nlohmann::json config = nlohmann::json::parse(each.config);
    if (config["model_type"] != "qwen2") continue;
    config["use_sliding_window"] = true;
    const absl::Status status = from_config(config, "config.json").status();
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("use_sliding_window"));
  }
}

}  // namespace
}  // namespace skein::gpu
