#pragma once

#include <string>

#include "cli/config/planning_inputs.hpp"

namespace skein::cli {

/// Files that pictures and schedules go to; empty: not wanted.
struct PictureFiles {
  std::string svg;
  std::string html;
  std::string csv;       // The schedule in PyTorch's format.
  std::string measured;  // Run folder whose measured timeline the HTML shows, too.
};

struct PlanOptions {
  PlanningOptions planning;
  PictureFiles files;
  std::string out;     // File for the plan's text.
  bool json = false;   // Print JSON instead of tables.
  bool shows = false;  // Print the grid, too.
};

/// `skein plan`: plans, compares with the other planners, prints and writes. Returns the exit code.
int plan(const PlanOptions& options);

}  // namespace skein::cli
