#include "actors/coordinator/checkpoint_io.hpp"

#include <chrono>
#include <string>
#include <utility>

#include "actors/end_process.hpp"
#include "gpu/checkpoint/checkpoint_reader.hpp"
#include "gpu/checkpoint/checkpoint_writer.hpp"
#include "gpu/checkpoint/emergency_shards.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/coordinator/left_state.hpp"

namespace skein::actors {
namespace {

/// Between two looks at what workers leave: they are still writing it, or no checkpoint can be made
/// of it.
constexpr std::chrono::milliseconds kWritingRetry(200);
constexpr std::chrono::milliseconds kSavingRetry(500);

/// The run's next life may have trained the same step otherwise: its checkpoint is the one.
absl::StatusOr<std::string> complete(const CheckpointIoState& state,
                                     const CheckpointRequest& request) {
  SKEIN_RETURN_IF_ERROR(state.check_later_life());
  return gpu::complete_checkpoint(state.place.folder, request.generation, state.job.model,
                                  request.state, request.files, state.job.checkpoint.keep_latest_k);
}

/// A checkpoint of what workers have left.
absl::StatusOr<gpu::AdoptedState> adopt(const CheckpointIoState& state,
                                        const LeftStateRequest& request) {
  const auto find_loss = [&](uint64_t steps_done, uint64_t generation) {
    return plans::loss_of_sought(request.sought, {steps_done, generation});
  };
  return gpu::adopt_emergency_shards(state.place.folder, state.job, find_loss,
                                     {state.place.run, request.positions, request.from_digest});
}

}  // namespace

CheckpointIo::behavior_type checkpoint_io(CheckpointIo::stateful_pointer<CheckpointIoState> self,
                                          plans::JobSpec job, RunPlace place,
                                          std::function<absl::Status()> check_later_life) {
  end_process_on_failure(*self);
  self->state.job = std::move(job);
  self->state.place = std::move(place);
  self->state.check_later_life = std::move(check_later_life);
  return {
      [self](const CheckpointRequest& request, const CheckpointListener& listener) {
        absl::StatusOr<std::string> path = complete(self->state, request);
        CheckpointCompleted done{request.state.steps_done, path.value_or(""), 0, path.status()};
        for (const gpu::SavedFile& file : request.files) done.bytes += file.bytes;
        self->send(listener, std::move(done));
      },
      [self](const plans::DeletePartials& order) {
        if (!self->state.check_later_life().ok()) return;  // They may be the later life's.
        gpu::delete_partial_checkpoints(self->state.place.folder, self->state.place.run,
                                        order.generation, order.steps_done, order.under_way);
      },
      [self](const StartRequest& request, const CheckpointListener& listener) {
        auto start = verify_start(self->state.job, request.load_path, request.run,
                                  request.steps_max, request.data);
        StartFound found{start.status(), {}};
        if (start.ok()) found.start = *std::move(start);
        self->send(listener, std::move(found));
      },
      [self](const LeftStateRequest& request, const CheckpointListener& listener) {
        const RunPlace& place = self->state.place;
        // Workers that have given the run up may be writing what they hold: steps are not taken
        // back under their hands.
        if (gpu::is_state_being_left(place.folder, place.run)) {
          const absl::Status why = absl::UnavailableError(
              "a worker is still writing it, or waits for its device to end its work");
          self->send(listener, LeftStateFound{why, {}, true});
          self->delayed_send(CheckpointIo(self), kWritingRetry, request, listener);
          return;
        }
        auto adopted = adopt(self->state, request);
        // The disk is full, or somebody may not write there or read what is there: whoever sees to
        // it can put that right.
        if (!adopted.ok()) {
          self->send(listener, LeftStateFound{adopted.status(), {}, true});
          // Else it is for the later life to make one, and ours ends.
          if (!self->state.check_later_life().ok()) return;
          self->delayed_send(CheckpointIo(self), kSavingRetry, request, listener);
          return;
        }
        self->send(listener, LeftStateFound{absl::OkStatus(), *std::move(adopted)});
      },
  };
}

}  // namespace skein::actors
