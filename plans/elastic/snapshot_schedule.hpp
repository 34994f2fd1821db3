#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/base/outcome.hpp"

namespace skein::plans {

/// Share of the step time that snapshots may cost when their interval is chosen: half of what being
/// able to recover may cost in all (bench/elastic_overhead.py).
inline constexpr double kSnapshotShareMax = 0.01;
/// Longest interval that is chosen: losing more steps than this is worth no snapshot.
inline constexpr uint64_t kSnapshotIntervalMax = 500;

/// When the stages copy their state to their snapshot peers, and which set of copies is whole: a
/// set of one step, of every stage, held by the stage's first worker and by its snapshot peer. One
/// set is under way at a time: where copies take longer than the interval, the next one waits.
class SnapshotSchedule {
 public:
  /// `interval`           steps between snapshots; 0: never; -1: chosen from what they cost.
  /// `patience_seconds`   after which a set is given up that has not become whole.
  SnapshotSchedule(int64_t interval, double patience_seconds);

  /// A new plan is in force: `owners[s]` takes the snapshots of stage s, `snapshot_peers[s]` keeps
  /// them. A stage without a snapshot peer (worker 0) turns snapshots off.
  void begin_generation(std::vector<WorkerId> owners, std::vector<WorkerId> snapshot_peers,
                        uint64_t first_step);
  /// True if the state after `steps_done` steps should be copied: after the first step of a plan,
  /// so that a second loss finds something, and every interval.
  bool is_due(uint64_t steps_done) const;
  /// There is somebody to keep them, and the job wants them.
  bool is_possible() const { return interval_ != 0 && !wanted_.empty(); }
  /// The set before is not whole yet: one that is due has to wait.
  bool must_wait(uint64_t now_us) const {
    return !missing_.empty() && static_cast<double>(now_us - ordered_us_) < patience_us_;
  }
  /// The commit that orders a snapshot of this state is out.
  void on_ordered(uint64_t steps_done, uint64_t now_us);
  /// One that is due waits.
  void on_waits() { ++waits_; }
  /// A worker holds the copy. None: it was awaited.
  std::optional<DropReason> on_kept(WorkerId worker, int32_t stage, uint64_t steps_done);
  /// What a copy took of the device, beside what the step took.
  void on_cost(uint64_t copy_us, double step_us);

  /// Snapshots of fewer steps than the newest whole set are not needed.
  uint64_t floor() const { return floor_; }
  uint64_t interval() const { return interval_; }
  /// Commits that would have ordered a set, had the one before been whole.
  uint64_t waits() const { return waits_; }

 private:
  using Copy = std::pair<int32_t, WorkerId>;  // Stage, who holds it.

  bool chooses_ = false;
  uint64_t interval_ = 0;  // 0: never.
  uint64_t last_ = 0;      // Steps done of the newest one that was ordered, or of the plan's start.
  bool has_ordered_ = false;  // Under this plan.
  uint64_t ordered_us_ = 0;   // Valid with `has_ordered_`.
  double patience_us_ = 0;
  std::set<Copy> wanted_;
  std::set<Copy> missing_;  // Of the set of `last_`; empty: it is whole, or none is under way.
  uint64_t floor_ = 0;
  uint64_t waits_ = 0;
};

}  // namespace skein::plans
