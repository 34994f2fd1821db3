#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/worker/layer_state.hpp"
#include "plans/base/ids.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/worker/last_save.hpp"

namespace skein::actors {

/// What a worker holds when its coordinator is gone for good, to be written beside the checkpoints
/// of its run: the next life of the coordinator goes on from there if nothing newer is left.
struct EmergencyRequest {
  std::string run_folder;
  std::string run;  // The id of the run.
  plans::WorkerId worker;
  plans::JobSpec job;
  uint64_t data_bytes = 0;
  uint64_t data_digest = 0;
  std::vector<HeldState> held;
};

/// State that a device still has, of a worker whose coordinator is gone for good.
struct EmergencyComing {
  std::string run_folder;
  std::string run;
  plans::WorkerId worker;
  uint64_t steps_done = 0;
  uint64_t generation = 0;
};

using EmergencySaved = plans::EmergencySaved;

/// Writes each state that is newer than the newest checkpoint that is whole, the newest one first;
/// see `gpu/checkpoint/emergency_shards.hpp` for the files. Damaged copies are left out. What an
/// earlier request has written of the same states is added to, or stays as it is.
/// Unavailable if the run folder is not seen from here, or is another run's. Else as
/// `gpu::write_shard`.
EmergencySaved save_in_emergency(const EmergencyRequest& request);

/// Says beside the checkpoints that the state follows, if the run folder is seen from here.
void announce_in_emergency(const EmergencyComing& coming);

}  // namespace skein::actors
