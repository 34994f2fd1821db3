#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/coordinator/membership.hpp"
#include "plans/job/job_spec.hpp"

namespace skein::plans {

/// A worker that has lost its coordinator is back within this time: longer than one attempt to
/// connect (net/control/control_link).
inline constexpr uint64_t kRejoinUs = 2'500'000;

/// Since when a run has got no further, and what follows from that: a worker is to blame, the step
/// is tried once more, or the run is given up. What the coordinator itself has slept through, and
/// the time in which other jobs have the devices, counts against nobody. A state machine without
/// clock or I/O; times are microseconds of one steady clock.
class ProgressWatch {
 public:
  ProgressWatch(const JobSpec& job, uint64_t now_us);

  /// Something has brought the run further.
  void on_progress(uint64_t now_us) { last_us_ = now_us; }
  void on_commit(uint64_t now_us);
  /// The coordinator has done nothing for so long, up to now.
  void on_own_pause(uint64_t paused_us, uint64_t now_us);

  /// The coordinator reads what has waited during a pause of its own, and judges nobody meanwhile.
  bool is_catching_up(uint64_t now_us) const { return now_us < catch_up_until_us_; }
  /// The worker's connection is lost now, which may be for that pause: it may have given up on us,
  /// and come back. A newcomer that came after it has another reason.
  bool may_be_cut_off(const Member& member, uint64_t now_us) const;
  /// It was asked for something at the last progress, or when it joined, and has not answered
  /// within `limit_s`.
  bool is_slow_to_answer(const Member& member, double limit_s, uint64_t now_us) const;

  /// What the run is at.
  struct Situation {
    bool is_training = false;    // A step is under way.
    bool is_finishing = false;   // What the last commit has ordered is.
    bool is_journaling = false;  // A commit is on its way to the journal.
    double last_step_us = 0;     // 0: no step of the plan in force is committed.
    /// Those that hold replicas.
    std::vector<const Member*> workers;
  };
  struct Verdict {
    enum class Kind {
      kGoesOn,
      kCulprit,   // The step, or what follows the last one, takes far longer than the step before,
                  // or than any may, and this worker works on it.
      kStuck,     // Nobody works on the step: it is to be tried again, which happens once a step.
      kTimedOut,  // The run is to be given up.
    };
    Kind kind = Kind::kGoesOn;
    WorkerId culprit;
    std::string reason;      // kCulprit: "its device works on 0B1 for 12 s".
    double waited_s = 0;     // Without progress.
    double limit_s = 0;      // kTimedOut: by `limit`.
    const char* limit = "";  // The key that says so.
  };
  Verdict check(const Situation& situation, uint64_t now_us);

 private:
  const Member* find_culprit(const Situation& situation) const;
  /// Nobody works, and somebody could, if other jobs had not the device.
  static bool awaits_devices(const Situation& situation);

  const double lease_us_;
  const double init_s_;
  const double train_s_;
  uint64_t last_us_;
  uint64_t last_check_us_ = 0;
  uint64_t catch_up_since_us_ = 0;  // The end of the last pause of our own.
  uint64_t catch_up_until_us_ = 0;  // With it.
  bool tried_again_ = false;        // The step in progress, in a plan of its own.
  bool blamed_first_ = false;       // Somebody was lost for it, with no step to compare it with.
};

}  // namespace skein::plans
