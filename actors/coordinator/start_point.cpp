#include "actors/coordinator/start_point.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/checkpoint/checkpoint.hpp"
#include "gpu/data/token_data.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::actors {

absl::StatusOr<StartPoint> find_start(const plans::JobSpec& job, const std::string& load_path) {
  StartPoint start;
  if (job.device.type != "sleep") {
    SKEIN_ASSIGN_OR_RETURN(auto data, gpu::TokenData::open({job.data, job.training.seq_len,
                                                            job.model.vocab_size, job.debug.seed}));
    start.data_bytes = data->bytes();
    start.data_digest = data->digest();
  }
  if (load_path.empty()) return start;
  SKEIN_ASSIGN_OR_RETURN(auto reader,
                         gpu::CheckpointReader::open(load_path, /*verify_digests=*/true));
  SKEIN_RETURN_IF_ERROR(reader->check_model(job.model));
  const gpu::TrainerState& state = reader->trainer_state();
  if (state.data_bytes != 0 && state.data_digest != start.data_digest) {
    return absl::InvalidArgumentError(absl::StrCat(
        "checkpoint ", reader->folder(), " was made with other training data (", state.data_bytes,
        " bytes then, ", start.data_bytes,
        " bytes now, or other contents); its position in the data would mean nothing"));
  }
  start.durable_step = state.steps_done;
  if (start.durable_step >= static_cast<uint64_t>(job.training.steps)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "checkpoint ", reader->folder(), " already has ", start.durable_step,
        " steps and training.steps is ", job.training.steps, "; raise training.steps to go on"));
  }
  return start;
}

absl::Status read_journal(Journal& journal, StartPoint& start) {
  SKEIN_ASSIGN_OR_RETURN(const std::vector<plans::CommitRecord> records, journal.read());
  start.committed_steps = start.durable_step;
  if (!records.empty()) {
    start.has_journal = true;
    start.committed_steps = std::max(start.durable_step, records.back().step + 1);
    start.committed_norm = records.back().gradient_norm;
  }
  uint64_t generation = 0;
  for (const plans::CommitRecord& record : records) {
    if (record.generation == generation) continue;
    generation = start.step_generations[record.step] = record.generation;
  }
  absl::StatusOr<plans::Plan> last = journal.last_plan();
  if (absl::IsNotFound(last.status())) return absl::OkStatus();
  SKEIN_RETURN_IF_ERROR(last.status());
  start.has_journal = true;
  start.generation = last->generation;
  start.last_plan = *std::move(last);
  return absl::OkStatus();
}

}  // namespace skein::actors
