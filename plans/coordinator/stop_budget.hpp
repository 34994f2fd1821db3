#pragma once

#include <cstdint>
#include <string>

namespace skein::plans {

/// What is known when a run is asked to stop in order. Times in microseconds; 0: not measured.
struct StopMeasures {
  double step_us = 0;        // From one commit to the next.
  double elapsed_us = 0;     // Since the last commit.
  double checkpoint_us = 0;  // From its order until it was complete.
  double lease_us = 0;
};

/// How long an orderly stop may take.
struct StopBudget {
  double step_us = 0;     // The step in progress may go on for so long, and is abandoned then.
  double total_us = 0;    // With a checkpoint; after that the run fails.
  bool abandons = false;  // The step would last too long: it is abandoned at once.
};

/// A step is finished if it should end soon, by the time that the one before has taken; it gets
/// half as much again. Nothing of it is in a checkpoint otherwise, which costs that step only.
StopBudget make_stop_budget(const StopMeasures& measures);
/// "the step in progress should end in 3.1 s, and a checkpoint takes 0.4 s; given up after 20 s"
std::string to_text(const StopMeasures& measures, const StopBudget& budget);

}  // namespace skein::plans
