#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/coordinator/run_observer.hpp"
#include "plans/plan/plan.hpp"
#include "plans/simulator/simulator.hpp"

namespace skein::cli {

/// What a slot shows; each kind has its colour. Reductions run beside the computation and have a
/// lane of their own below it.
enum class SlotKind {
  kForward,
  kBackward,
  kBackwardInput,
  kBackwardWeight,
  kUpdate,
  kReduction,
};

struct PictureSlot {
  SlotKind kind = SlotKind::kForward;
  int32_t stage = 0;
  int32_t microbatch = -1;  // -1: none, an update or a reduction.
  std::string label;        // What is written into the slot where it fits: "3".
  double start_us = 0;
  double end_us = 0;
};

/// Bytes held from a moment on.
struct PictureMemory {
  double time_us = 0;
  int64_t bytes = 0;
};

/// One worker.
struct PictureRow {
  std::string name;
  std::vector<PictureSlot> slots;  // The slots of one lane, in order of time and without overlap.
  std::vector<PictureMemory> memory;  // Empty: not known.
  int64_t memory_peak_bytes = 0;      // 0: not known.
  int64_t memory_capacity_bytes = 0;  // 0: not limited.
};

/// A tensor on its way from one row to another.
struct PictureArrow {
  size_t from_row = 0;
  size_t to_row = 0;
  bool backward = false;
  double start_us = 0;
  double end_us = 0;
};

/// What happened or would happen on each worker. All pictures are drawn from this.
struct Picture {
  std::string title;
  std::vector<PictureRow> rows;
  std::vector<PictureArrow> arrows;
  double end_us = 0;         // Times are counted from 0.
  bool has_units = true;     // False: times are in units of the user's own.
  bool many_stages = false;  // Some row has several stages: labels say which.
};

/// Share of the picture's time in which the row computes nothing; reductions do not count as
/// computing.
double bubble_of(const Picture& picture, const PictureRow& row);
/// The mean over the rows.
double bubble_of(const Picture& picture);

/// The first `steps` steps of a simulated run, 1 <= steps <= those that were simulated. `cluster`
/// names the devices and their memory.
Picture picture_of(const plans::Plan& plan, const plans::Simulation& simulation,
                   const plans::ClusterSpec& cluster, int32_t steps);

/// What was measured of the last step that is in `reports`; empty rows if there is none.
Picture picture_of(const std::vector<actors::TimingsReport>& reports);

/// The parts of a picture within [from_us, to_us), counted from `from_us`.
Picture cut(const Picture& picture, double from_us, double to_us);

/// "F", "B", "I", "W", "update", "all-reduce".
const char* name_of(SlotKind kind);
/// "#4c9be8": on paper and in a terminal.
const char* colour_of(SlotKind kind);
/// The kinds that occur, in the order of the enumeration.
std::vector<SlotKind> kinds_of(const Picture& picture);

/// "3.2 GB", or "4 stashes" where times have no units either.
std::string memory_text(const Picture& picture, int64_t bytes);

/// Round times for an axis, from 0 to at most `end_us`: steps of 1, 2 or 5 times a power of ten, at
/// most `count_max` >= 2 of them.
std::vector<double> axis_ticks(double end_us, int count_max);
/// The labels of an axis, all in one unit: "0", "5", "10 ms".
std::vector<std::string> axis_labels(const std::vector<double>& ticks, bool has_units);

}  // namespace skein::cli
