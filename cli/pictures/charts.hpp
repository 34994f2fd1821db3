#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace skein::cli {

/// Colours of charts are the page's: the custom properties --c0 to --c7 of what is compared, --ink,
/// --muted, --grid, --good and --bad, so that a page can be read in light and in dark.
inline constexpr size_t kChartColours = 8;

/// How a bar is to be taken.
enum class Tone { kPlain, kGood, kBad };

struct ChartBar {
  std::string label;
  size_t colour = 0;
  std::optional<double> value;  // >= 0; none: there is no bar, and the note says why.
  double low = 0;               // The ends of its interval; both equal the value if there is none.
  double high = 0;
  std::string note;          // Behind the bar.
  Tone tone = Tone::kPlain;  // Of the note.
};

struct BarChart {
  std::vector<ChartBar> bars;       // From top to bottom.
  std::string axis;                 // What the values are.
  std::optional<double> reference;  // A dashed line at a value ...
  std::string reference_label;      // ... and what it is.
};

struct ChartLine {
  std::string label;  // Shown on hovering, and in the legend of lines that are not faint.
  size_t colour = 0;
  bool is_faint = false;
  std::vector<std::pair<double, double>> points;  // Ascending x; what is not finite is left out.
};

struct LineChart {
  std::vector<ChartLine> lines;  // The later ones over the earlier ones.
  std::string x_axis;
  std::string y_axis;
  std::optional<double> target;  // A dashed line across.
};

/// Horizontal bars with their intervals, as an SVG element for a page.
std::string bars_svg(const BarChart& chart);
/// Lines over a common axis, as an SVG element for a page.
std::string lines_svg(const LineChart& chart);

/// Round numbers from at most `low` to at least `high`, some `count` of them.
std::vector<double> axis_ticks(double low, double high, int count);

}  // namespace skein::cli
