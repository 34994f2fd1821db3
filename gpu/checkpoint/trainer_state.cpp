#include "gpu/checkpoint/trainer_state.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gpu/checkpoint/checkpoint_listing.hpp"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/files/json_file.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

constexpr const char* kDigest = "data_windows_digest";
constexpr const char* kTokensDigest = "data_digest";

}  // namespace

TrainerState trainer_state_after(const plans::JobSpec& job, uint64_t steps_done) {
  TrainerState state;
  state.steps_done = steps_done;
  state.samples_done = steps_done * static_cast<uint64_t>(job.training.global_batch_size);
  state.seq_len = job.training.seq_len;
  state.seed = job.debug.seed;
  return state;
}

bool may_be_of_run(const TrainerState& state, const std::string& run) {
  return state.run.empty() || run.empty() || state.run == run;
}

int64_t learned_positions(const TrainerState& state) {
  return state.steps_done == 0 ? state.positions : std::max(state.positions, state.seq_len);
}

nlohmann::ordered_json to_json(const TrainerState& state) {
  return {{"run", state.run},
          {"steps_done", state.steps_done},
          {"samples_done", state.samples_done},
          {"seq_len", state.seq_len},
          {"positions", state.positions},
          {"from_digest", state.from_digest},
          {"seed", state.seed},
          {"data_bytes", state.data_bytes},
          {state.has_digest_of_tokens ? kTokensDigest : kDigest, state.data_digest},
          {"loss", state.loss},
          {"plan", state.plan}};
}

absl::StatusOr<TrainerState> read_trainer_state(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kStateName);
  SKEIN_ASSIGN_OR_RETURN(const nlohmann::json json, read_json(path));
  TrainerState state;
  // An older release has not written it.
  SKEIN_RETURN_IF_ERROR(take_optional(json, path, "run", state.run));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "steps_done", state.steps_done));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "samples_done", state.samples_done));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "seq_len", state.seq_len));
  // An older release has not written it.
  SKEIN_RETURN_IF_ERROR(take_optional(json, path, "positions", state.positions));
  SKEIN_RETURN_IF_ERROR(take_optional(json, path, "from_digest", state.from_digest));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "seed", state.seed));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "data_bytes", state.data_bytes));
  state.has_digest_of_tokens = json.contains(kTokensDigest);
  SKEIN_RETURN_IF_ERROR(take_field(json, path, state.has_digest_of_tokens ? kTokensDigest : kDigest,
                                   state.data_digest));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "loss", state.loss));
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "plan", state.plan));
  return state;
}

}  // namespace skein::gpu
