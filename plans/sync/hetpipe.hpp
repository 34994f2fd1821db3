#pragma once

#include <cstdint>
#include <vector>

#include "plans/sync/server_policy.hpp"

namespace skein::plans {

/// No bound on how far pipeline replicas may be apart.
constexpr uint64_t kAnyDistance = UINT64_MAX;

struct HetPipeOptions {
  uint64_t wave = 4;      // Steps of a pipeline replica from one push to the next one, >= 1.
  uint64_t distance = 0;  // D: how many waves a pipeline replica may be ahead of the slowest one.
  /// The server adds whole updates, as in the paper, instead of their mean over the live pipeline
  /// replicas: then the learning rate has to be divided by their number.
  bool adds_whole_updates = false;
};

/// Wave synchronous parallelism. The steps of a wave are local; at its end a pipeline replica
/// pushes the wave's update to the server of each stage and takes the weights. It starts wave c
/// only when no live pipeline replica has finished less than c - D waves. Source: HetPipe, ATC'20,
/// section 5.
///
/// What is held is the group at the end of a wave, at each stage by itself: push, pull, and so the
/// start of the next wave. The groups that one arrival sets free are one group. So a pipeline
/// replica starts wave c with all updates of the live pipeline replicas' waves before c - D: their
/// groups have ended, or it is in one group with them. At its push at most 2 D (n - 1) updates of
/// the n - 1 others have been started since it took its weights.
///
/// Why it cannot deadlock: of all replicas look at those with the fewest steps, and of these at the
/// one of the latest stage. No pipeline replica is slower at its stage, so it is not held. The next
/// stage of its pipeline replica is a step ahead, so its gradient has been made; the stage before
/// runs forwards ahead of its updates, so its input has, too. A pipeline replica that joins starts
/// with the same count at all stages (that of the slowest pipeline replica at the stage where this
/// is highest), so that this holds for it, too. A pipeline replica that dies is slowest nowhere any
/// more.
///
/// Differs: the paper pushes first and holds the start of the next wave; here a group is push and
/// pull in one, and a held pipeline replica's last wave is seen later by those behind it, which do
/// not count on it. An aborted push counts as a finished wave: its update goes with the next one,
/// as what a pipeline replica pushes is all it has done since it last took weights.
class HetPipePolicy final : public ServerPolicy {
 public:
  /// All pipeline replicas of the layout are there, and begin with `first_step`.
  HetPipePolicy(const PipelineLayout& layout, const HetPipeOptions& options,
                uint64_t first_step = 0);

  GroupDecisions on_membership(const MembershipChange& change, uint64_t now_us) override;

 private:
  bool is_wave_end(uint32_t stage, uint32_t pipeline) const;
  /// Waves that a live pipeline replica has finished at a stage, with the one whose end it waits
  /// at.
  uint64_t waves(uint32_t stage, uint32_t pipeline) const;
  /// Over the live pipeline replicas; 0 if there are none.
  uint64_t waves_min(uint32_t stage) const;
  bool join(const MembershipChange& change);
  void advance(uint32_t stage, GroupDecisions& decisions) override;
  void release(uint32_t stage, GroupDecisions& decisions);

  HetPipeOptions options_;
  std::vector<uint64_t> waves_before_;  // [pipeline replicas] at its join.
};

}  // namespace skein::plans
