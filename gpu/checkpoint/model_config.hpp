#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "plans/job/model_spec.hpp"

namespace skein::gpu {

/// config.json of a model: Hugging Face's of GPT-2, Llama or Qwen2. What is neither has GPT-2's
/// fields, the choices by our own names, and a `model_type` that transformers refuses instead of
/// computing something else.
nlohmann::ordered_json to_config(const plans::ModelSpec& model);
/// Whether a model is neither, so that its file is in our own form.
bool is_mixture(const plans::ModelSpec& model);

/// InvalidArgument if the file `path` describes a model that is none of ours, DataLoss if a field
/// is missing or has an impossible value.
absl::StatusOr<plans::ModelSpec> from_config(const nlohmann::json& json, const std::string& path);

/// The model that config.json of a folder describes. NotFound: there is no such file. Else as
/// `from_config`.
absl::StatusOr<plans::ModelSpec> read_model_config(const std::string& folder);

}  // namespace skein::gpu
