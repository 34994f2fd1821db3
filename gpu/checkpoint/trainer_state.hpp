#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "plans/job/job_spec.hpp"

namespace skein::gpu {

/// What a checkpoint says beside tensors (trainer_state.json).
struct TrainerState {
  std::string run;            // Id of the run that wrote it; empty: an older release has, or none.
  uint64_t steps_done = 0;    // Committed steps; the next one is step number `steps_done`.
  uint64_t samples_done = 0;  // Position in the data order.
  int64_t seq_len = 0;        // Tokens of a training sample.
  // Positions that the weights with which the run began had learned; 0: it began with fresh ones.
  int64_t positions = 0;
  // Digest of the weights with which the run began (`import_weights`); empty: they were fresh.
  std::string from_digest;
  uint64_t seed = 0;
  uint64_t data_bytes = 0;
  uint64_t data_digest = 0;           // `TokenData::digest`
  bool has_digest_of_tokens = false;  // It is `digest_of_tokens`: an older release has written it.
  double loss = 0;                    // The last step's; 0: unknown.
  std::string plan;                   // Text form of the plan that wrote it; empty: several have.
  bool operator==(const TrainerState&) const = default;
};

/// What the job says of the state after so many steps; the rest is the caller's to fill in.
TrainerState trainer_state_after(const plans::JobSpec& job, uint64_t steps_done);

/// False: another run than `run` has written it. True if either is not known.
bool may_be_of_run(const TrainerState& state, const std::string& run);

/// Positions that the weights have learned, in this run or before; 0: none.
int64_t learned_positions(const TrainerState& state);

nlohmann::ordered_json to_json(const TrainerState& state);
/// DataLoss names the file and the field.
absl::StatusOr<TrainerState> read_trainer_state(const std::string& folder);

}  // namespace skein::gpu
