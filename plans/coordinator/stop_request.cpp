#include "plans/coordinator/stop_request.hpp"

#include "plans/base/check.hpp"

namespace skein::plans {

StopBudget StopRequest::make(const std::string& reason, const StopMeasures& measures,
                             uint64_t now_us) {
  SKEIN_CHECK(!is_made_) << reason << " after " << reason_;
  is_made_ = true;
  reason_ = reason;
  const StopBudget budget = make_stop_budget(measures);
  abandon_at_us_ = now_us + static_cast<uint64_t>(budget.step_us);
  give_up_at_us_ = now_us + static_cast<uint64_t>(budget.total_us);
  return budget;
}

}  // namespace skein::plans
