#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "plans/base/rng.hpp"
#include "plans/simulator/simulator.hpp"
#include "tests/plans/simulator/pipelines.hpp"

namespace skein::plans {
namespace {

constexpr uint64_t kCases = 150;

struct RandomCase {
  Plan plan;
  Profile profile;
  ClusterSpec cluster;
  SimulationOptions options;
};

double uniform(Rng& rng, double low, double high) { return low + (high - low) * rng.uniform(); }

Profile random_profile(Rng& rng, int64_t layers, bool tied) {
  Profile profile;
  profile.rows = {1, 4};
  profile.update_us_per_byte = uniform(rng, 0, 1e-3);
  for (int64_t l = 0; l < layers; ++l) {
    LayerProfile& layer = profile.layers.emplace_back();
    const LayerTimes one = {uniform(rng, 0, 9), uniform(rng, 0, 9), uniform(rng, 0, 9)};
    layer.at = {one, {3 * one.forward_us, 2 * one.backward_input_us, 4 * one.backward_weight_us}};
    layer.activation_row_bytes = static_cast<int64_t>(rng.below(2000));
    layer.stash_row_bytes = static_cast<int64_t>(rng.below(5000));
    layer.parameter_bytes = 100 + static_cast<int64_t>(rng.below(20000));
  }
  if (tied) profile.tied_bytes = 100;
  return profile;
}

ClusterSpec random_cluster(Rng& rng, int32_t devices) {
  ClusterSpec cluster;
  const auto hosts = static_cast<int32_t>(1 + rng.below(4));
  for (int32_t h = 0; h < hosts; ++h) {
    cluster.hosts.push_back({"host",
                             {uniform(rng, 1e8, 1e10), uniform(rng, 0, 2)},
                             {uniform(rng, 1e8, 1e9), uniform(rng, 0, 20)}});
    if (h > 1 && rng.below(2) == 0) {
      cluster.links.push_back({h, h - 1, {uniform(rng, 1e7, 1e9), uniform(rng, 0, 50)}});
    }
  }
  for (int32_t d = 0; d < devices; ++d) {
    ClusterDevice& device = cluster.devices.emplace_back();
    device.host = static_cast<int32_t>(rng.below(static_cast<uint64_t>(hosts)));
    device.speed = uniform(rng, 0.2, 2);
  }
  return cluster;
}

/// Rows that tile [0, B), each replica with at least one.
void draw_rows(Rng& rng, std::vector<ReplicaPlan>& replicas, int64_t B) {
  std::vector<int64_t> counts(replicas.size(), 1);
  for (int64_t i = static_cast<int64_t>(replicas.size()); i < B; ++i) {
    ++counts[rng.below(counts.size())];
  }
  int64_t begin = 0;
  for (size_t r = 0; r < replicas.size(); ++r) {
    replicas[r].rows = {begin, counts[r]};
    begin += counts[r];
  }
}

Scenario random_scenario(Rng& rng) {
  const char* texts[] = {
      "H0",          "H1 sleep=30 probability=0.2", "H2 factor=3 devices=0",
      "H3 sleep=50", "H4 sleep=90 probability=0.5", "H6 trace=0:0:0.3,40:1:0.5,90:0:2"};
  return *parse_scenario(texts[rng.below(std::size(texts))]);
}

RandomCase random_case(uint64_t seed) {
  Rng rng(seed);
  RandomCase random;
  PipelineShape shape;
  const auto S = static_cast<int64_t>(1 + rng.below(6));
  shape.B = static_cast<int64_t>(4 + rng.below(5));
  shape.M = static_cast<int64_t>(1 + rng.below(7));
  shape.tied = rng.below(2) == 0;
  shape.recompute = rng.below(2) == 0;
  shape.schedule = rng.below(2) == 0 ? ScheduleKind::kGPipe : ScheduleKind::k1F1B;
  for (int64_t s = 0; s < S; ++s) {
    shape.layers.push_back(static_cast<int64_t>(1 + rng.below(3)));
    shape.replicas.push_back(static_cast<int64_t>(1 + rng.below(4)));
  }
  const int64_t layers = std::accumulate(shape.layers.begin(), shape.layers.end(), int64_t{0});
  random.plan =
      rng.below(3) == 0
          ? looped_pipeline(shape, static_cast<int64_t>(1 + rng.below(static_cast<uint64_t>(S))))
          : pipeline(shape);
  for (StagePlan& stage : random.plan.stages) draw_rows(rng, stage.replicas, shape.B);
  if (rng.below(2) == 0) split_backwards(random.plan);
  random.profile = random_profile(rng, layers, shape.tied);
  // Two devices more than any plan needs; workers in another order than devices.
  random.cluster = random_cluster(rng, 4 * 6 + 2);
  for (StagePlan& stage : random.plan.stages) {
    for (ReplicaPlan& replica : stage.replicas) replica.worker.value = 27 - replica.worker.value;
  }
  random.options.steps = static_cast<int32_t>(1 + rng.below(3));
  random.options.bucketed_reduction = rng.below(2) == 0;
  random.options.action_overhead_us = rng.below(2) == 0 ? 0 : 1.5;
  random.options.commit_us = rng.below(2) == 0 ? 0 : 10;
  random.options.scenario = random_scenario(rng);
  return random;
}

Simulation run(const RandomCase& random) {
  auto simulation = simulate(random.plan, random.profile, random.cluster, random.options);
  EXPECT_TRUE(simulation.ok()) << simulation.status();
  return simulation.ok() ? *std::move(simulation) : Simulation{};
}

TEST(SimulatorProperty, EveryWorkerRunsItsListInOrderWithoutOverlap) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const RandomCase random = random_case(seed);
    const Simulation simulation = run(random);
    std::map<WorkerId, int32_t> rank_of;
    for (const StagePlan& stage : random.plan.stages) {
      for (const ReplicaPlan& replica : stage.replicas) rank_of[replica.worker] = stage.rank();
    }
    ASSERT_EQ(simulation.workers.size(), rank_of.size());
    for (const SimulatedWorker& worker : simulation.workers) {
      const ActionList& actions = random.plan.actions[static_cast<size_t>(rank_of.at(worker.id))];
      const auto steps = static_cast<size_t>(random.options.steps);
      ASSERT_EQ(worker.slots.size(), steps * (actions.size() + 1));
      double busy_us = 0, free_us = 0;
      for (size_t i = 0; i < worker.slots.size(); ++i) {
        const SimulatedSlot& slot = worker.slots[i];
        const size_t position = i % (actions.size() + 1);
        EXPECT_EQ(slot.step, static_cast<int32_t>(i / (actions.size() + 1)));
        EXPECT_EQ(slot.is_update, position == actions.size());
        EXPECT_TRUE(slot.is_update || slot.action == actions[position]);
        EXPECT_GE(slot.start_us, free_us + (i == 0 ? 0 : random.options.action_overhead_us));
        EXPECT_GE(slot.end_us, slot.start_us);
        free_us = slot.end_us;
        busy_us += slot.end_us - slot.start_us;
      }
      EXPECT_DOUBLE_EQ(worker.busy_us, busy_us);
      EXPECT_LE(worker.busy_us, simulation.step_end_us.back() * (1 + 1e-12));
    }
    EXPECT_GE(simulation.bubble, -1e-12);
    EXPECT_LE(simulation.bubble, 1);
  }
}

TEST(SimulatorProperty, WithoutScenarioBusyTimeIsThatOfTheActions) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    RandomCase random = random_case(seed);
    random.options.scenario = {};
    double busy_us = 0, expected_us = 0;
    for (const SimulatedWorker& worker : run(random).workers) busy_us += worker.busy_us;
    for (const StagePlan& stage : random.plan.stages) {
      for (const ReplicaPlan& replica : stage.replicas) {
        const LayerTimes times = range_times(random.profile, stage.layers, replica.rows.count);
        const double microbatch_us =
            times.total_us() + (random.plan.recompute ? times.forward_us : 0);
        expected_us += (microbatch_us * static_cast<double>(random.plan.microbatch_count) +
                        static_cast<double>(parameter_bytes(random.profile, stage.layers)) *
                            random.profile.update_us_per_byte) /
                       random.cluster.devices[replica.worker.value - 1].speed *
                       random.options.steps;
      }
    }
    EXPECT_NEAR(busy_us, expected_us, 1e-9 * expected_us);
  }
}

TEST(SimulatorProperty, EveryCutCarriesTheWholeMicrobatchBothWays) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const RandomCase random = random_case(seed);
    const Plan& plan = random.plan;
    std::map<size_t, int64_t> expected, sent;  // By the stage behind the cut.
    for (size_t s = 1; s < plan.stages.size(); ++s) {
      int64_t rows = plan.microbatch_rows;  // But those that stay on their worker.
      for (const ReplicaPlan& replica : plan.stages[s].replicas) {
        for (const Route& route : routes_from(plan, replica.id, -1)) {
          if (replica_of(plan, route.to).worker == replica.worker) rows -= route.rows.count;
        }
      }
      if (rows == 0) continue;
      expected[s] = 2 * rows * plan.microbatch_count * random.options.steps *
                    cut_row_bytes(random.profile, plan.stages[s].layers.begin);
    }
    for (const SimulatedTransfer& transfer : run(random).transfers) {
      const auto stage = static_cast<size_t>(transfer.producer.stage);
      sent[transfer.producer.type == ActionType::kForward ? stage + 1 : stage] += transfer.bytes;
      EXPECT_NE(transfer.from, transfer.to);
      const LinkSpeed path =
          path_speed(random.cluster, static_cast<int32_t>(transfer.from.value) - 1,
                     static_cast<int32_t>(transfer.to.value) - 1);
      const double alone_us =
          static_cast<double>(transfer.bytes) * 1e6 / path.bytes_per_second + path.latency_us;
      EXPECT_GE(transfer.end_us - transfer.start_us, alone_us * (1 - 1e-9) - 1e-9);
    }
    EXPECT_EQ(sent, expected) << "seed " << seed;
  }
}

TEST(SimulatorProperty, MemoryReturnsToTheStateAfterEveryRun) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Simulation simulation = run(random_case(seed));
    for (const SimulatedWorker& worker : simulation.workers) {
      EXPECT_EQ(worker.memory.front().time_us, 0);
      EXPECT_TRUE(
          std::is_sorted(worker.memory.begin(), worker.memory.end(),
                         [](const auto& a, const auto& b) { return a.time_us < b.time_us; }));
      for (const MemoryPoint& point : worker.memory) {
        EXPECT_LE(point.bytes, worker.peak_bytes);
        EXPECT_GE(point.bytes, worker.memory.back().bytes);
      }
    }
  }
}

TEST(SimulatorProperty, ReductionsLieBetweenTheLastBackwardAndTheUpdate) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    RandomCase random = random_case(seed);
    random.options.bucketed_reduction = false;
    const Simulation simulation = run(random);
    for (const SimulatedReduction& reduction : simulation.reductions) {
      EXPECT_GE(reduction.end_us, reduction.start_us);
      for (const SimulatedWorker& worker : simulation.workers) {
        for (const SimulatedSlot& slot : worker.slots) {
          if (slot.step != reduction.step) continue;
          const ReductionGroup& group = random.plan.groups[reduction.group.value];
          const bool is_member =
              std::any_of(group.members.begin(), group.members.end(), [&](ReplicaId id) {
                return replica_of(random.plan, id).worker == worker.id &&
                       stage_of(random.plan, id) == slot.action.stage;
              });
          if (slot.is_update) {
            EXPECT_LE(reduction.end_us + random.options.commit_us, slot.start_us + 1e-9);
          } else if (is_member) {
            EXPECT_GE(reduction.start_us, slot.end_us);
          }
        }
      }
    }
  }
}

TEST(SimulatorProperty, TheSameInputGivesTheSameOutput) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Simulation one = run(random_case(seed)), two = run(random_case(seed));
    EXPECT_EQ(one.step_end_us, two.step_end_us);
    EXPECT_EQ(one.bubble, two.bubble);
    for (size_t w = 0; w < one.workers.size(); ++w) {
      EXPECT_TRUE(std::equal(one.workers[w].slots.begin(), one.workers[w].slots.end(),
                             two.workers[w].slots.begin(), two.workers[w].slots.end(),
                             [](const SimulatedSlot& a, const SimulatedSlot& b) {
                               return a.start_us == b.start_us && a.end_us == b.end_us;
                             }));
    }
  }
}

/// A chain on hosts of its own, transfers shorter than any action, so that no two flows of one
/// direction meet: where they do, an earlier action may take bandwidth from one that matters more.
TEST(SimulatorProperty, InAChainASlowerDeviceOrLinkNeverShortensTheStep) {
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    Rng rng(seed);
    const auto S = static_cast<int64_t>(2 + rng.below(5));
    const Plan plan =
        straight_pipeline(S, static_cast<int64_t>(1 + rng.below(9)),
                          rng.below(2) == 0 ? ScheduleKind::kGPipe : ScheduleKind::k1F1B);
    Profile profile = equal_layers(S, 0, 0, 1);
    for (LayerProfile& layer : profile.layers) {
      layer.at = {{uniform(rng, 10, 30), uniform(rng, 10, 30), uniform(rng, 0, 30)}};
      layer.activation_row_bytes = 4000;
    }
    ClusterSpec cluster = equal_cluster(static_cast<int32_t>(S), 1, 1e9);
    double before_us = simulate(plan, profile, cluster, {})->step_us;
    for (int change = 0; change < 8; ++change) {
      if (rng.below(2) == 0) {
        cluster.devices[rng.below(cluster.devices.size())].speed *= uniform(rng, 0.7, 1);
      } else {
        LinkSpeed& card = cluster.hosts[rng.below(cluster.hosts.size())].network;
        card.bytes_per_second *= uniform(rng, 0.9, 1);  // After 8 times still above 0.43e9.
        card.latency_us += uniform(rng, 0, 5);
      }
      const double after_us = simulate(plan, profile, cluster, {})->step_us;
      EXPECT_GE(after_us, before_us * (1 - 1e-12)) << "seed " << seed;
      before_us = after_us;
    }
  }
}

}  // namespace
}  // namespace skein::plans
