#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/planner/candidate_cost.hpp"
#include "plans/planner/candidate_plan.hpp"
#include "plans/planner/dapple_objective.hpp"
#include "plans/planner/placement.hpp"

namespace skein::plans {

/// The ground that planners share which take all devices as equal: the mean device and the mean
/// links in place of the real ones, the real memories, even rows, the request's first number of
/// rows and one schedule. Not copyable; borrows the request.
class EqualDevices {
 public:
  explicit EqualDevices(const PlanRequest& request);
  EqualDevices(const EqualDevices&) = delete;
  EqualDevices& operator=(const EqualDevices&) = delete;

  /// What a search tries now.
  struct Attempt {
    int64_t rows = 0;
    bool recompute = false;
  };

  /// One stage per entry, all with this schedule.
  CandidatePlan candidate(std::vector<int64_t> cuts, std::vector<std::vector<int32_t>> devices,
                          const Attempt& attempt) const;
  /// Every replica has a row and every device room for its stage under the schedule. Remembers the
  /// candidate plan with the smallest objective that only lacks memory, for the error.
  bool is_possible(const CandidatePlan& candidate, const Attempt& attempt, double objective_us);
  /// Whether the devices have room for a stage with so many stashes. O(devices).
  bool has_room(const LayerRange& layers, const std::vector<int32_t>& devices,
                const Attempt& attempt, int64_t stashes);
  const std::optional<CandidatePlan>& lacks_memory() const { return lacks_memory_; }
  /// DAPPLE's list of stages for a candidate plan, network stages between.
  std::vector<DappleStage> dapple_stages(const CandidatePlan& candidate);
  /// A compute stage of that list. O(1): `ring` is the all-reduce of one byte over its devices.
  DappleStage dapple_stage(const LayerRange& layers, int64_t devices,
                           const FlowTimes::Duration& ring, const Attempt& attempt);

  const PlanRequest& request() const { return request_; }
  CostModel& model() { return model_; }
  const std::vector<std::vector<int32_t>>& by_host() const { return by_host_; }
  int64_t layer_count() { return model_.sums().layer_count(); }
  int64_t device_count() const { return static_cast<int64_t>(cluster_.devices.size()); }
  /// All devices, host by host.
  std::vector<int32_t> devices() const;
  double speed() const { return speed_; }
  int64_t microbatch_count(const Attempt& attempt) const {
    return request_.global_batch_rows / attempt.rows;
  }

 private:
  const PlanRequest& request_;
  ClusterSpec cluster_;
  CostModel model_;
  std::vector<std::vector<int32_t>> by_host_;
  double speed_ = 1.0;
  std::optional<CandidatePlan> lacks_memory_;
  double lacks_memory_us_ = 0;
};

/// A search's best plan and what it thinks of it.
struct Found {
  CandidatePlan candidate;
  double objective_us = 0;
  std::string reason;
};
/// Empty if there is no plan of the kind; InvalidArgument if it cannot search here at all.
using EqualSearch = std::function<absl::StatusOr<std::optional<Found>>(
    EqualDevices&, const EqualDevices::Attempt&)>;

/// Checks the request, searches without, then if allowed with recomputation, and makes the plan.
/// The errors are those of `PlannerFunction`.
absl::StatusOr<PlannedPipeline> plan_with_equal_devices(const PlanRequest& request,
                                                        const EqualSearch& search);
/// The same where the search needs other than the request's first number of rows.
absl::StatusOr<PlannedPipeline> plan_with_equal_devices(const PlanRequest& request, int64_t rows,
                                                        const EqualSearch& search);

}  // namespace skein::plans
