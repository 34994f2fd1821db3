#pragma once

#include <cstdint>
#include <string>

#include "plans/coordinator/stop_budget.hpp"

namespace skein::plans {

/// That a run is to stop in order, and what time it has for that. A state machine without clock or
/// I/O; times are microseconds of one steady clock.
class StopRequest {
 public:
  /// It has not been made before.
  StopBudget make(const std::string& reason, const StopMeasures& measures, uint64_t now_us);

  bool is_made() const { return is_made_; }
  const std::string& reason() const { return reason_; }
  /// The step in progress has had its time.
  bool abandons_step(uint64_t now_us) const { return is_made_ && now_us >= abandon_at_us_; }
  /// The run fails.
  bool is_over(uint64_t now_us) const { return is_made_ && now_us >= give_up_at_us_; }

 private:
  bool is_made_ = false;
  std::string reason_;
  uint64_t abandon_at_us_ = 0;
  uint64_t give_up_at_us_ = 0;
};

}  // namespace skein::plans
