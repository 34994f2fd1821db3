#include "cli/config/model_claims.hpp"

#include <algorithm>
#include <array>

#include "gpu/checkpoint/model_config.hpp"
#include "plans/job/spelled_out.hpp"

namespace skein::cli {
namespace {

/// Keys that the files of older runs do not have; their models are as the defaults say.
constexpr std::array kLaterKeys = {"model.num_key_value_heads",
                                   "model.head_dim",
                                   "model.qkv_bias",
                                   "model.rope_type",
                                   "model.rope_factor",
                                   "model.rope_low_freq_factor",
                                   "model.rope_high_freq_factor",
                                   "model.rope_original_max_position_embeddings"};

}  // namespace

bool describes_model(const std::string& name) {
  return name.starts_with("model.") && name != "model.from" && name != "model.flavor" &&
         name != "model.initializer_range";
}

bool gives_whole_model(const std::set<std::string>& names) {
  return std::all_of(job_keys().begin(), job_keys().end(), [&](const JobKey& key) {
    const std::string name = key.full_name();
    const bool is_later = std::find(kLaterKeys.begin(), kLaterKeys.end(), name) != kLaterKeys.end();
    return !describes_model(name) || is_later || names.contains(name);
  });
}

ModelClaim compare_claim(const JobKey& key, plans::JobSpec given, plans::JobSpec folder) {
  // Where all products have biases, the folder says nothing of these.
  const bool denies_bias = key.full_name() == "model.qkv_bias" && !given.model.has_qkv_bias &&
                           plans::qkv_has_bias(folder.model);
  if (denies_bias) return ModelClaim::kOther;
  if (key.get(given) == key.get(folder)) return ModelClaim::kSame;
  // A name stands for choices, and those of a mixture are of no family.
  const bool is_of_mixture = key.full_name() == "model.name" && gpu::is_mixture(folder.model);
  if (is_of_mixture) return ModelClaim::kSameInOtherWords;
  // What may be left out follows from these two.
  const bool has_widths =
      given.model.heads == folder.model.heads && given.model.channels == folder.model.channels;
  if (!has_widths) return ModelClaim::kOther;
  given.model = plans::spelled_out(given.model);
  folder.model = plans::spelled_out(folder.model);
  return key.get(given) == key.get(folder) ? ModelClaim::kSameInOtherWords : ModelClaim::kOther;
}

}  // namespace skein::cli
