#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plans/simulator/slowdown.hpp"
#include "plans/sync/pipeline_layout.hpp"

namespace skein::plans {

/// H7: a pipeline replica dies or joins.
struct PipelineChange {
  double at_us = 0;
  uint32_t pipeline = 0;
  bool joins = false;
  bool operator==(const PipelineChange&) const = default;
};

/// The heterogeneity suite H0-H7 for pipeline replicas beside each other. Its devices are the
/// replicas of the layout, its steps a pipeline replica's own iterations, and the pieces of an
/// iteration 0, the forward, and 1, the backward. A recorded H6 is the text of `Scenario`: "H6
/// trace=0:1:0.5,2e6:1:1", each point from_us:replica:speed.
struct PipelineScenario {
  std::string name;                     // With the ratio of sleeps to the step time.
  Scenario slowdown;                    // H0-H6.
  std::vector<PipelineChange> changes;  // H7. Ascending by time.
  /// [pipeline replicas] > 0: work takes so many times as long, whatever else happens; empty: 1.
  std::vector<double> slowness;
};

/// One forward or backward of one iteration.
struct PipelinePiece {
  uint32_t stage = 0;
  uint32_t pipeline = 0;
  uint64_t iteration = 0;
  bool is_backward = false;
  double work_us = 0;  // Undisturbed.
};

/// When a piece that starts at `start_us` ends. A pure function: the same piece always sleeps the
/// same, whatever else happens.
double end_of_piece(const PipelineScenario& scenario, const PipelineLayout& layout,
                    const PipelinePiece& piece, double start_us);

PipelineScenario homogeneous();
/// H1: before each forward and backward of each replica, with probability 0.1, a sleep.
PipelineScenario sleeping_pieces(double sleep_us, double step_us, uint64_t seed);
/// H2: the first `count` pipeline replicas are `factor` times slower for good.
PipelineScenario slow_pipelines(const PipelineLayout& layout, uint32_t count, double factor);
/// H3: in each iteration one replica, in turn, sleeps before its forward.
PipelineScenario round_robin_straggler(double sleep_us, double step_us);
/// H4: each replica in each iteration, with `probability`, sleeps before its forward.
PipelineScenario random_stragglers(double sleep_us, double probability, double step_us,
                                   uint64_t seed);
/// H5: the first `jobs` pipeline replicas share one device, so each is `jobs` times slower.
PipelineScenario shared_device(const PipelineLayout& layout, uint32_t jobs);
/// H6, after the trace of SDPipe, figure 10: two pipeline replicas at 0.2-0.5 of their speed, half
/// of the pipeline replicas at 0.5-1, the rest at full speed; a new draw for each `period_us` up to
/// `duration_us`.
PipelineScenario shared_cloud(const PipelineLayout& layout, double period_us, double duration_us,
                              uint64_t seed);
/// H7: every `period_us` up to `duration_us` the next pipeline replica in turn dies, and joins
/// again half a period later.
PipelineScenario pipelines_come_and_go(const PipelineLayout& layout, double period_us,
                                       double duration_us);

/// All of them at the usual sizes, sleeps in proportion to the step time of a stage.
std::vector<PipelineScenario> heterogeneity_suite(const PipelineLayout& layout, double step_us,
                                                  double duration_us, uint64_t seed);

}  // namespace skein::plans
