#pragma once

#include <cstdint>
#include <optional>

namespace skein::cli {

enum class DemoAction { kNone, kKillWorker, kAddWorker, kStop };

/// What the demo knows of its run at one moment.
struct DemoState {
  double seconds = 0;          // Since the demo's start.
  uint64_t generation = 0;     // The generation of the plan in force.
  uint64_t steps_of_plan = 0;  // Committed under it.
  uint32_t newest_worker = 0;  // Largest number of a worker that has work.
};

/// Decides when the demo kills a worker, adds one, and ends. Each fault action waits for its time
/// and until the fault action before it was seen to work: steps are committed under another plan,
/// without the killed worker or with the added one. Plans may change for other reasons, too.
class DemoScript {
 public:
  /// `seconds`   that the whole demo takes, > 0, if the machine is quick enough.
  explicit DemoScript(double seconds);

  /// The next fault action, each once.
  DemoAction next(const DemoState& state);

  /// A fault action was done and is not yet seen to work.
  bool is_waiting() const { return (killed_at_ && !recovered_) || (added_at_ && !grown_); }
  bool has_recovered() const { return recovered_; }  // Steps were committed after the kill.
  bool has_grown() const { return grown_; }          // And with the added worker.

 private:
  const double seconds_;
  uint64_t generation_before_ = 0;
  uint32_t newest_before_ = 0;
  std::optional<double> killed_at_;
  std::optional<double> recovered_at_;
  std::optional<double> added_at_;
  bool recovered_ = false;
  bool grown_ = false;
  bool stopped_ = false;
};

}  // namespace skein::cli
