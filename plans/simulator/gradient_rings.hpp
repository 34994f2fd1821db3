#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "plans/plan/plan.hpp"
#include "plans/profile/profile.hpp"
#include "plans/simulator/cluster_paths.hpp"

namespace skein::plans {

/// When which share of which group's gradient may travel: the readiness of all reduction groups
/// during one step. A share is the whole gradient of the group or, bucketed, that of one layer.
/// Not thread-safe.
class GradientRings {
 public:
  /// One member's flow to the next one.
  struct Edge {
    bool is_local = false;  // Both members are on one worker.
    DevicePath path;
  };
  /// A share of `group` may begin at `at_us`.
  struct ShareStart {
    int32_t group = 0;
    double at_us = 0;
  };

  /// The plan's workers are devices of the cluster.
  GradientRings(const Plan& plan, const Profile& profile, const ClusterSpec& cluster,
                bool bucketed);

  size_t group_count() const { return groups_.size(); }
  void begin_step();
  /// The last backward of `replica` in this step runs from `start_us` to `end_us`. Appends the
  /// groups whose last member it was; a share of theirs begins then or later.
  void on_last_backward(ReplicaId replica, ActionType type, double start_us, double end_us,
                        std::vector<ShareStart>& starts);
  /// Bytes that each member sends along its edge for the current share.
  double edge_bytes(int32_t group) const;
  const std::vector<Edge>& edges(int32_t group) const;  // Empty for a group of one.
  /// The current share has been reduced. When the next one may begin; nullopt: it was the last.
  std::optional<double> on_share_reduced(int32_t group, double now_us);

 private:
  struct Group {
    std::vector<Edge> edges;
    std::vector<double> share_bytes;   // In the order of the backward: last layer first.
    std::vector<int64_t> share_layer;  // Whose backward completes it.
    std::vector<double> ready_us;      // When the slowest member so far completes it.
    int32_t member_count = 0;
    int32_t waiting_count = 0;  // Members whose last backward has not begun.
    size_t share = 0;           // Current one.
  };
  /// One for each kind of last backward: the share of its time, from its start, after which it has
  /// passed a layer of the stage (by layer, from the first).
  struct Passing {
    std::vector<double> whole, weights_only;
  };

  void add_shares(const Plan& plan, const Profile& profile, const ReductionGroup& group,
                  bool bucketed, Group& out) const;
  double passed_us(ReplicaId replica, ActionType type, int64_t layer, double start_us,
                   double end_us) const;

  std::vector<Group> groups_;
  std::vector<std::vector<int32_t>> groups_of_;   // [replicas]
  std::vector<Passing> passing_;                  // [replicas]
  std::vector<int64_t> first_layer_, end_layer_;  // [replicas]
};

}  // namespace skein::plans
