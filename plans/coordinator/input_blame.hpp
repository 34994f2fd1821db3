#pragma once

#include "absl/status/status.h"
#include "plans/base/ids.hpp"

namespace skein::plans {

/// Whether the input of a run is at fault, where workers say so as they leave, or a worker that
/// reads it badly. A state machine without clock or I/O.
class InputBlame {
 public:
  /// A plan is started: its workers have read the input.
  void on_started() { has_started_ = true; }
  /// All who have a part could read it.
  void on_commit();

  struct Accuser {
    WorkerId worker;
    bool takes_part = false;   // In the plan, and not only in measuring.
    bool has_started = false;  // In a plan that was started.
    bool has_trained = false;  // In one that has committed a step.
  };
  struct Run {
    bool has_past = false;       // There was a plan, or a life, before.
    bool has_committed = false;  // A step, in this life.
    bool is_deserted = false;    // Nobody else is here, or is waited for.
  };
  /// A worker is lost, or computes no more, because of `why`. True if the input must be at fault,
  /// and not the worker: a second one with a part says so, or nobody is left. Anybody who joins may
  /// be asked to measure, and may be the only one while those who have trained are away: that alone
  /// ends no run of others.
  bool accuse(const absl::Status& why, const Accuser& accuser, const Run& run);

  /// What a worker has said of it since the last commit; OK: nothing.
  const absl::Status& why() const { return why_; }
  /// One of those who said so had a part in the plan.
  bool is_of_participant() const { return participant_.value != 0; }

 private:
  bool has_started_ = false;  // A plan, in this life.
  absl::Status why_;
  WorkerId participant_;  // Who said so; 0: nobody.
};

}  // namespace skein::plans
