#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "plans/base/ids.hpp"

namespace skein::actors {

/// Where a process can be told to kill itself, between two fault actions that must survive it
/// together.
enum class FailPlace {
  // Places in a worker:
  kBeforeReady,       // A replica's gradients are whole, and nobody has heard of it.
  kAfterReady,        // The coordinator has answered the ready signal: group start, or commit.
  kDuringReduction,   // This member takes part in a sum.
  kWhileApplying,     // A stage is updated, and others, or the word of it, are not.
  kDuringStateSend,   // A layer is on its way to another worker.
  kDuringStateFetch,  // A layer has come.
  kBeforePrepared,    // The replicas are ready to run, and nobody has heard of it.
  kBeforeQuiesced,    // The old plan is left, and nobody has heard of it.
  kDuringCheckpoint,  // A stage's files are written, and nobody has heard of it.
  kDuringSnapshot,    // A layer is on its way to its snapshot peer.
  // Places in the coordinator:
  kBeforeCommitBroadcast,  // A step is journaled, and no worker knows.
  kBeforeStart,            // Everybody is prepared.
  kWhilePlanning,          // The planner thinks about a question.
};

/// Kills this process, with no word and no cleaning up, when it comes to a place for the n-th time,
/// or holds up the thread that comes to a place for some seconds, each time: tests see what the
/// others make of it. Thread-safe.
class FailPoint {
 public:
  /// Reads "w2:before-ready:3" (worker 2, the third time), "coordinator:before-start",
  /// "before-ready" (whichever process comes there, the first time),
  /// "coordinator:while-planning:20s" (held up for 20 seconds each time).
  /// InvalidArgument   if there is no such place, or a part is not of this form.
  static absl::StatusOr<std::shared_ptr<FailPoint>> parse(const std::string& text);

  /// `pause_seconds` above 0: nothing is killed.
  FailPoint(FailPlace place, std::optional<plans::WorkerId> target, int64_t count,
            int64_t pause_seconds = 0)
      : place_(place),
        target_(target),
        count_(count),
        pause_seconds_(pause_seconds),
        is_armed_(!target) {}

  /// Tells which process this is; worker 0 is the coordinator. Nothing happens to others than the
  /// target, nor before this call if there is one.
  void identify(plans::WorkerId self) { is_armed_ = !target_ || *target_ == self; }
  void reach(FailPlace place);

 private:
  const FailPlace place_;
  const std::optional<plans::WorkerId> target_;
  const int64_t count_;
  const int64_t pause_seconds_;
  std::atomic<bool> is_armed_;
  std::atomic<int64_t> reached_ = 0;
};

/// Null in every run that is no test.
using FailPointHandle = std::shared_ptr<FailPoint>;

inline void reach(const FailPointHandle& fail_point, FailPlace place) {
  if (fail_point) fail_point->reach(place);
}

}  // namespace skein::actors
