#pragma once

#include <cstdint>
#include <vector>

#include "plans/sync/server_policy.hpp"

namespace skein::plans {

/// No bound on how far columns may be apart.
constexpr uint64_t kAnyDistance = UINT64_MAX;

struct HetPipeOptions {
  uint64_t wave = 4;      // Steps of a column from one push to the next one, >= 1.
  uint64_t distance = 0;  // D: how many waves a column may be ahead of the slowest one.
  /// The server adds whole updates, as in the paper, instead of their mean over the live columns:
  /// then the learning rate has to be divided by their number.
  bool adds_whole_updates = false;
};

/// Wave synchronous parallelism. The steps of a wave are local; at its end a column pushes the
/// wave's update to the server of each stage and takes the weights. It starts wave c only when no
/// live column has finished less than c - D waves. Source: HetPipe, ATC'20, section 5.
///
/// What is held is the group at the end of a wave, at each stage by itself: push, pull, and so the
/// start of the next wave. The groups that one arrival sets free are one group. So a column starts
/// wave c with all updates of the live columns' waves before c - D: their groups have ended, or it
/// is in one group with them. At its push at most 2 D (n - 1) updates of the n - 1 others have been
/// started since it took its weights.
///
/// Why it cannot deadlock: of all replicas look at those with the fewest steps, and of these at the
/// one of the latest stage. No column is slower at its stage, so it is not held. The next stage of
/// its column is a step ahead, so its gradient has been made; the stage before runs forwards ahead
/// of its updates, so its input has, too. A column that joins starts with the same count at all
/// stages (that of the slowest column at the stage where this is highest), so that this holds
/// for it, too. A column that dies is slowest nowhere any more.
///
/// Differs: the paper pushes first and holds the start of the next wave; here a group is push and
/// pull in one, and a held column's last wave is seen later by those behind it, which do not count
/// on it. An aborted push counts as a finished wave: its update goes with the next one, as what a
/// column pushes is all it has done since it last took weights.
class HetPipePolicy final : public ServerPolicy {
 public:
  /// All columns of the layout are there, and begin with `first_step`.
  HetPipePolicy(const ColumnLayout& layout, const HetPipeOptions& options, uint64_t first_step = 0);

  GroupDecisions on_membership(const MembershipChange& change, uint64_t now_us) override;

 private:
  bool is_wave_end(uint32_t stage, uint32_t column) const;
  /// Waves that a live column has finished at a stage, with the one whose end it waits at.
  uint64_t waves(uint32_t stage, uint32_t column) const;
  /// Of the live columns; 0 if there are none.
  uint64_t waves_min(uint32_t stage) const;
  bool join(const MembershipChange& change);
  void advance(uint32_t stage, GroupDecisions& decisions) override;
  void release(uint32_t stage, GroupDecisions& decisions);

  HetPipeOptions options_;
  std::vector<uint64_t> waves_before_;  // [columns] at its join.
};

}  // namespace skein::plans
