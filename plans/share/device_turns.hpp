#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "plans/share/device_piece.hpp"
#include "plans/share/piece_forecast.hpp"
#include "plans/share/turn_report.hpp"

namespace skein::plans {

/// A job that shares a device with others. All workers of the job know it by the same number.
struct DeviceJob {
  uint64_t number = 0;
  int64_t priority = 0;  // Those with a smaller one get what it leaves.
  int64_t weight = 1;    // In [1, kTurnWeightMax]; its part of the turns, or of the time.
};
inline constexpr int64_t kTurnWeightMax = 100;

/// Between two passes of a job of weight 1, on the line on which all turns have their position.
inline constexpr uint64_t kTurnUnit = 1'000'000;
/// Between two passes of a job of this weight.
constexpr uint64_t turn_distance(int64_t weight) {
  return kTurnUnit / static_cast<uint64_t>(weight);
}

/// Whose work a device does next, if several jobs share it. A state machine without clock or I/O;
/// times are microseconds of one steady clock. Source: CrossoverScheduler, arXiv 2103.07974: passes
/// of the jobs alternate, and while one job communicates the others compute. A turn is held from a
/// pass's first action to its last one; norms, updates and copies do without.
///
/// Every pass has a position on one line. Of the jobs that take turns, the turn is that of the one
/// whose next pass has the smallest position (on a tie the smaller number), also while it has
/// nothing for the device to do. As a pass begins only where it is the smallest, and a job comes in
/// only at a position above all that have begun, passes begin in the order of their positions on
/// every device, and no two workers ever hold the turn for two jobs that wait for each other there.
/// Nobody is asked for that: a job's coordinator names the position of its first pass to all its
/// workers, and those that follow are `kTurnUnit / weight` apart.
///
/// A job may lose its turns on one device alone: when it quiesces, or when it holds the turn and
/// does nothing of a pass for longer than is usual for it. Until its coordinator has named a new
/// position, its work and that of jobs that take no turns is done when the holder has none ready,
/// or when these jobs have had less than their part of the time; so whoever has no turn is never
/// stuck either.
///
/// Differs: the paper's jobs are all alike; here jobs with a larger priority go first piece by
/// piece, and the others fill what they leave idle. A piece of theirs that would not have ended
/// when the next one of the more important job should come (`PieceForecast`) is not begun, until
/// that is late. Whoever needs no turn, or has it, and gets nothing for a second, and for twenty
/// times what its longest piece takes, goes first once: so nobody starves, and the others lose a
/// twentieth.
///
/// Not thread-safe. Cost: O(jobs) for each event and priority. What waits is bounded by who asks: a
/// job has two pieces of a pass here at a time, and the parts of one.
class DeviceTurns {
 public:
  struct Options {
    /// A holder that has nothing of a pass ready for so long, and for twice what its last turn
    /// took, loses its turns if others wait.
    uint64_t patience_us = 1'000'000;
    /// A piece that runs for so long, and for `kHangFactor` times the longest one of its job,
    /// hangs: the others go on beside it.
    uint64_t hang_us = 60'000'000;
  };
  static constexpr uint64_t kHangFactor = 20;
  static constexpr uint64_t kStarvedUs = 1'000'000;
  static constexpr uint64_t kStarvedFactor = 20;

  explicit DeviceTurns(Options options) : options_(options) {}
  DeviceTurns() : DeviceTurns(Options()) {}

  /// It begins without turns. Its number must be new.
  void add(const DeviceJob& job);
  /// It has another priority or weight from now on; it loses its turns.
  void change(const DeviceJob& job, uint64_t now_us);
  /// It is gone, with all that waits.
  void remove(uint64_t number);
  /// From its next pass on the job takes turns, and that pass has this position. False, and it
  /// takes none, if a pass at or above it has begun here: that is too late.
  bool enter(uint64_t number, uint64_t position, uint64_t now_us);
  /// It takes no turns any more.
  void leave(uint64_t number, uint64_t now_us);
  /// Its passes are over, and others wait until what is left of its work has ended: that goes
  /// before all else, until `begin_passes`.
  void end_passes(uint64_t number, uint64_t now_us);
  void begin_passes(uint64_t number);

  /// The job has a piece of work; it is done after those that it has asked for before.
  void request(uint64_t number, const DevicePieceNeed& need, uint64_t now_us);
  /// Begins a piece, if the device is free: the oldest one of the job that is returned.
  std::optional<uint64_t> start(uint64_t now_us);
  /// The job's piece has ended.
  void end(uint64_t number, uint64_t now_us);
  /// When `start` should be asked again although nothing has happened.
  std::optional<uint64_t> wake_us() const;

  /// The largest position that a pass of a job of its priority has here: of those that have begun,
  /// and of the next ones. At least 1.
  uint64_t head(uint64_t number) const;
  bool has(uint64_t number) const { return jobs_.contains(number); }
  /// Where its next pass is, or the one that runs; none: it takes no turns.
  std::optional<uint64_t> position(uint64_t number) const { return jobs_.at(number).position; }
  bool takes_turns(uint64_t number) const { return position(number).has_value(); }
  bool is_empty() const { return jobs_.empty(); }
  /// It has asked for a piece, and none of its pieces runs.
  bool is_waiting(uint64_t number) const;

  void check_invariants() const;

 private:
  struct JobState {
    DeviceJob job;
    std::optional<uint64_t> position;  // Of the next pass, or of the one that runs; none: no turns.
    bool is_in_pass = false;           // It has begun the pass at `position`.
    bool hangs = false;                // Its piece has not ended and is not waited for any more.
    uint64_t hangs_since_us = 0;       // When that began.
    std::deque<DevicePieceNeed> waiting;
    double served = 0;            // Microseconds of the device by weight, as in `virtual_us_`.
    uint64_t longest_us = 0;      // The longest of its pieces that did not hang; it fades.
    uint64_t hung_us = 0;         // The longest of those that did, and ended after all.
    uint64_t turn_since_us = 0;   // When it got the turn that it has; with it.
    uint64_t last_turn_us = 0;    // The longer one of its last turn and its last pass.
    uint64_t idle_since_us = 0;   // When it got the turn, or its last piece of a pass ended.
    uint64_t pass_since_us = 0;   // When its pass began, in its turn or not; 0: none is under way.
    uint64_t waits_since_us = 0;  // Since then its oldest piece could have run, had it the device.
    bool is_urgent = false;       // All that it still has goes first.
    PieceForecast forecast;
  };
  using Jobs = std::map<uint64_t, JobState>;

  /// Whose turn it is among the jobs of a priority; null: none of them takes turns.
  JobState* holder(int64_t priority);
  /// Records who holds the turn, and since when.
  void settle(uint64_t now_us);
  void drop_hung(uint64_t now_us);
  void drop_idle_holders(uint64_t now_us);
  /// The holder can go on with its pass, or begin it.
  static bool is_ready(const JobState& holder);
  /// Some other job of the same priority that takes turns has something ready.
  bool is_waited_for(const JobState& holder) const;
  uint64_t patience_of(const JobState& holder) const;
  /// Who is next among the jobs of a priority. Notes in `held_until_us_` what is held for others.
  JobState* next_of(int64_t priority, uint64_t now_us);
  bool may_run(const JobState& job, const JobState* holder) const;
  /// When a job that gets nothing goes before all others.
  uint64_t starves_at_us(const JobState& job) const;
  JobState* find_urgent(uint64_t now_us);
  bool may_starve(const JobState& job) const;
  bool is_holder(const JobState& job) const;
  static bool goes_before(const JobState& other, const JobState& job);
  void begin(JobState& job, uint64_t now_us);
  static void count(JobState& job, uint64_t taken_us);
  void end_pass(JobState& job, uint64_t now_us);
  /// The earliest time at which the job's oldest piece may begin, for jobs that go before it and
  /// whose next piece should come while it runs; 0: now.
  uint64_t held_until(const JobState& job, uint64_t now_us) const;
  std::optional<uint64_t> hang_at() const;

  struct Running {
    uint64_t number = 0;
    DevicePieceNeed piece;
    uint64_t since_us = 0;
  };

  // Invariants: what runs is of a job that is here and does not hang; a job in a pass that it has
  // begun in its turn has a position, which is at most what was seen of its priority. At most one
  // job of a priority is in such a pass, and it is the holder.
  const Options options_;
  Jobs jobs_;
  std::optional<Running> running_;
  std::map<int64_t, uint64_t> holders_;    // By priority: who had the turn when that was looked at.
  std::map<int64_t, double> virtual_us_;   // By priority: `served` of the job that was served last.
  std::optional<uint64_t> held_until_us_;  // When a piece may begin that was held for others.
  std::map<int64_t, uint64_t> seen_;       // By priority: the largest position that has begun.
};

}  // namespace skein::plans
