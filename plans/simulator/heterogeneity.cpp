#include "plans/simulator/heterogeneity.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

using Kind = Scenario::Kind;

std::string ratio(double sleep_us, double step_us) {
  return absl::StrCat(" sleep/step=", absl::SixDigits(sleep_us / step_us));
}

std::vector<int32_t> replicas_of(const PipelineLayout& layout, uint32_t pipelines) {
  std::vector<int32_t> replicas;
  for (uint32_t stage = 0; stage < layout.stages; ++stage) {
    for (uint32_t pipeline = 0; pipeline < pipelines; ++pipeline) {
      replicas.push_back(static_cast<int32_t>(layout.replica(stage, pipeline).value));
    }
  }
  return replicas;
}

}  // namespace

double end_of_piece(const PipelineScenario& scenario, const PipelineLayout& layout,
                    const PipelinePiece& piece, double start_us) {
  const WorkPiece work{
      .device = static_cast<int32_t>(layout.replica(piece.stage, piece.pipeline).value),
      .step = static_cast<int32_t>(piece.iteration),
      .index = piece.is_backward ? 1 : 0,
      .work_us =
          piece.work_us * (scenario.slowness.empty() ? 1 : scenario.slowness[piece.pipeline])};
  return end_of_work(scenario.slowdown, work, static_cast<int32_t>(layout.replica_count()),
                     start_us);
}

PipelineScenario homogeneous() { return {.name = "H0"}; }

PipelineScenario sleeping_pieces(double sleep_us, double step_us, uint64_t seed) {
  return {.name = absl::StrCat("H1", ratio(sleep_us, step_us)),
          .slowdown = {.kind = Kind::kH1, .probability = 0.1, .sleep_us = sleep_us, .seed = seed}};
}

PipelineScenario slow_pipelines(const PipelineLayout& layout, uint32_t count, double factor) {
  return {.name = absl::StrCat("H2 ", count, " of ", layout.pipelines, " ", factor, "x slower"),
          .slowdown = {.kind = Kind::kH2, .factor = factor, .devices = replicas_of(layout, count)}};
}

PipelineScenario round_robin_straggler(double sleep_us, double step_us) {
  return {.name = absl::StrCat("H3", ratio(sleep_us, step_us)),
          .slowdown = {.kind = Kind::kH3, .sleep_us = sleep_us}};
}

PipelineScenario random_stragglers(double sleep_us, double probability, double step_us,
                                   uint64_t seed) {
  return {.name = absl::StrCat("H4 p=", probability, ratio(sleep_us, step_us)),
          .slowdown = {
              .kind = Kind::kH4, .probability = probability, .sleep_us = sleep_us, .seed = seed}};
}

PipelineScenario shared_device(const PipelineLayout& layout, uint32_t jobs) {
  return {.name = absl::StrCat("H5 HL=", jobs),
          .slowdown = {.kind = Kind::kH5,
                       .factor = static_cast<double>(jobs),
                       .devices = replicas_of(layout, jobs)}};
}

PipelineScenario shared_cloud(const PipelineLayout& layout, double period_us, double duration_us,
                              uint64_t seed) {
  PipelineScenario scenario{.name = "H6", .slowdown = {.kind = Kind::kH6, .seed = seed}};
  Rng rng(seed);
  for (double from_us = 0; from_us < duration_us; from_us += period_us) {
    for (uint32_t pipeline = 0; pipeline < layout.pipelines; ++pipeline) {
      double speed = 1;
      if (pipeline < 2) {
        speed = 0.2 + 0.3 * rng.uniform();
      } else if (pipeline < 2 + layout.pipelines / 2) {
        speed = 0.5 + 0.5 * rng.uniform();
      }
      for (uint32_t stage = 0; stage < layout.stages; ++stage) {
        const auto device = static_cast<int32_t>(layout.replica(stage, pipeline).value);
        scenario.slowdown.trace.push_back({from_us, device, speed});
      }
    }
  }
  return scenario;
}

PipelineScenario pipelines_come_and_go(const PipelineLayout& layout, double period_us,
                                       double duration_us) {
  PipelineScenario scenario{.name = "H7"};
  uint32_t pipeline = 0;
  for (double at_us = period_us; at_us < duration_us; at_us += period_us) {
    scenario.changes.push_back({at_us, pipeline, false});
    scenario.changes.push_back({at_us + period_us / 2, pipeline, true});
    pipeline = (pipeline + 1) % layout.pipelines;
  }
  return scenario;
}

std::vector<PipelineScenario> heterogeneity_suite(const PipelineLayout& layout, double step_us,
                                                  double duration_us, uint64_t seed) {
  std::vector<PipelineScenario> suite = {homogeneous()};
  for (const double sleep : {0.8, 1.6, 3.2}) {  // 0.05, 0.1 and 0.2 s of a step of 60 ms.
    suite.push_back(sleeping_pieces(sleep * step_us, step_us, seed));
  }
  for (const double factor : {2.0, 4.0}) suite.push_back(slow_pipelines(layout, 1, factor));
  suite.push_back(round_robin_straggler(2 * step_us, step_us));
  for (const double probability : {0.1, 0.3, 0.5}) {
    suite.push_back(random_stragglers(6 * step_us, probability, step_us, seed));
  }
  for (uint32_t jobs = 2; jobs <= std::min(layout.pipelines, 3u); ++jobs) {
    suite.push_back(shared_device(layout, jobs));
  }
  suite.push_back(shared_cloud(layout, 50 * step_us, duration_us, seed));
  suite.push_back(pipelines_come_and_go(layout, 50 * step_us, duration_us));
  return suite;
}

}  // namespace skein::plans
