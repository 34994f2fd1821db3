#include "cli/pictures/run_history.hpp"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "cli/pictures/charts.hpp"
#include "cli/pictures/markup.hpp"

namespace skein::cli {
namespace {

// Sizes in pixels.
constexpr double kWidth = 860;
constexpr double kLeft = 64;
constexpr double kRight = 846;
constexpr double kPanelHeight = 150;
constexpr double kPanelGap = 34;
constexpr double kAxisPixels = 44;
constexpr double kLabelPitch = 15;
constexpr double kLabelCharPixels = 6.6;
constexpr int kLabelRowsMax = 4;
/// More points than that are not told apart.
constexpr size_t kDrawnPoints = 400;
constexpr const char* kLossColour = "#c0392b";
constexpr const char* kMarkColour = "#7d8794";

/// Where one of the two curves is.
struct Panel {
  double top = 0;
  double low = 0, high = 1;  // Values at the bottom and the top.
  double end_seconds = 1;

  double x(double seconds) const { return kLeft + seconds / end_seconds * (kRight - kLeft); }
  double y(double value) const {
    return top + kPanelHeight - (value - low) / (high - low) * kPanelHeight;
  }
};

using Points = std::vector<HistoryPoint>;

/// Every `group` neighbours as one: their samples at the time of the last, with their mean loss.
/// The first point stays, as the time before it is none of a step's.
Points merged_by(const Points& points, size_t group) {
  Points result = {points.front()};
  for (size_t begin = 1; begin < points.size(); begin += group) {
    const size_t end = std::min(points.size(), begin + group);
    HistoryPoint sum = {points[end - 1].seconds, 0, 0};
    for (size_t i = begin; i < end; ++i) {
      sum.samples += points[i].samples;
      sum.loss += points[i].loss / static_cast<double>(end - begin);
    }
    result.push_back(sum);
  }
  return result;
}

std::string words(double x, double y, const std::string& text, const std::string& style) {
  return absl::StrCat("<text x=\"", pixels(x), "\" y=\"", pixels(y), "\" ", style, ">",
                      escaped(text), "</text>\n");
}

std::string line(double x1, double y1, double x2, double y2, const std::string& style) {
  return absl::StrCat("<line x1=\"", pixels(x1), "\" y1=\"", pixels(y1), "\" x2=\"", pixels(x2),
                      "\" y2=\"", pixels(y2), "\" ", style, "/>\n");
}

std::string axes_svg(const Panel& panel, const std::string& name) {
  std::string text = words(kLeft, panel.top - 8, name, "fill=\"#222\" font-weight=\"bold\"");
  for (const double tick : axis_ticks(panel.low, panel.high, 4)) {
    if (tick < panel.low || tick > panel.high) continue;
    absl::StrAppend(&text, line(kLeft, panel.y(tick), kRight, panel.y(tick), "stroke=\"#e3e6ea\""),
                    words(kLeft - 8, panel.y(tick) + 4.5, absl::StrCat(absl::SixDigits(tick)),
                          "fill=\"#555\" text-anchor=\"end\""));
  }
  return text;
}

std::string curve_svg(const std::vector<std::pair<double, double>>& points, const Panel& panel,
                      const char* colour) {
  std::string path;
  for (const auto& [seconds, value] : points) {
    if (!std::isfinite(value)) continue;
    absl::StrAppend(&path, path.empty() ? "" : " ", pixels(panel.x(seconds)), ",",
                    pixels(panel.y(value)));
  }
  return absl::StrCat("<polyline points=\"", path, "\" fill=\"none\" stroke=\"", colour,
                      "\" stroke-width=\"1.6\" stroke-linejoin=\"round\"/>\n");
}

/// Samples per second from the commit before to each one, as steps.
std::vector<std::pair<double, double>> rates_of(const Points& points) {
  std::vector<std::pair<double, double>> rates;
  for (size_t i = 1; i < points.size(); ++i) {
    const double seconds = points[i].seconds - points[i - 1].seconds;
    if (!(seconds > 0)) continue;
    rates.emplace_back(points[i - 1].seconds, points[i].samples / seconds);
    rates.emplace_back(points[i].seconds, points[i].samples / seconds);
  }
  return rates;
}

/// The labels stand above the panels, in as many rows as they need side by side.
struct Labels {
  std::string text;
  int rows = 0;
};

Labels labels_svg(const RunHistory& history, const Panel& panel, double top) {
  Labels labels;
  std::vector<double> ends;  // Where the last label of each row ends.
  for (const HistoryMark& mark : history.marks) {
    if (mark.seconds > panel.end_seconds) continue;
    const double x = panel.x(mark.seconds);
    const double wide = kLabelCharPixels * static_cast<double>(mark.text.size()) + 10;
    const bool is_left = x + wide > kRight;
    const double begin = is_left ? x - wide : x;
    size_t row = 0;
    while (row < ends.size() && ends[row] > begin) ++row;
    if (row >= kLabelRowsMax) continue;  // The line alone tells.
    if (row == ends.size()) ends.push_back(0);
    ends[row] = begin + wide;
    absl::StrAppend(&labels.text, words(is_left ? x - 4 : x + 4,
                                        top + kLabelPitch * static_cast<double>(row + 1), mark.text,
                                        absl::StrCat("fill=\"", mark.is_loss ? kLossColour : "#333",
                                                     "\"", is_left ? " text-anchor=\"end\"" : "")));
  }
  labels.rows = static_cast<int>(ends.size());
  return labels;
}

/// From 0, or from just below the least value, to just above the largest one.
void fit(Panel& panel, const std::vector<std::pair<double, double>>& points, bool from_zero) {
  double low = INFINITY, high = -INFINITY;
  for (const auto& [seconds, value] : points) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (!(low <= high)) low = 0, high = 1;
  if (from_zero) low = std::min(low, 0.0);
  const double room = high > low ? 0.06 * (high - low) : 0.5;
  panel.low = from_zero ? low : low - room;
  panel.high = high + room;
}

}  // namespace

void RunHistory::add(const HistoryPoint& point) {
  if (points.size() >= kHistoryPointsMax) points = merged_by(points, 2);
  points.push_back(point);
}

void RunHistory::mark(const HistoryMark& mark) {
  if (marks.size() < kHistoryMarksMax) marks.push_back(mark);
}

std::string run_history_svg(const RunHistory& history) {
  if (history.points.size() < 2) return "";
  const Points points =
      merged_by(history.points, (history.points.size() + kDrawnPoints - 1) / kDrawnPoints);
  const std::vector<std::pair<double, double>> rates = rates_of(points);
  std::vector<std::pair<double, double>> losses;
  for (const HistoryPoint& point : points) losses.emplace_back(point.seconds, point.loss);
  Panel speed;
  speed.end_seconds = std::max(points.back().seconds, 1e-3);
  fit(speed, rates, /*from_zero=*/true);
  constexpr double kLabelsTop = 28;
  const Labels labels = labels_svg(history, speed, kLabelsTop);
  speed.top = kLabelsTop + kLabelPitch * labels.rows + kPanelGap;
  Panel loss;
  loss.end_seconds = speed.end_seconds;
  loss.top = speed.top + kPanelHeight + kPanelGap;
  fit(loss, losses, /*from_zero=*/false);
  const double bottom = loss.top + kPanelHeight;
  const double height = bottom + kAxisPixels;

  std::string text = absl::StrCat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", pixels(kWidth), " ",
      pixels(height), "\" width=\"", pixels(kWidth), "\" height=\"", pixels(height),
      "\" role=\"img\" aria-label=\"", escaped(history.title),
      "\" font-family=\"DejaVu Sans,Verdana,sans-serif\" font-size=\"12\">\n<rect width=\"100%\" "
      "height=\"100%\" fill=\"#fff\"/>\n",
      words(kLeft, 18, history.title, "fill=\"#222\" font-size=\"14\""), labels.text,
      axes_svg(speed, "samples per second"), axes_svg(loss, "loss"));
  for (const double tick : axis_ticks(0, speed.end_seconds, 8)) {
    if (tick > speed.end_seconds) continue;
    absl::StrAppend(&text, words(speed.x(tick), bottom + 18, absl::StrCat(absl::SixDigits(tick)),
                                 "fill=\"#555\" text-anchor=\"middle\""));
  }
  absl::StrAppend(&text, words((kLeft + kRight) / 2, bottom + 36, "seconds since the run began",
                               "fill=\"#555\" text-anchor=\"middle\""));
  for (const HistoryMark& mark : history.marks) {
    if (mark.seconds > speed.end_seconds) continue;
    const double x = speed.x(mark.seconds);
    absl::StrAppend(&text, line(x, kLabelsTop + 4, x, bottom,
                                absl::StrCat("stroke=\"", mark.is_loss ? kLossColour : kMarkColour,
                                             "\" stroke-dasharray=\"4 3\"")));
  }
  absl::StrAppend(&text, curve_svg(rates, speed, "#2f6db5"), curve_svg(losses, loss, "#3f8f4f"));
  return text + "</svg>\n";
}

}  // namespace skein::cli
