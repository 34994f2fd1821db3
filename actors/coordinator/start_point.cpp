#include "actors/coordinator/start_point.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/checkpoint/checkpoint_reader.hpp"
#include "gpu/checkpoint/emergency_shards.hpp"
#include "gpu/data/token_data.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/coordinator/left_state.hpp"
#include "plans/plan/layout_plan.hpp"

namespace skein::actors {
namespace {

/// Null where devices only sleep.
absl::StatusOr<std::unique_ptr<gpu::TokenData>> open_data(const plans::JobSpec& job) {
  if (job.device.type == "sleep") return nullptr;
  return gpu::TokenData::open(
      {job.data, job.training.seq_len, job.model.vocab_size, job.debug.seed});
}

absl::StatusOr<TrainingData> read_data(const plans::JobSpec& job) {
  SKEIN_ASSIGN_OR_RETURN(const auto data, open_data(job));
  return data ? TrainingData{data->bytes(), data->digest()} : TrainingData();
}

/// Whether the job can go on from a checkpoint.
absl::Status check_use(const plans::JobSpec& job, const gpu::CheckpointReader& reader) {
  SKEIN_RETURN_IF_ERROR(reader.check_model(job.model));
  const uint64_t steps_done = reader.trainer_state().steps_done;
  if (steps_done < static_cast<uint64_t>(job.training.steps)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "checkpoint ", reader.folder(), " already has ", steps_done, " steps and training.steps is ",
      job.training.steps, "; raise training.steps to go on"));
}

absl::Status check_data(const plans::JobSpec& job, const TrainingData& data,
                        const gpu::CheckpointReader& reader) {
  const gpu::TrainerState& state = reader.trainer_state();
  if (state.data_bytes == 0) return absl::OkStatus();
  uint64_t digest = data.digest;
  if (state.has_digest_of_tokens) {
    SKEIN_ASSIGN_OR_RETURN(const auto opened, open_data(job));
    if (opened) digest = opened->digest_of_tokens();
  }
  if (state.data_digest == digest) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("checkpoint ", reader.folder(), " was made with other training data (",
                   state.data_bytes, " bytes then, ", data.bytes,
                   " bytes now, or other contents); its position in the data would mean nothing"));
}

/// What a run's `TrainerState` says of the weights with which it began.
struct BegunWith {
  int64_t positions = 0;
  std::string from_digest;
};

/// Those of a run that goes on from what is in `load_path`: checkpoints of `run`, its own, or those
/// of another run, with which it begins.
BegunWith begun_with(const plans::JobSpec& job, const std::string& load_path,
                     const std::string& run, bool are_own) {
  if (load_path.empty()) return {};
  const auto found = gpu::own_checkpoints(load_path, run);
  if (!found.ok()) return {};
  for (const std::string& folder : found->folders) {
    const auto state = gpu::read_trainer_state(folder);
    if (!state.ok()) continue;  // Another one says the same.
    if (!are_own) return {gpu::learned_positions(*state), state->from_digest};
    if (state->positions > 0) return {state->positions, state->from_digest};
  }
  // An older release has not written it.
  return {are_own && !job.model_from.empty() ? job.model.positions : 0, ""};
}

/// By the first step that each covers.
std::map<uint64_t, uint64_t> generations_of(const std::vector<plans::CommitRecord>& records) {
  std::map<uint64_t, uint64_t> generations;
  uint64_t generation = 0;
  for (const plans::CommitRecord& record : records) {
    if (record.generation == generation) continue;
    generation = generations[record.step] = record.generation;
  }
  return generations;
}

/// What the journal says of the run so far.
struct Past {
  plans::JournaledSteps steps;
  std::optional<plans::Plan> last_plan;
  std::map<plans::WorkerId, uint64_t> earlier_workers;
};
/// Plans whose workers may hold state that others have lost: one follows the other quickly where
/// much happens.
constexpr size_t kPlansMax = 8;

absl::StatusOr<Past> read_past(Journal& journal) {
  Past past;
  SKEIN_ASSIGN_OR_RETURN(past.steps.records, journal.read());
  past.steps.generations = generations_of(past.steps.records);
  SKEIN_ASSIGN_OR_RETURN(std::vector<plans::Plan> plans, journal.last_plans(kPlansMax));
  if (plans.empty()) return past;
  for (const plans::Plan& plan : plans) {  // The newest one first.
    for (const plans::WorkerId worker : plans::plan_workers(plan)) {
      past.earlier_workers[worker] = plan.generation;
    }
  }
  past.steps.newest_plan = plans.front().generation;
  past.last_plan = std::move(plans.front());
  return past;
}

absl::StatusOr<gpu::AdoptedState> adopt_emergency(const plans::JobSpec& job,
                                                  const std::string& run_folder, const Past& past,
                                                  const gpu::AdoptingRun& run) {
  const auto steps = static_cast<uint64_t>(job.training.steps);
  const auto find_loss = [&](uint64_t steps_done, uint64_t generation) {
    return plans::loss_of_resumed(past.steps, steps, {steps_done, generation});
  };
  return gpu::adopt_emergency_shards(run_folder, job, find_loss, run);
}

/// The run goes on behind its last commit and its last plan.
void follow(Past past, StartPoint& start) {
  const uint64_t journaled = past.steps.committed();
  start.committed_steps = std::max(start.durable_step, journaled);
  if (!past.steps.records.empty()) {
    start.has_journal = true;
    if (journaled == start.committed_steps) {
      start.committed_norm = past.steps.records.back().gradient_norm;
      start.committed_loss = past.steps.records.back().loss;
    }
  }
  start.step_generations = std::move(past.steps.generations);
  if (start.durable_step > journaled) {
    // Steps of an earlier plan that never were committed in it are not those of the checkpoint.
    start.step_generations[journaled] = start.durable_generation;
  }
  if (!past.last_plan) return;
  start.has_journal = true;
  start.generation = past.last_plan->generation;
  start.last_plan = *std::move(past.last_plan);
  start.earlier_workers = std::move(past.earlier_workers);
}

/// Looks at the newest checkpoint's headers only, which takes no time: what is found is still to be
/// verified. Errors as `verify_start`.
absl::StatusOr<StartPoint> look_at_start(const plans::JobSpec& job, const std::string& load_path,
                                         const std::string& run) {
  StartPoint start;
  start.is_verified = false;
  if (load_path.empty()) return start;
  SKEIN_ASSIGN_OR_RETURN(gpu::OwnCheckpoints found, gpu::own_checkpoints(load_path, run));
  start.passed_over = std::move(found.passed_over);
  for (const std::string& folder : found.folders) {
    const auto reader = gpu::CheckpointReader::open(folder);
    if (!reader.ok()) continue;
    SKEIN_RETURN_IF_ERROR(check_use(job, **reader));
    start.checkpoint_path = folder;
    start.durable_step = (*reader)->trainer_state().steps_done;
    const auto plan = plans::parse_plan((*reader)->trainer_state().plan);
    start.durable_generation = plan.ok() ? plan->generation : 0;
    return start;
  }
  return start;  // None is whole; the workers may have the state.
}

}  // namespace

absl::StatusOr<VerifiedStart> verify_start(const plans::JobSpec& job, const std::string& load_path,
                                           const std::string& run, uint64_t steps_max,
                                           const std::optional<TrainingData>& data) {
  VerifiedStart start;
  if (data) {
    start.data = *data;
  } else {
    SKEIN_ASSIGN_OR_RETURN(start.data, read_data(job));
  }
  if (load_path.empty()) return start;
  SKEIN_ASSIGN_OR_RETURN(gpu::WholeCheckpoint found,
                         gpu::newest_whole_checkpoint(load_path, run, steps_max));
  start.faults = std::move(found.faults);
  if (found.reader) {
    SKEIN_RETURN_IF_ERROR(check_use(job, *found.reader));
    SKEIN_RETURN_IF_ERROR(check_data(job, start.data, *found.reader));
    start.checkpoint_path = found.reader->folder();
    start.durable_step = found.reader->trainer_state().steps_done;
    return start;
  }
  start.checkpoint = absl::DataLossError(absl::StrCat(
      "no checkpoint in ", load_path,
      " is whole: ", start.faults.empty() ? "it is not there any more" : start.faults.front()));
  return start;
}

absl::StatusOr<StartPoint> find_start(const plans::JobSpec& job, const std::string& load_path) {
  SKEIN_ASSIGN_OR_RETURN(const VerifiedStart verified,
                         verify_start(job, load_path, "", UINT64_MAX, std::nullopt));
  SKEIN_RETURN_IF_ERROR(verified.checkpoint);
  if (!verified.faults.empty()) {
    return absl::DataLossError(absl::StrCat(
        verified.faults.front(), "; the newest one that is whole is ", verified.checkpoint_path));
  }
  StartPoint start;
  start.data = verified.data;
  start.checkpoint_path = verified.checkpoint_path;
  start.durable_step = verified.durable_step;
  BegunWith begun = begun_with(job, load_path, "", /*are_own=*/false);
  start.positions = begun.positions;
  start.from_digest = std::move(begun.from_digest);
  return start;
}

absl::Status read_journal(Journal& journal, StartPoint& start) {
  SKEIN_ASSIGN_OR_RETURN(Past past, read_past(journal));
  follow(std::move(past), start);
  return absl::OkStatus();
}

absl::StatusOr<StartPoint> find_resumed(const plans::JobSpec& job, const RunPlace& place,
                                        Journal& journal, std::string& load_path) {
  SKEIN_ASSIGN_OR_RETURN(Past past, read_past(journal));
  bool are_own = load_path == place.folder;
  BegunWith begun = begun_with(job, load_path, are_own ? place.run : "", are_own);
  SKEIN_ASSIGN_OR_RETURN(
      gpu::AdoptedState adopted,
      adopt_emergency(job, place.folder, past, {place.run, begun.positions, begun.from_digest}));
  if (!adopted.path.empty()) {
    load_path = place.folder;
    are_own = true;
  }
  SKEIN_ASSIGN_OR_RETURN(StartPoint start, look_at_start(job, load_path, are_own ? place.run : ""));
  start.positions = begun.positions;
  start.from_digest = std::move(begun.from_digest);
  start.adopted = std::move(adopted);
  follow(std::move(past), start);
  // A journal that is new though the run is not was lost: terms only grow, and are larger.
  if (journal.generation_floor() == 0) SKEIN_RETURN_IF_ERROR(journal.raise_floor(journal.term()));
  start.generation = journal.generation_floor();
  return start;
}

}  // namespace skein::actors
