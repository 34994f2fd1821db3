#include "cli/verbs/verify_verb.hpp"

#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/checkpoint/checkpoint.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

absl::Status describe_whole(const std::string& folder, std::ostream& out) {
  SKEIN_ASSIGN_OR_RETURN(const auto reader, gpu::CheckpointReader::open(folder));
  const plans::ModelSpec& model = reader->model();
  const gpu::TrainerState& state = reader->trainer_state();
  out << folder << ": all digests agree; " << plans::parameter_count(model) << " parameters ("
      << model.layers << " blocks of width " << model.channels << ", vocabulary "
      << model.vocab_size << "), after " << state.steps_done << " steps and " << state.samples_done
      << " samples, loss " << state.loss << std::endl;
  return absl::OkStatus();
}

}  // namespace

absl::Status verify_checkpoints(const std::string& path, std::ostream& out) {
  SKEIN_ASSIGN_OR_RETURN(const std::vector<std::string> folders, gpu::complete_checkpoints(path));
  size_t fault_count = 0;
  for (const std::string& folder : folders) {
    const std::vector<std::string> faults = gpu::find_faults(folder);
    for (const std::string& fault : faults) out << fault << std::endl;
    fault_count += faults.size();
    if (faults.empty()) {
      SKEIN_RETURN_IF_ERROR(describe_whole(folder, out));
    }
  }
  if (fault_count == 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(path, " is damaged: ", fault_count, fault_count == 1 ? " fault" : " faults"));
}

}  // namespace skein::cli
