#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "plans/share/device_turns.hpp"
#include "plans/share/turn_report.hpp"

namespace skein::plans {

/// Where the next pass of a job (under local updates: of a pipeline replica) has its turn, if that
/// is to be named to its workers. A state machine without clock or I/O; its owner is who sends the
/// orders that passes begin with.
///
/// A position is named when some worker has none, and when there are jobs far ahead: devices that
/// have no job in common are not equally far, and whoever is on both would be first for long on the
/// one, or wait for long on the other.
///
/// What workers say is older than the order by the time that the job communicates. If others begin
/// more passes meanwhile than the position is ahead, it comes too late, each time, and the job's
/// work is done without turns. That is well: in turns each pass of the others would wait for one
/// of its, and nobody would be faster for it.
class TurnNaming {
 public:
  explicit TurnNaming(int64_t weight) : unit_(turn_distance(weight)) {}

  /// A worker has said so since the last order.
  void on_report(const TurnReport& report) {
    if (report.head == 0) return;
    head_ = std::max(head_, std::min(report.head, kTurnPositionMax - kAheadMax));
    lacks_turns_ = lacks_turns_ || !report.has_turns;
  }
  /// Its workers have given up its turns, as there is no next pass for now.
  void on_pause() { lacks_turns_ = true; }
  /// An order is to be sent that the next pass begins with: the position that goes with it; 0: the
  /// one after the pass before.
  uint64_t name_next() {
    if (position_) *position_ += unit_;
    const bool is_behind = position_ && head_ > *position_ + kAheadMax;
    const bool is_named = head_ > 0 && (lacks_turns_ || is_behind);
    if (is_named) position_ = head_ + kAhead;
    lacks_turns_ = false;
    return is_named ? *position_ : 0;
  }

 private:
  /// So far ahead is named: others begin passes while the order is on its way.
  static constexpr uint64_t kAhead = 2 * kTurnUnit;
  static constexpr uint64_t kAheadMax = 4 * kTurnUnit;

  uint64_t unit_;                     // Between two passes.
  std::optional<uint64_t> position_;  // The newest pass's; none: nothing was named yet.
  uint64_t head_ = 0;                 // The largest that was said; 0: no device is shared.
  bool lacks_turns_ = false;          // Some worker has none, as far as was said.
};

}  // namespace skein::plans
