#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace skein::plans {

/// Where the wall time since the coordinator began went, in seconds; each >= 0. The parts add up to
/// the elapsed time.
struct Goodput {
  double useful_s = 0;      // Steps that stay committed, and the one in progress.
  double redone_s = 0;      // Steps that were cut off or rolled back, and so are computed again.
  double other_jobs_s = 0;  // Within committed steps: other jobs had the devices meanwhile.
  double waiting_s = 0;     // For workers to join or to come back, or the coordinator was paused.
  double moving_s = 0;      // From the assignment of a plan to its start: state, groups, models.
  double total_s() const { return useful_s + redone_s + other_jobs_s + waiting_s + moving_s; }
  /// Share of the time that was useful, in [0, 1]; 0 before any time has passed.
  double ratio() const;
  bool operator==(const Goodput&) const = default;
};

/// The time that one committed step took, without that of other jobs.
struct CommittedSpan {
  uint64_t step = 0;
  uint64_t useful_us = 0;
  bool operator==(const CommittedSpan&) const = default;
};

/// Splits the wall time since `begin` into the parts of `Goodput`. Not thread-safe. Times are
/// microseconds of one steady clock; one that is smaller than its predecessor counts as equal.
///
/// The time of a step runs from the commit before it, or from the start of training if that is
/// later, to its own commit. Whatever ends training ends the step in progress: its time is redone,
/// unless its commit, which was on its way to the journal, still follows before training goes on.
///
/// Cost: O(1) per event, O(steps rolled back) per rollback; at most 1 MiB.
class GoodputLedger {
 public:
  enum class Activity { kTraining, kWaiting, kMoving };

  /// Starts the account, in `kWaiting`: a run waits for workers first. Once.
  void begin(uint64_t now_us);

  void enter(Activity activity, uint64_t now_us);
  /// Other jobs had its devices for `other_jobs_us` of the step's time, or for all of it. A commit
  /// of a step that is already committed changes nothing.
  void on_commit(uint64_t step, uint64_t other_jobs_us, uint64_t now_us);
  /// The coordinator has done nothing for so long, and its clock stood still. Before `begin`
  /// nothing changes.
  void on_own_pause(uint64_t paused_us);
  /// The step in progress was cut off by a failure. Training goes on until something is entered.
  void on_abandoned(uint64_t now_us);
  /// The state is back to before `first_step_redone`: that step and all later ones are redone, and
  /// so is the one in progress. Of steps older than `kStepsKept` the time is no longer known
  /// apart; they stay useful.
  void on_rollback(uint64_t first_step_redone, uint64_t now_us);

  /// With the time up to `now_us` in the current activity. Before `begin` all is 0.
  Goodput at(uint64_t now_us) const;
  Activity activity() const { return activity_; }
  /// Times of the last committed steps, ascending.
  const std::deque<CommittedSpan>& committed() const { return committed_; }

  /// Steps whose times are kept for a rollback: it goes back to a durable point, and checkpoints
  /// further apart than this would lose most of a day at a step per second. 16 bytes each.
  static constexpr size_t kStepsKept = 65'536;

 private:
  struct Parts {  // Microseconds, so that sums are exact.
    uint64_t useful_us = 0;
    uint64_t redone_us = 0;
    uint64_t other_jobs_us = 0;
    uint64_t waiting_us = 0;
    uint64_t moving_us = 0;
  };

  /// Where time in `activity` goes for now; that of the step in progress: useful.
  static uint64_t& part_of(Parts& parts, Activity activity);
  /// Accounts for the time until now.
  void advance(uint64_t now_us);
  void cut_off();

  bool has_begun_ = false;
  Activity activity_ = Activity::kWaiting;
  uint64_t last_us_ = 0;
  Parts parts_;
  uint64_t progress_us_ = 0;  // Time of the step in progress; counted in `useful_us`.
  uint64_t cut_off_us_ = 0;  // Time of the step that was last cut off, while its commit may follow.
  std::deque<CommittedSpan> committed_;
};

}  // namespace skein::plans
