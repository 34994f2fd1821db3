#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace skein::cli {

/// One commit of a run.
struct HistoryPoint {
  double seconds = 0;  // Since the run began, ascending.
  double samples = 0;  // That it has committed, > 0.
  double loss = 0;     // What is not finite is not drawn.
};

/// What happened in between.
struct HistoryMark {
  double seconds = 0;
  std::string text;  // "w2 lost"
  bool is_loss = false;
};

/// What a run did over time. It keeps a bounded number of points: neighbours are merged as it
/// grows.
struct RunHistory {
  std::string title;
  std::vector<HistoryPoint> points;
  std::vector<HistoryMark> marks;

  /// Adds a commit. Where there are too many, two neighbours become one: the samples of both at the
  /// later one's time, with the mean of their losses.
  void add(const HistoryPoint& point);
  /// Adds a mark; those beyond the bound are dropped.
  void mark(const HistoryMark& mark);
};

inline constexpr size_t kHistoryPointsMax = 2048;
inline constexpr size_t kHistoryMarksMax = 64;

/// Samples per second and loss over the time of the run, with a line through both for each mark, as
/// one standalone SVG document of less than 60 kB. Empty if there are fewer than two points.
std::string run_history_svg(const RunHistory& history);

}  // namespace skein::cli
