#include "cli/pictures/report_html.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/pictures/markup.hpp"
#include "cli/pictures/svg.hpp"
#include "cli/report/number_text.hpp"

namespace skein::cli {
namespace {

constexpr const char* kHead = R"(<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body{font:14px/1.45 "DejaVu Sans",Verdana,sans-serif;color:#222;background:#fff;margin:24px}
h1{font-size:20px}h2{font-size:16px;margin-top:28px}
table{border-collapse:collapse}td,th{padding:3px 12px 3px 0;text-align:left;white-space:nowrap}
th{border-bottom:1px solid #999}td.r,th.r{text-align:right}tr.first td{font-weight:bold}
.wide{overflow-x:auto}.bar{display:inline-block;height:12px;vertical-align:middle}
.track{display:inline-block;width:240px;background:#f1f1f1}.bad{color:#a33}.note{color:#555}
</style>
)";

std::string heading(const char* text) { return absl::StrCat("<h2>", text, "</h2>\n"); }

std::string facts_html(const Report& report) {
  std::string text = "<table>\n";
  for (const auto& [name, value] : report.facts) {
    absl::StrAppend(&text, "<tr><td>", escaped(name), "</td><td>", escaped(value), "</td></tr>\n");
  }
  return text + "</table>\n";
}

/// Both pictures get the same axis and the same room for names.
SvgOptions shared_options(const Report& report) {
  SvgOptions options;
  for (const auto* picture : {&report.planned, &report.measured}) {
    if (!picture->has_value()) continue;
    options.axis_end_us = std::max(options.axis_end_us, (*picture)->end_us);
    for (const PictureRow& row : (*picture)->rows) {
      options.name_chars = std::max(options.name_chars, row.name.size());
    }
  }
  for (const auto* picture : {&report.planned, &report.measured}) {
    if (!picture->has_value()) continue;
    options.axis_pixels =
        std::max(options.axis_pixels, axis_pixels_for(**picture, options.axis_end_us));
  }
  return options;
}

std::string timelines_html(const Report& report, const SvgOptions& options) {
  std::string text;
  if (report.planned) {
    absl::StrAppend(&text, heading("Planned timeline"), "<div class=\"wide\">",
                    svg(*report.planned, options), "</div>\n");
  }
  if (report.measured) {
    absl::StrAppend(&text, heading("Measured timeline"), "<div class=\"wide\">",
                    svg(*report.measured, options), "</div>\n");
  }
  return text;
}

std::string bar(double share, const char* colour) {
  return absl::StrCat("<span class=\"track\"><span class=\"bar\" style=\"width:",
                      pixels(100 * std::clamp(share, 0.0, 1.0)), "%;background:", colour,
                      "\"></span></span> ");
}

std::string bars_html(const Picture& picture) {
  int64_t largest = 1;
  for (const PictureRow& row : picture.rows) {
    largest = std::max({largest, row.memory_peak_bytes, row.memory_capacity_bytes});
  }
  std::string text = "<table>\n<tr><th>worker</th><th>bubble</th><th>peak memory</th></tr>\n";
  for (const PictureRow& row : picture.rows) {
    const double bubble = bubble_of(picture, row);
    absl::StrAppend(&text, "<tr><td>", escaped(row.name), "</td><td>", bar(bubble, "#e0708f"),
                    absl::StrFormat("%.1f%%", bubble * 100), "</td><td>");
    if (row.memory_peak_bytes > 0) {
      const int64_t whole = row.memory_capacity_bytes > 0 ? row.memory_capacity_bytes : largest;
      absl::StrAppend(
          &text,
          bar(static_cast<double>(row.memory_peak_bytes) / static_cast<double>(whole), "#6fa8dc"),
          memory_text(picture, row.memory_peak_bytes));
      if (row.memory_capacity_bytes > 0) {
        absl::StrAppend(&text, " of ", bytes_text(row.memory_capacity_bytes));
      }
    } else {
      text += "not known";
    }
    text += "</td></tr>\n";
  }
  return text + "</table>\n";
}

std::string planners_html(const std::vector<ReportPlanner>& planners) {
  std::string text =
      "<table>\n<tr><th>planner</th><th>layers x replicas</th><th class=\"r\">step</th>"
      "<th class=\"r\">bubble</th><th class=\"r\">times the chosen one's step</th></tr>\n";
  for (const ReportPlanner& planner : planners) {
    absl::StrAppend(&text, "<tr><td>", escaped(planner.name), "</td>");
    if (!planner.error.empty()) {
      absl::StrAppend(&text, "<td class=\"bad\" colspan=\"4\">", escaped(planner.error),
                      "</td></tr>\n");
      continue;
    }
    absl::StrAppend(&text, "<td>", escaped(planner.stages), "</td><td class=\"r\">",
                    time_text(planner.step_us, true), "</td><td class=\"r\">",
                    absl::StrFormat("%.1f%%</td><td class=\"r\">%.3f</td></tr>\n",
                                    planner.bubble * 100, planner.advantage));
  }
  return text + "</table>\n";
}

/// Mean length of the slots of a stage and kind.
using MeanTimes = std::map<std::pair<int32_t, SlotKind>, double>;

MeanTimes mean_times(const Picture& picture) {
  std::map<std::pair<int32_t, SlotKind>, std::pair<double, double>> sums;
  for (const PictureRow& row : picture.rows) {
    for (const PictureSlot& slot : row.slots) {
      if (slot.kind == SlotKind::kReduction) continue;
      auto& [sum, count] = sums[{slot.stage, slot.kind}];
      sum += slot.end_us - slot.start_us;
      count += 1;
    }
  }
  MeanTimes means;
  for (const auto& [key, sum] : sums) means[key] = sum.first / sum.second;
  return means;
}

std::string comparison_row(const std::string& what, const std::string& predicted,
                           const std::string& measured, double ratio) {
  const double percent = std::round(1000 * (ratio - 1)) / 10 + 0.0;  // No "-0.0".
  return absl::StrCat("<tr><td>", what, "</td><td class=\"r\">", predicted, "</td><td class=\"r\">",
                      measured, "</td><td class=\"r\">", absl::StrFormat("%+.1f%%", percent),
                      "</td></tr>\n");
}

std::string comparison_html(const Picture& planned, const Picture& measured) {
  std::string text =
      "<table>\n<tr><th></th><th class=\"r\">predicted</th><th class=\"r\">measured</th>"
      "<th class=\"r\">measured is off by</th></tr>\n";
  const bool has_units = planned.has_units;
  if (planned.end_us > 0) {
    absl::StrAppend(&text, comparison_row("step", time_text(planned.end_us, has_units),
                                          time_text(measured.end_us, has_units),
                                          measured.end_us / planned.end_us));
  }
  absl::StrAppend(&text, "<tr><td>bubble</td>",
                  absl::StrFormat("<td class=\"r\">%.1f%%</td><td class=\"r\">%.1f%%</td>",
                                  bubble_of(planned) * 100, bubble_of(measured) * 100),
                  "<td></td></tr>\n");
  const MeanTimes real = mean_times(measured);
  for (const auto& [key, predicted] : mean_times(planned)) {
    const auto found = real.find(key);
    if (found == real.end() || !(predicted > 0)) continue;
    const std::string what = key.second == SlotKind::kUpdate
                                 ? std::string("update")
                                 : absl::StrCat(name_of(key.second), " of stage ", key.first);
    absl::StrAppend(&text,
                    comparison_row(what, time_text(predicted, has_units),
                                   time_text(found->second, has_units), found->second / predicted));
  }
  return text + "</table>\n";
}

}  // namespace

std::string report_html(const Report& report) {
  std::string text =
      absl::StrCat("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<title>", escaped(report.title),
                   "</title>\n", kHead, "</head>\n<body>\n<h1>", escaped(report.title), "</h1>\n");
  absl::StrAppend(&text, facts_html(report));
  if (!report.history.empty()) {
    absl::StrAppend(&text, heading("The run over time"), "<div class=\"wide\">", report.history,
                    "</div>\n");
  }
  const SvgOptions options = shared_options(report);
  absl::StrAppend(&text, timelines_html(report, options));
  if (report.planned && report.measured) {
    absl::StrAppend(&text, heading("Predicted against measured"),
                    comparison_html(*report.planned, *report.measured));
  }
  if (report.planned || report.measured) {
    absl::StrAppend(&text, heading(report.planned ? "Workers, as planned" : "Workers"),
                    bars_html(report.planned ? *report.planned : *report.measured));
  }
  const std::string memory = report.planned ? memory_svg(*report.planned, options) : "";
  if (!memory.empty()) {
    absl::StrAppend(&text, heading("Memory over time"), "<div class=\"wide\">", memory, "</div>\n");
  }
  if (!report.planners.empty()) {
    absl::StrAppend(&text, heading("Planners"), planners_html(report.planners));
  }
  return text + "</body>\n</html>\n";
}

}  // namespace skein::cli
