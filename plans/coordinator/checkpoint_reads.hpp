#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/elastic/checkpoint_verdict.hpp"

namespace skein::plans {

/// What the run's host and its workers find on disk to go on from: the host reads the checkpoint of
/// the start, and again when a worker says that it cannot; it looks for state that workers have
/// left; and workers that do not see the checkpoint are sent their layers. A state machine without
/// clock or I/O.
class CheckpointReads {
 public:
  /// `is_verifying`: the host has been asked to read the checkpoint of the start.
  explicit CheckpointReads(bool is_verifying) : is_verifying_(is_verifying) {}

  /// A new change of plan: what is read is for its generation.
  void begin_generation();

  /// The host reads the checkpoint to go on from.
  bool is_verifying() const { return is_verifying_; }
  /// The host looks for state that workers have left.
  bool is_seeking() const { return is_seeking_; }
  bool is_reading() const { return is_verifying_ || is_seeking_; }
  /// It has, in this change of plan.
  bool has_sought() const { return has_sought_; }
  /// Not OK: no checkpoint is whole.
  const absl::Status& fault() const { return fault_; }

  /// The worker cannot read the checkpoint that its plan starts with. False: it has said so.
  bool complain(WorkerId worker, const std::string& reason);
  /// The checkpoint is whole: it is they who cannot read it, for these reasons. They are forgotten.
  std::map<WorkerId, std::string> take_complaints() { return std::exchange(complaints_, {}); }
  /// The worker does not see the checkpoint, and is sent its layers. False: it has been.
  bool serve(WorkerId worker) { return served_.insert(worker).second; }

  /// The host is to read the checkpoint. False: it does.
  bool verify() { return !std::exchange(is_verifying_, true); }
  /// The host has read it. What people are told.
  std::vector<RunEvent> on_verified(const CheckpointVerdict& verdict);
  void seek() { is_seeking_ = true; }
  /// What was found is not to be had for now, for that reason. What people are told: each reason
  /// once since `seek`.
  std::optional<RunEvent> on_seeking_delayed(const std::string& reason);
  void on_sought();
  /// A checkpoint was made that is whole.
  void on_whole() { fault_ = absl::OkStatus(); }

 private:
  absl::Status fault_;
  bool is_verifying_ = false;
  bool is_seeking_ = false;
  bool has_sought_ = false;
  std::set<std::string> told_delays_;  // Why, while it seeks.
  std::set<WorkerId> served_;
  std::map<WorkerId, std::string> complaints_;
};

}  // namespace skein::plans
