#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "plans/simulator/policy_listener.hpp"
#include "plans/sync/pipeline_layout.hpp"

namespace skein::plans {

/// How far replicas drift apart under a policy among peers, whatever they train: each update moves
/// its replica by one unit into a direction of its pipeline replica's own, averages are done as the
/// policy says, and when a forward begins, the squared distance of its weights from the mean is
/// taken. All-reduce: 0. At the end of a round all are at the mean. Looked at is the first stage.
/// Ours.
///
/// O(N^2) memory, O(N) time for each forward and each member of a group.
class ConsensusDistance final : public PolicyListener {
 public:
  /// Measures from `warm_up_us` on. `claim_samples`: as in `PolicySimulationOptions`; a member of
  /// an average weighs as much more as its claims are larger.
  ConsensusDistance(const PipelineLayout& layout, double warm_up_us,
                    std::vector<uint64_t> claim_samples = {});

  bool advance(double now_us) override;
  void on_forward_start(ReplicaId replica, uint64_t step) override;
  void on_forward_end(ReplicaId, uint64_t) override {}
  void on_gradient(ReplicaId replica, uint64_t step) override;
  void on_group_start(const GroupStart& start) override;
  void on_group_end(const GroupStart& start, bool ok) override;
  void on_round_end() override;

  double mean() const { return forwards_ > 0 ? sum_ / forwards_ : 0; }

 private:
  PipelineLayout layout_;
  double warm_up_us_;
  std::vector<uint64_t> claim_samples_;
  bool is_measuring_ = false;
  std::vector<std::vector<double>> weights_;  // [pipeline replicas][pipeline replicas]
  std::vector<double> total_;                 // [pipeline replicas], the sum of `weights_`.
  std::vector<bool> has_gradient_;            // [pipeline replicas]
  /// The contributions to groups under way, by number.
  std::map<uint64_t, std::vector<std::vector<double>>> contributions_;
  double sum_ = 0, forwards_ = 0;
};

}  // namespace skein::plans
