#include "cli/verbs/verify_verb.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/checkpoint/checkpoint_reader.hpp"
#include "gpu/checkpoint/text_files.hpp"
#include "gpu/checkpoint/weights_folder.hpp"
#include "gpu/files/check_there.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

namespace fs = std::filesystem;

std::string text_of(const plans::ModelSpec& model) {
  return absl::StrCat(plans::parameter_count(model), " parameters (", model.layers,
                      " blocks of width ", model.channels, ", vocabulary ", model.vocab_size, ")");
}

absl::Status describe_whole(const std::string& folder, std::ostream& out) {
  SKEIN_ASSIGN_OR_RETURN(const auto reader, gpu::CheckpointReader::open(folder));
  const plans::ModelSpec& model = reader->model();
  const gpu::TrainerState& state = reader->trainer_state();
  out << folder << ": all digests agree; " << text_of(model) << ", after " << state.steps_done
      << " steps and " << state.samples_done << " samples, loss " << state.loss;
  if (!state.from_digest.empty()) out << "; begun with weights of SHA-256 " << state.from_digest;
  out << std::endl;
  return absl::OkStatus();
}

/// Digests agree also where what was written is of no use.
std::vector<std::string> find_all_faults(const std::string& folder) {
  std::vector<std::string> faults = gpu::find_faults(folder);
  if (!faults.empty()) return faults;
  const absl::Status tokenizer = gpu::check_tokenizer(folder);
  if (!tokenizer.ok()) faults.emplace_back(tokenizer.message());
  return faults;
}

/// A run that is under way deletes older checkpoints.
bool is_deleted(const std::string& folder) {
  return absl::IsNotFound(gpu::check_there(absl::StrCat(folder, "/", gpu::kCompleteName)));
}

/// A folder as `skein export` and others make it, and no checkpoint that was cut short.
bool has_weights_only(const std::string& path) {
  std::error_code error;
  const auto has = [&](const char* name) { return fs::exists(fs::path(path) / name, error); };
  return has(gpu::kConfigName) && !has(gpu::kCompleteName) && !has(gpu::kStateName) &&
         !has(gpu::kOptimizerIndexName);
}

/// It has no digests.
absl::Status verify_weights(const std::string& path, std::ostream& out) {
  SKEIN_ASSIGN_OR_RETURN(const auto weights, gpu::WeightsFolder::open(path));
  SKEIN_RETURN_IF_ERROR(gpu::check_tokenizer(path));
  SKEIN_RETURN_IF_ERROR(weights->check_finite());
  out << path << ": no checkpoint, but a model's folder; all weights are there and finite; "
      << text_of(weights->model()) << std::endl;
  return absl::OkStatus();
}

}  // namespace

absl::Status verify_checkpoints(const std::string& path, std::ostream& out) {
  if (has_weights_only(path)) return verify_weights(path, out);
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> folders, gpu::complete_checkpoints(path));
  size_t fault_count = 0, looked_at = 0;
  for (const std::string& folder : folders) {
    const std::vector<std::string> faults = find_all_faults(folder);
    const absl::Status told = faults.empty() ? describe_whole(folder, out) : absl::OkStatus();
    const bool is_gone = (!faults.empty() || !told.ok()) && is_deleted(folder);
    if (is_gone) continue;
    SKEIN_RETURN_IF_ERROR(told);
    for (const std::string& fault : faults) out << fault << std::endl;
    fault_count += faults.size();
    ++looked_at;
  }
  if (looked_at == 0) {
    return absl::UnavailableError(
        absl::StrCat(path, ": its checkpoints were deleted meanwhile; verify it again"));
  }
  if (fault_count == 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(path, " is damaged: ", fault_count, fault_count == 1 ? " fault" : " faults"));
}

}  // namespace skein::cli
