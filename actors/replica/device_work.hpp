#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

#include "actors/messages.hpp"
#include "actors/replica/outgoing.hpp"
#include "gpu/device.hpp"
#include "plans/plan/plan_part.hpp"
#include "plans/worker/program_commands.hpp"

namespace skein::actors {

/// The work that a Replica has given to the device, which does it in order, and when each piece of
/// the program's ran. Owned by one actor; touched only from its handlers.
class DeviceWork {
 public:
  /// What a piece of work is. `kAverage` and above: `StageAverages::Work` of a stage.
  enum Token : uint64_t { kProgram = 0, kSave = 1, kSnapshot = 2, kLast = 3, kAverage = 16 };

  struct Options {
    plans::PlanPart plan;
    plans::WorkerId worker;
    /// Gives the device a piece of work; WorkDone with its token follows. What it makes leaves from
    /// the device's thread.
    std::function<void(uint64_t token, gpu::Work work, Outgoing output)> submit;
    std::function<uint64_t()> now_us;
    bool follows_list =
        true;  // False: actions are numbered as they come, and not by the plan's list.
  };
  explicit DeviceWork(Options options);

  /// Work of the program.
  void submit(const plans::ProgramCommand& command, gpu::Work work, Outgoing output = {});
  /// Work that is not the program's.
  void submit_aside(uint64_t token, gpu::Work work);

  /// A piece of work that the device has done, and when it did.
  struct Done {
    plans::ProgramCommand command;
    uint64_t start_us = 0;
    uint64_t end_us = 0;
    uint64_t wait_us = 0;  // Before it: the device was with other jobs.
  };
  /// The oldest piece of the program's work has ended. `begun_us`: as `WorkDone::begun`.
  Done end(uint64_t end_us, std::optional<uint64_t> begun_us);
  /// A piece that is not the program's has; returns what it has taken.
  uint64_t end_aside(uint64_t end_us, std::optional<uint64_t> begun_us);

 private:
  int32_t index_of(const plans::ProgramCommand& command);
  plans::WorkPiece piece_of(const plans::ProgramCommand& command, int32_t index) const;
  plans::DevicePieceNeed need_of(const plans::ProgramCommand& command, int32_t index) const;

  /// A piece of the program's work that the device has.
  struct Running {
    plans::ProgramCommand command;
    uint64_t submitted_us = 0;
  };

  const Options options_;
  std::deque<Running> running_;  // In the order of submission, which is that of the device.
  int32_t numbered_ = 0;         // Actions since the step began, where no list is followed.
  uint64_t device_free_us_ = 0;  // When the newest piece of work ended; never goes back.
  /// A piece has failed: what was submitted behind it is not run. Belongs to the device's thread.
  const std::shared_ptr<bool> is_broken_ = std::make_shared<bool>(false);
};

}  // namespace skein::actors
