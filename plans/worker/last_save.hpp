#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace skein::plans {

/// What has come of what a worker was to write beside the checkpoints of its run.
struct EmergencySaved {
  std::vector<std::string> folders;  // With the states that were written, the newest one first.
  absl::Status status;               // Why there are no more, if that is a fault.
  bool may_go_later = false;  // Nothing was written; the fault may pass, as a full disk does.
};

/// What is written when, by a worker whose coordinator is gone for good, and when the worker ends.
/// While its device is at its last work nobody can read its models. Copies in the host's memory are
/// whole: they are written if that takes long, and the models as well once it has ended. A state
/// machine without clock or I/O; times are microseconds of one steady clock.
class LastSave {
 public:
  struct Options {
    absl::Status why;             // The coordinator is given up; not OK.
    double patience_seconds = 0;  // Longer than that a device and a disk are not waited for.
    bool leaves = false;          // The worker is told to leave.
    uint64_t steps_done = 0;      // Committed ones.
    bool is_device_at_work = false;
    /// The device has been waited for as long as a coordinator is, and is not again.
    bool is_device_late = false;
  };
  /// What the worker holds of committed steps.
  struct Held {
    bool has_copies = false;        // In the host's memory.
    bool has_models = false;        // On the device.
    bool is_newest_copied = false;  // The copies include the state after the last committed step.
  };
  enum class Part { kCopies, kAll };
  struct End {
    absl::Status status;      // With what is where, and what is lost.
    bool is_at_work = false;  // The device or the disk is.
  };
  /// What the worker does, in this order.
  struct Decision {
    bool announces = false;     // Says beside the checkpoints that state follows.
    std::optional<Part> saves;  // Has so much of what it holds written; `on_saved` follows.
    std::optional<End> ends;
  };

  LastSave(Options options, uint64_t now_us);

  /// Comes once, before all others.
  Decision begin(const Held& held, uint64_t now_us);
  /// At each heartbeat.
  Decision on_tick(const Held& held, uint64_t now_us);
  /// What the device had is among what is held.
  Decision on_device_ended(const Held& held, uint64_t now_us);
  /// One that was not asked for, or that comes when the worker has ended, changes nothing.
  Decision on_saved(const EmergencySaved& saved, const Held& held, uint64_t now_us);

 private:
  /// As much of it as can be read is written, one request at a time.
  Decision go_on(const Held& held, uint64_t now_us);
  bool must_announce(const Held& held) const;
  End end(uint64_t now_us);

  const Options options_;
  uint64_t ends_at_us_ = 0;       // Whether or not all is written.
  uint64_t copies_go_at_us_ = 0;  // Until then they wait for the device.
  bool is_device_at_work_ = false;
  std::optional<Part> saving_;     // Is being written.
  bool has_saved_copies_ = false;  // They are on disk, or need not be.
  EmergencySaved saved_;           // What has come of it so far.
  bool has_ended_ = false;
};

}  // namespace skein::plans
