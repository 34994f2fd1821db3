#include "actors/coordinator/checkpoint_io.hpp"

#include <chrono>
#include <utility>

#include "actors/end_process.hpp"
#include "gpu/checkpoint/emergency_shards.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/coordinator/commit_log.hpp"

namespace skein::actors {
namespace {

/// The run's next life may have trained the same step otherwise: its checkpoint is the one.
absl::StatusOr<std::string> complete(const CheckpointIoState& state,
                                     const CheckpointRequest& request) {
  SKEIN_RETURN_IF_ERROR(state.check_later_life());
  return gpu::complete_checkpoint(state.place.folder, request.generation, state.job.model,
                                  request.state, request.files, state.job.checkpoint.keep_latest_k);
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
        gpu::delete_partial_checkpoints(self->state.place.folder, order.generation,
                                        order.steps_done, order.under_way);
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
        const plans::SeekLeftState& sought = request.sought;
        const auto find_loss = [&](uint64_t steps, uint64_t generation) -> std::optional<double> {
          const bool is_of_run =
              plans::came_through(sought.generations, sought.steps_done, steps, generation);
          if (!is_of_run) return std::nullopt;
          return steps == sought.steps_done ? sought.loss : 0;
        };
        // Workers that have given the run up may be writing what they hold: steps are not taken
        // back under their hands.
        if (gpu::is_state_being_left(place.folder, place.run)) {
          constexpr std::chrono::milliseconds kPause(200);
          self->delayed_send(CheckpointIo(self), kPause, request, listener);
          return;
        }
        auto adopted = gpu::adopt_emergency_shards(place.folder, self->state.job, find_loss,
                                                   {place.run, request.positions});
        LeftStateFound found{adopted.status(), {}};
        if (adopted.ok()) found.adopted = *std::move(adopted);
        self->send(listener, std::move(found));
      },
  };
}

}  // namespace skein::actors
