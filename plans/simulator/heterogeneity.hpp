#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plans/simulator/slowdown.hpp"
#include "plans/sync/column_layout.hpp"

namespace skein::plans {

/// H7: a column dies or joins.
struct ColumnChange {
  double at_us = 0;
  uint32_t column = 0;
  bool joins = false;
  bool operator==(const ColumnChange&) const = default;
};

/// The heterogeneity suite H0-H7 for columns beside each other. Its devices are the
/// replicas of the layout, its steps a column's own iterations, and the pieces of an iteration 0,
/// the forward, and 1, the backward. A recorded H6 is the text of `Scenario`:
/// "H6 trace=0:1:0.5,2e6:1:1", each point from_us:replica:speed.
struct ColumnScenario {
  std::string name;                   // With the ratio of sleeps to the step time.
  Scenario slowdown;                  // H0-H6.
  std::vector<ColumnChange> changes;  // H7. Ascending by time.
  /// [columns] > 0: work takes so many times as long, whatever else happens; empty: 1.
  std::vector<double> slowness;
};

/// One forward or backward of one iteration.
struct ColumnPiece {
  uint32_t stage = 0;
  uint32_t column = 0;
  uint64_t iteration = 0;
  bool is_backward = false;
  double work_us = 0;  // Undisturbed.
};

/// When a piece that starts at `start_us` ends. A pure function: the same piece always sleeps the
/// same, whatever else happens.
double end_of_piece(const ColumnScenario& scenario, const ColumnLayout& layout,
                    const ColumnPiece& piece, double start_us);

ColumnScenario homogeneous();
/// H1: before each forward and backward of each replica, with probability 0.1, a sleep.
ColumnScenario sleeping_pieces(double sleep_us, double step_us, uint64_t seed);
/// H2: the first `count` columns are `factor` times slower for good.
ColumnScenario slow_columns(const ColumnLayout& layout, uint32_t count, double factor);
/// H3: in each iteration one replica, in turn, sleeps before its forward.
ColumnScenario round_robin_straggler(double sleep_us, double step_us);
/// H4: each replica in each iteration, with `probability`, sleeps before its forward.
ColumnScenario random_stragglers(double sleep_us, double probability, double step_us,
                                 uint64_t seed);
/// H5: the first `jobs` columns share one device, so each is `jobs` times slower.
ColumnScenario shared_device(const ColumnLayout& layout, uint32_t jobs);
/// H6, after the trace of SDPipe, figure 10: two columns at 0.2-0.5 of their speed, half of the
/// columns at 0.5-1, the rest at full speed; a new draw for each `period_us` up to `duration_us`.
ColumnScenario shared_cloud(const ColumnLayout& layout, double period_us, double duration_us,
                            uint64_t seed);
/// H7: every `period_us` up to `duration_us` the next column in turn dies, and joins again half a
/// period later.
ColumnScenario columns_come_and_go(const ColumnLayout& layout, double period_us,
                                   double duration_us);

/// All of them at the usual sizes, sleeps in proportion to the step time of a stage.
std::vector<ColumnScenario> heterogeneity_suite(const ColumnLayout& layout, double step_us,
                                                double duration_us, uint64_t seed);

}  // namespace skein::plans
