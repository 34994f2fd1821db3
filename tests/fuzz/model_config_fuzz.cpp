// A folder of others' weights: its config.json, whatever it says, is refused, or describes a model
// that reads back the same; the tokens that end a text, there or in generation_config.json, are
// tokens.
#include <string>
#include <string_view>

#include "gpu/checkpoint/generation_config.hpp"
#include "gpu/checkpoint/model_config.hpp"
#include "gpu/files/json_file.hpp"
#include "plans/job/spelled_out.hpp"
#include "tests/fuzz/target.hpp"

namespace skein::fuzz {
namespace {

/// What a job may say of a model beside what its weights mean.
plans::ModelSpec without_names(const plans::ModelSpec& model) {
  plans::ModelSpec plain = plans::spelled_out(model);
  plain.name = plain.flavor = "";
  plain.init_std = 0;
  return plain;
}

void check_end_tokens(const nlohmann::json& json) {
  const auto tokens = gpu::parse_end_tokens(gpu::field_or_null(json, "eos_token_id"), "fuzzed");
  if (!tokens.ok()) return;
  for (const int32_t token : *tokens) {
    if (token < 0) __builtin_trap();
  }
}

}  // namespace

void run_one(const uint8_t* data, size_t bytes) {
  const std::string_view text(reinterpret_cast<const char*>(data), bytes);
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return;
  check_end_tokens(json);
  const auto model = gpu::from_config(json, "fuzzed");
  if (!model.ok()) return;
  const auto again = gpu::from_config(nlohmann::json(gpu::to_config(*model)), "again");
  if (!again.ok() || without_names(*again) != without_names(*model)) __builtin_trap();
}

size_t short_run() { return 100'000; }

std::vector<std::vector<uint8_t>> seeds() {
  std::vector<std::vector<uint8_t>> all;
  for (const std::string text :
       {R"({"model_type":"gpt2","vocab_size":9,"n_positions":8,"n_embd":4,"n_layer":2,"n_head":2,)"
        R"("n_inner":8,"activation_function":"gelu_new","layer_norm_epsilon":1e-5,)"
        R"("eos_token_id":8})",
        R"({"model_type":"llama","vocab_size":9,"max_position_embeddings":8,"hidden_size":8,)"
        R"("num_hidden_layers":1,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":4,)"
        R"("intermediate_size":6,"rms_norm_eps":1e-5,"rope_theta":500.0,"rope_scaling":)"
        R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
        R"("original_max_position_embeddings":4},"attention_bias":true,"mlp_bias":true,)"
        R"("layer_types":["full_attention"],"eos_token_id":[8,7]})",
        R"({"model_type":"qwen2","vocab_size":9,"max_position_embeddings":8,"hidden_size":8,)"
        R"("num_hidden_layers":1,"num_attention_heads":2,"intermediate_size":6,)"
        R"("rms_norm_eps":1e-6,"rope_parameters":{"rope_type":"linear","factor":2.0,)"
        R"("rope_theta":1e6},"tie_word_embeddings":true,"use_sliding_window":false})",
        R"({"model_type":"skein","vocab_size":9,"n_positions":8,"n_embd":8,"n_layer":1,)"
        R"("n_head":2,"activation_function":"gelu_new","layer_norm_epsilon":1e-5,)"
        R"("norm":"rms_norm","mlp":"gelu","bias":false,"qkv_bias":true,)"
        R"("position_embedding_type":"rotary","num_key_value_heads":1,"rope_theta":100.0})"}) {
    all.emplace_back(text.begin(), text.end());
  }
  return all;
}

}  // namespace skein::fuzz
