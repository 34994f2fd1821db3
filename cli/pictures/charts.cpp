#include "cli/pictures/charts.hpp"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/pictures/markup.hpp"

namespace skein::cli {
namespace {

// Sizes in pixels.
constexpr double kBarsWidth = 860;
constexpr double kBarPitch = 34;
constexpr double kBarHeight = 18;
constexpr double kNotePixels = 220;  // Right of the bars.
constexpr double kNameCharPixels = 7.6;
constexpr double kNamePixelsMax = 220;
constexpr double kChartWidth = 560;
constexpr double kChartHeight = 300;
constexpr double kMargin = 10;
constexpr double kAxisPixels = 44;   // Below a chart: numbers and title.
constexpr double kScalePixels = 52;  // Left of a chart.
constexpr double kLegendPitch = 18;
/// An interval that is longer than this part of the longest bar is cut, with an arrow.
constexpr double kIntervalMax = 1.5;

std::string colour(size_t index) { return absl::StrCat("var(--c", index % kChartColours, ")"); }

/// Variants beyond the colours are told apart by dashes.
std::string dashes(size_t index) {
  return index < kChartColours ? "" : " stroke-dasharray=\"7 3\"";
}

std::string number(double value) { return absl::StrCat(absl::SixDigits(value)); }

std::string line(double x1, double y1, double x2, double y2, const std::string& style) {
  return absl::StrCat("<line x1=\"", pixels(x1), "\" y1=\"", pixels(y1), "\" x2=\"", pixels(x2),
                      "\" y2=\"", pixels(y2), "\" ", style, "/>\n");
}

std::string words(double x, double y, const std::string& text, const std::string& style) {
  return absl::StrCat("<text x=\"", pixels(x), "\" y=\"", pixels(y), "\" ", style, ">",
                      escaped(text), "</text>\n");
}

std::string head(double width, double height, const std::string& what) {
  return absl::StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", pixels(width),
                      " ", pixels(height), "\" width=\"", pixels(width), "\" height=\"",
                      pixels(height), "\" role=\"img\" aria-label=\"", escaped(what),
                      "\" font-size=\"13\">\n");
}

constexpr const char* kGrid = "stroke=\"var(--grid)\"";
constexpr const char* kDashed =
    "stroke=\"var(--ink)\" stroke-dasharray=\"5 4\" stroke-width=\"1.4\"";
constexpr const char* kMutedMiddle = "fill=\"var(--muted)\" text-anchor=\"middle\"";

std::string note_style(Tone tone) {
  if (tone == Tone::kGood) return "fill=\"var(--good)\" font-weight=\"bold\"";
  if (tone == Tone::kBad) return "fill=\"var(--bad)\" font-weight=\"bold\"";
  return "fill=\"var(--muted)\"";
}

/// Where the values of a bar chart are.
struct BarPage {
  double left = 0;
  double pixels_per_unit = 1;
  double end = 1;  // Value at the right end.
  double x(double value) const { return left + std::min(value, end) * pixels_per_unit; }
};

std::string bar_svg(const BarPage& page, const ChartBar& bar, double top) {
  const double middle = top + kBarPitch / 2;
  std::string text =
      words(page.left - 10, middle + 4.5, bar.label, "fill=\"var(--ink)\" text-anchor=\"end\"");
  if (!bar.value) return text + words(page.left + 6, middle + 4.5, bar.note, note_style(bar.tone));
  absl::StrAppend(&text, "<rect x=\"", pixels(page.left), "\" y=\"",
                  pixels(middle - kBarHeight / 2), "\" width=\"",
                  pixels(page.x(*bar.value) - page.left), "\" height=\"", pixels(kBarHeight),
                  "\" rx=\"2\" fill=\"", colour(bar.colour), "\"><title>", escaped(bar.label), ": ",
                  escaped(bar.note), "</title></rect>\n");
  const double from = page.x(std::max(0.0, bar.low)), to = page.x(bar.high);
  if (bar.high > bar.low) {
    const std::string style = "stroke=\"var(--ink)\" stroke-width=\"1.6\"";
    absl::StrAppend(&text, line(from, middle, to, middle, style));
    absl::StrAppend(&text, line(from, middle - 5, from, middle + 5, style));
    if (bar.high <= page.end) {
      absl::StrAppend(&text, line(to, middle - 5, to, middle + 5, style));
    } else {  // An arrow: it goes on.
      absl::StrAppend(&text, line(to, middle, to - 6, middle - 4, style));
      absl::StrAppend(&text, line(to, middle, to - 6, middle + 4, style));
    }
  }
  return text +
         words(std::max(to, page.x(*bar.value)) + 9, middle + 4.5, bar.note, note_style(bar.tone));
}

/// Where the points of a line chart are.
struct ChartPage {
  double x_low = 0, x_high = 1, y_low = 0, y_high = 1;
  double top = 0;
  double x(double value) const {
    return kScalePixels +
           (value - x_low) / (x_high - x_low) * (kChartWidth - kScalePixels - kMargin);
  }
  double y(double value) const {
    value = std::min(value, y_high);
    return top + kChartHeight - (value - y_low) / (y_high - y_low) * kChartHeight;
  }
};

bool is_drawn(const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second);
}

ChartPage chart_page(const LineChart& chart) {
  ChartPage page;
  double x_high = 0, y_low = chart.target.value_or(INFINITY),
         y_high = chart.target.value_or(-INFINITY);
  for (const ChartLine& each : chart.lines) {
    bool is_first = true;
    for (const auto& point : each.points) {
      if (!is_drawn(point)) continue;
      x_high = std::max(x_high, point.first);
      y_low = std::min(y_low, point.second);
      // Lines that are compared fall: one that jumps up for once is cut off at the top.
      if (is_first) y_high = std::max(y_high, point.second);
      is_first = false;
    }
  }
  if (!(y_low < y_high)) {
    y_low = std::isfinite(y_low) ? y_low - 0.5 : 0;
    y_high = y_low + 1;
  }
  page.x_high = x_high > 0 ? x_high : 1;
  const double room = 0.05 * (y_high - y_low);
  page.y_low = y_low - room;
  page.y_high = y_high + room;
  return page;
}

std::string axes_svg(const LineChart& chart, const ChartPage& page) {
  std::string text;
  for (const double tick : axis_ticks(page.x_low, page.x_high, 6)) {
    if (tick > page.x_high) continue;
    absl::StrAppend(&text,
                    line(page.x(tick), page.top, page.x(tick), page.top + kChartHeight, kGrid),
                    words(page.x(tick), page.top + kChartHeight + 18, number(tick), kMutedMiddle));
  }
  for (const double tick : axis_ticks(page.y_low, page.y_high, 5)) {
    if (tick < page.y_low || tick > page.y_high) continue;
    absl::StrAppend(&text,
                    line(kScalePixels, page.y(tick), kChartWidth - kMargin, page.y(tick), kGrid),
                    words(kScalePixels - 8, page.y(tick) + 4.5, number(tick),
                          "fill=\"var(--muted)\" text-anchor=\"end\""));
  }
  absl::StrAppend(&text, words((kScalePixels + kChartWidth) / 2, page.top + kChartHeight + 38,
                               chart.x_axis, kMutedMiddle));
  return text;
}

std::string polyline(const ChartLine& each, const ChartPage& page) {
  std::string path;
  for (const auto& point : each.points) {
    if (!is_drawn(point)) continue;
    absl::StrAppend(&path, path.empty() ? "" : " ", pixels(page.x(point.first)), ",",
                    pixels(page.y(point.second)));
  }
  return absl::StrCat("<polyline points=\"", path, "\" fill=\"none\" stroke=\"",
                      colour(each.colour), "\" stroke-width=\"", each.is_faint ? "1" : "2.4",
                      "\" stroke-opacity=\"", each.is_faint ? "0.4" : "1", "\"",
                      dashes(each.colour), "><title>", escaped(each.label),
                      "</title></polyline>\n");
}

}  // namespace

std::vector<double> axis_ticks(double low, double high, int count) {
  if (!(std::isfinite(low) && std::isfinite(high) && low < high) || count < 1) return {low};
  const double raw = (high - low) / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= raw * 0.999) step = factor * power;
  }
  std::vector<double> ticks;
  const auto first = static_cast<int64_t>(std::floor(low / step + 1e-9));
  const auto last = static_cast<int64_t>(std::ceil(high / step - 1e-9));
  for (int64_t i = first; i <= last; ++i) ticks.push_back(static_cast<double>(i) * step);
  return ticks;
}

std::string bars_svg(const BarChart& chart) {
  BarPage page;
  double longest = chart.reference.value_or(0);
  double reach = 0;
  size_t name_chars = 0;
  for (const ChartBar& bar : chart.bars) {
    longest = std::max(longest, bar.value.value_or(0));
    if (bar.value) reach = std::max(reach, bar.high);
    name_chars = std::max(name_chars, bar.label.size());
  }
  if (!(longest > 0)) longest = 1;
  page.left = 20 + std::min(kNamePixelsMax, kNameCharPixels * static_cast<double>(name_chars));
  page.end = std::max(longest, std::min(reach, kIntervalMax * longest)) * 1.02;
  page.pixels_per_unit = (kBarsWidth - page.left - kNotePixels) / page.end;
  const double top = 24;
  const double bottom = top + kBarPitch * static_cast<double>(chart.bars.size());
  std::string text = head(kBarsWidth, bottom + kAxisPixels, chart.axis);
  for (const double tick : axis_ticks(0, page.end, 6)) {
    if (tick > page.end) continue;
    absl::StrAppend(&text, line(page.x(tick), top, page.x(tick), bottom, kGrid),
                    words(page.x(tick), bottom + 16, number(tick), kMutedMiddle));
  }
  absl::StrAppend(&text, words(page.left, bottom + 36, chart.axis, "fill=\"var(--muted)\""));
  for (size_t i = 0; i < chart.bars.size(); ++i) {
    absl::StrAppend(&text, bar_svg(page, chart.bars[i], top + kBarPitch * static_cast<double>(i)));
  }
  if (chart.reference) {
    const double x = page.x(*chart.reference);
    absl::StrAppend(&text, line(x, top - 4, x, bottom, kDashed),
                    words(x, top - 9, chart.reference_label, kMutedMiddle));
  }
  return text + "</svg>\n";
}

std::string lines_svg(const LineChart& chart) {
  ChartPage page = chart_page(chart);
  std::string legend;
  double x = kScalePixels, y = kLegendPitch;
  for (const ChartLine& each : chart.lines) {
    if (each.is_faint) continue;
    const double wide = 34 + kNameCharPixels * static_cast<double>(each.label.size());
    if (x + wide > kChartWidth && x > kScalePixels) {
      x = kScalePixels;
      y += kLegendPitch;
    }
    absl::StrAppend(&legend,
                    line(x, y - 5, x + 16, y - 5,
                         absl::StrCat("stroke-width=\"3\" stroke=\"", colour(each.colour), "\"",
                                      dashes(each.colour))),
                    words(x + 21, y, each.label, "fill=\"var(--ink)\""));
    x += wide;
  }
  page.top = y + 14;
  std::string text = head(kChartWidth, page.top + kChartHeight + kAxisPixels,
                          chart.y_axis + " over " + chart.x_axis);
  absl::StrAppend(&text, legend, axes_svg(chart, page));
  for (const ChartLine& each : chart.lines) absl::StrAppend(&text, polyline(each, page));
  if (chart.target) {
    absl::StrAppend(&text,
                    line(kScalePixels, page.y(*chart.target), kChartWidth - kMargin,
                         page.y(*chart.target), kDashed),
                    words(kChartWidth - kMargin - 4, page.y(*chart.target) - 5,
                          absl::StrCat("target ", number(*chart.target)),
                          "fill=\"var(--ink)\" text-anchor=\"end\""));
  }
  return text + "</svg>\n";
}

}  // namespace skein::cli
