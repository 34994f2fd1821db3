#include "plans/elastic/snapshot_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "plans/base/units.hpp"

namespace skein::plans {
namespace {

/// In device times of a copy: the rest is what sending and receiving it takes of the machine.
constexpr double kCopyCost = 2.0;
/// Before anything is measured.
constexpr uint64_t kFirstInterval = 2;

}  // namespace

SnapshotSchedule::SnapshotSchedule(int64_t interval, double patience_seconds)
    : chooses_(interval < 0),
      interval_(interval < 0 ? kFirstInterval : static_cast<uint64_t>(interval)),
      patience_us_(patience_seconds * kMicrosecondsPerSecond) {}

void SnapshotSchedule::begin_generation(std::vector<WorkerId> owners,
                                        std::vector<WorkerId> snapshot_peers, uint64_t first_step) {
  wanted_.clear();
  missing_.clear();
  last_ = first_step;
  has_ordered_ = false;
  floor_ = 0;  // What is kept was kept for the plan before; it goes with the first whole new set.
  for (size_t stage = 0; stage < owners.size(); ++stage) {
    if (stage >= snapshot_peers.size() || snapshot_peers[stage].value == 0) {
      wanted_.clear();
      return;
    }
    wanted_.insert({static_cast<int32_t>(stage), owners[stage]});
    wanted_.insert({static_cast<int32_t>(stage), snapshot_peers[stage]});
  }
}

bool SnapshotSchedule::is_due(uint64_t steps_done) const {
  if (!is_possible()) return false;
  return has_ordered_ ? steps_done >= last_ + interval_ : steps_done > last_;
}

void SnapshotSchedule::on_ordered(uint64_t steps_done, uint64_t now_us) {
  last_ = steps_done;
  ordered_us_ = now_us;
  has_ordered_ = true;
  missing_ = wanted_;
}

std::optional<DropReason> SnapshotSchedule::on_kept(WorkerId worker, int32_t stage,
                                                    uint64_t steps_done) {
  if (!wanted_.contains({stage, worker})) return DropReason::kNotAllowed;
  if (!has_ordered_ || steps_done != last_) {
    return steps_done < last_ ? DropReason::kStale : DropReason::kUnexpected;
  }
  if (missing_.erase({stage, worker}) == 0) return DropReason::kRepeated;
  if (missing_.empty()) floor_ = std::max(floor_, steps_done);
  return std::nullopt;
}

void SnapshotSchedule::on_cost(uint64_t copy_us, double step_us) {
  if (!chooses_ || copy_us == 0 || step_us <= 0) return;
  const double cost = kCopyCost * static_cast<double>(copy_us);
  const double steps = std::ceil(cost / (kSnapshotShareMax * step_us));
  interval_ = std::clamp<uint64_t>(static_cast<uint64_t>(steps), 1, kSnapshotIntervalMax);
}

}  // namespace skein::plans
