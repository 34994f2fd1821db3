#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "plans/plan/plan.hpp"
#include "plans/simulator/simulator.hpp"

namespace skein::cli {

/// A schedule in numbers alone, as on paper: equal stages, one micro-batch after another.
struct QuickOptions {
  int32_t stages = 0;  // Ranks of the pipeline, one stage each unless `virtual_stages`.
  int32_t microbatches = 0;
  int32_t virtual_stages = 1;  // Stages of each rank, which share its times.
  double forward = 1;          // F of a rank for one micro-batch.
  double backward = 2;         // B; without W if `weight` is given.
  double weight = 0;           // W; 0: half of `backward` where a schedule has I and W.
  double transfer = 0;         // Between neighbouring stages.
  std::string schedule = "1F1B";
  std::string schedule_csv;  // A file that replaces it; stages and micro-batches are its own.
};

struct QuickSimulation {
  plans::Plan plan;
  plans::ClusterSpec cluster;
  plans::Simulation simulation;
};

/// Runs one step. InvalidArgument   for a number out of range or a schedule that is not made for
/// the shape.
absl::StatusOr<QuickSimulation> quick_simulation(const QuickOptions& options);

}  // namespace skein::cli
