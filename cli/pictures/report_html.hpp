#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/pictures/timeline_rows.hpp"

namespace skein::cli {

/// What one planner came up with, for the table.
struct ReportPlanner {
  std::string name;
  std::string error;     // Why there is no plan; empty if there is one.
  std::string stages;    // "4x1 | 2x2"
  double step_us = 0;    // Simulated.
  double bubble = 0;     // Simulated.
  double advantage = 1;  // step_us / that of the chosen plan.
};

struct Report {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;  // "predicted step", "123 ms".
  std::string history;  // SVG of the whole run; empty: there is none.
  std::optional<Picture> planned;
  std::optional<Picture> measured;
  std::vector<ReportPlanner> planners;
};

/// One self-contained HTML file: facts, the run over time, the planned and the measured timeline on
/// one time axis, bubble and peak memory of each worker as bars, memory over time, the planners,
/// and predicted against measured times.
std::string report_html(const Report& report);

}  // namespace skein::cli
