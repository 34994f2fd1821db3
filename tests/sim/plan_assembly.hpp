#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "plans/plan/plan.hpp"
#include "plans/plan/plan_part.hpp"

namespace skein::sim {

/// The plan that the workers of the newest generation are told together: each is told a part of it.
class PlanAssembly {
 public:
  /// The plan, when this is the part that was missing. It has no groups and no actions.
  std::optional<plans::Plan> add(const plans::PlanPart& part);

 private:
  bool is_complete() const;

  plans::PlanPart head_;  // Without stages.
  std::map<int32_t, plans::StagePart> stages_;
  std::map<int32_t, std::map<plans::ReplicaId, plans::ReplicaPlan>> replicas_;
  bool is_taken_ = false;
};

/// What a worker is told that the plan does not say; empty: nothing.
std::string difference(const plans::PlanPart& part, const plans::Plan& plan);

}  // namespace skein::sim
