#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace skein::plans {

/// How long a replica that is the first to be ready waits for others. In shares of its step time,
/// or, as in the artefact of SDPipe, in microseconds.
struct WindowOptions {
  bool scales = true;
  double initial = 0.10;  // A window far below a step mostly stays alone.
  double least = 0.05;
  double most = 0.20;
  double growth = 2;          // After a group that was too small.
  double shrinkage = 0.9;     // After any other.
  size_t group_size_min = 2;  // Less is too small.
};

/// 1 ms at first, between 0.01 and 10 ms. Source: SDPipe, artefact, `preduce.py`.
WindowOptions artefact_window();

/// The window of one replica, adapted to the groups that it was in. Source: SDPipe, PVLDB'23,
/// artefact. Differs: scaled to a moving average of the replica's step time, as a fixed window is
/// lost in long steps and a waste in short ones.
class AdaptiveWindow {
 public:
  explicit AdaptiveWindow(const WindowOptions& options) : window_(options.initial) {}

  uint64_t window_us(const WindowOptions& options) const;
  /// A step took so long, without what it waited for a group.
  void on_step(uint64_t step_us);
  void on_group(const WindowOptions& options, size_t group_size);

 private:
  double window_;
  std::optional<double> step_us_;  // None: not measured yet.
};

}  // namespace skein::plans
