#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plans/chaos/chaos_script.hpp"

namespace skein::plans {

/// What is to be done now. An action of the script is one fault action, and another when it ends.
struct FaultAction {
  enum class Kind { kSetSpeed, kKill, kTerm, kStop, kContinue, kDropLink, kJoin };
  Kind kind = Kind::kKill;
  WorkerId worker;        // 0: the coordinator; unused by kJoin.
  WorkerId other;         // The other end for kDropLink.
  double speed = 1;       // The speed of kSetSpeed, relative to the worker's own device.
  double duration_s = 0;  // How long kDropLink lasts; 0: for ever.
  bool operator==(const FaultAction&) const = default;
};

/// "w2 killed", "w1 runs 4x slower": one fault action for people.
std::string to_text(const FaultAction& fault_action);

/// Says when a script's fault actions are due, each once. What ends by itself, a pause or a
/// slowness for a while, ends so long after it began; a newer word about the same worker takes its
/// place.
class ChaosTimeline {
 public:
  explicit ChaosTimeline(ChaosScript script);

  /// The fault actions that are due `elapsed_s` after the start of the first step with `steps_done`
  /// steps committed: those that began earlier first. Neither number may be less than in the call
  /// before.
  std::vector<FaultAction> due(double elapsed_s, uint64_t steps_done);
  /// True once nothing can become due any more.
  bool is_done() const { return script_.empty() && ends_.empty(); }
  /// True if a worker is still to join at a time, whatever becomes of those that are there.
  bool awaits_join() const;

 private:
  enum class Lasting { kSlow, kPause };
  using End = std::pair<WorkerId, Lasting>;

  void begin(const ChaosAction& action, double begin_s, std::vector<FaultAction>& fault_actions);
  /// Ends what is over at `until_s`, in the order of time.
  void end_until(double until_s, std::vector<FaultAction>& fault_actions);

  ChaosScript script_;          // What has not begun.
  std::map<End, double> ends_;  // When what has begun is over.
};

}  // namespace skein::plans
