#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/coordinator/measurements.hpp"
#include "plans/coordinator/membership.hpp"
#include "plans/coordinator/plan_change.hpp"
#include "plans/elastic/replan.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/plan/plan.hpp"

namespace skein::plans {

/// Who may have a part in the next plan, and what the planner is told of them: a view of the
/// members, of what they have measured, and of the plan in force, which all outlive it.
class PlanCandidates {
 public:
  /// `given`: the plan that the job is to use as it is. `is_planned`: the planner chooses its plan.
  PlanCandidates(const JobSpec& job, const std::optional<Plan>& given, bool is_planned,
                 const Membership& members, const Measurements& measurements,
                 const PlanChange& change)
      : job_(job),
        given_(given),
        is_planned_(is_planned),
        members_(members),
        measurements_(measurements),
        change_(change) {}

  bool is_planned() const { return is_planned_; }
  const JobSpec& job() const { return job_; }
  const Membership& members() const { return members_; }
  const Measurements& measurements() const { return measurements_; }

  /// From now on plans only serve to save what is there: nobody is to measure for them first, or is
  /// held back.
  void take_unmeasured() { takes_unmeasured_ = true; }
  /// Workers that may be given work, ascending, also more than a plan may have; if the planner
  /// chooses, those that have measured.
  std::vector<WorkerId> able(uint64_t now_us, Leavers leavers) const;
  /// As many of them as a plan may have: the first ones.
  std::vector<WorkerId> first_allowed(std::vector<WorkerId> workers) const;
  std::vector<WorkerId> eligible(uint64_t now_us, Leavers leavers) const {
    return first_allowed(able(now_us, leavers));
  }
  /// What a plan for these workers is made from. `generation`: of the change of plan.
  ReplanRequest request(std::vector<WorkerId> workers, uint64_t generation, bool is_urgent) const;

 private:
  const JobSpec& job_;
  const std::optional<Plan>& given_;
  const bool is_planned_;
  const Membership& members_;
  const Measurements& measurements_;
  const PlanChange& change_;
  bool takes_unmeasured_ = false;
};

}  // namespace skein::plans
