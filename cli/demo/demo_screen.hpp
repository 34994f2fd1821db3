#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/pictures/terminal_grid.hpp"
#include "cli/pictures/timeline_rows.hpp"

namespace skein::cli {

struct DemoWorker {
  uint32_t number = 0;
  double speed = 0;             // As measured, w1 being 1.0; 0: not known yet.
  std::vector<int32_t> stages;  // Empty: it has no work.
  int64_t layers = 0;           // The layers of all its stages.
  bool is_lost = false;
};

struct DemoEvent {
  double seconds = 0;  // Since the demo's start.
  std::string text;
  bool is_trouble = false;
  bool is_good = false;
};

/// A moment that the loss curve shows.
struct DemoMark {
  uint64_t step = 0;
  std::string text;
};

/// All that the demo's screen shows.
struct DemoView {
  double seconds = 0;          // Since the start,
  double seconds_planned = 0;  // of so many.
  std::string phase;           // "training"
  uint64_t step = 0;           // Committed ones.
  double tokens_per_second = 0;
  uint64_t generation = 0;
  uint64_t steps_of_plan = 0;  // Committed under the plan in force.
  std::string model;           // "14 layers = embedding, 12 blocks, head"
  std::string schedule;        // "1F1B"; empty: there is no plan yet.
  double predicted_step_us = 0;
  double gain = 0;                  // Predicted, over an even split of the layers; 0: not known.
  std::vector<DemoWorker> workers;  // In order of their numbers.
  Picture timeline;                 // The last step that was recorded; no rows: none was.
  uint64_t timeline_step = 0;
  std::vector<double> losses;  // The losses of steps 1, 2, ...
  std::vector<DemoMark> marks;
  std::vector<DemoEvent> events;  // Oldest first.
};

struct DemoScreenOptions {
  int columns = 80;
  int rows = 24;
  GridColours colours = GridColours::kNone;
  std::string hint;  // "Ctrl-C ends"; in the corner.
};

/// The screen as lines: at most `rows`, none wider than `columns`, but for what a terminal of less
/// than 40 x 12 would need.
std::vector<std::string> demo_screen(const DemoView& view, const DemoScreenOptions& options);

/// A line for each worker: speed, layers as a bar, stages.
std::vector<std::string> pipeline_lines(const DemoView& view, const DemoScreenOptions& options);

/// "step 12 | loss 3.250 | 9,000 tokens/s | 4 workers | generation 1"
std::string status_line(const DemoView& view);

/// What was recorded of a step: a row for each worker, then the axis and the legend. Empty if
/// nothing was recorded.
std::vector<std::string> timeline_lines(const DemoView& view, const DemoScreenOptions& options);

/// "plan 2: 6 + 5 + 3 layers on w1 w2 w4, predicted 1.31x an even split"
std::string plan_line(const DemoView& view);

/// "0:42"
std::string clock_text(double seconds);

}  // namespace skein::cli
