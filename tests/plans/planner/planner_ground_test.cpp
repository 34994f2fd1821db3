#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "planner_requests.hpp"
#include "plans/base/rng.hpp"
#include "plans/planner/candidate_moves.hpp"
#include "plans/planner/candidate_timing.hpp"
#include "plans/planner/device_orders.hpp"
#include "plans/planner/partition_min_max.hpp"
#include "plans/planner/placement.hpp"
#include "plans/planner/plan_memory.hpp"
#include "plans/planner/row_split.hpp"
#include "plans/planner/stage_cuts.hpp"
#include "plans/planner/stage_groups.hpp"

namespace skein::plans {
namespace {

double slowest_us(CostModel& model, const std::vector<int64_t>& rows) {
  double slowest = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    slowest =
        std::max(slowest, model.sums().model_us(rows[r]) / model.speed(static_cast<int32_t>(r)));
  }
  return slowest;
}

TEST(SplitRows, IsAsFastAsTheBestOfAllSplits) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    PlanRequest request = random_request(seed);
    CostModel model(request, request.cluster);
    const auto count = static_cast<int64_t>(std::min<size_t>(3, request.cluster.devices.size()));
    std::vector<int32_t> devices(static_cast<size_t>(count));
    std::iota(devices.begin(), devices.end(), 0);
    for (const int64_t rows : {3, 7, 16}) {
      double best = std::numeric_limits<double>::infinity();
      std::vector<int64_t> split;
      std::function<void(int64_t)> place = [&](int64_t left) {
        if (static_cast<int64_t>(split.size()) + 1 == count) {
          split.push_back(left);
          best = std::min(best, slowest_us(model, split));
          split.pop_back();
          return;
        }
        for (int64_t own = 1; own < left; ++own) {
          split.push_back(own);
          place(left - own);
          split.pop_back();
        }
      };
      place(rows);
      const std::vector<int64_t> made = split_rows(model, devices, rows);
      EXPECT_EQ(std::accumulate(made.begin(), made.end(), int64_t{0}), rows);
      EXPECT_GE(*std::min_element(made.begin(), made.end()), 1);
      EXPECT_NEAR(slowest_us(model, made), best, best * 1e-9) << "seed " << seed;
    }
  }
}

TEST(BalancedCuts, AreAsGoodAsTheExactPartition) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const PlanRequest request = random_request(seed);
    LayerSums sums(request.profile);
    Rng rng(seed, 1);
    std::vector<double> cost;
    for (int64_t l = 0; l < sums.layer_count(); ++l) {
      cost.push_back(sums.times({l, l + 1}, 2).total_us());
    }
    for (size_t stages = 1; stages <= cost.size(); ++stages) {
      std::vector<double> speeds;
      for (size_t s = 0; s < stages; ++s) speeds.push_back(0.25 + rng.uniform());
      auto worst = [&](size_t s, int64_t begin, int64_t end) {
        return sums.times({begin, end}, 2).total_us() / speeds[s];
      };
      const std::vector<int64_t> cuts = balanced_cuts(sums, 2, speeds);
      const std::vector<LayerRange> exact = partition_min_max(cost, speeds).value();
      ASSERT_EQ(cuts.size(), stages + 1);
      double slowest = 0;
      double slowest_exact = 0;
      for (size_t s = 0; s < stages; ++s) {
        EXPECT_LT(cuts[s], cuts[s + 1]);
        slowest = std::max(slowest, worst(s, cuts[s], cuts[s + 1]));
        slowest_exact = std::max(slowest_exact, worst(s, exact[s].begin, exact[s].end));
      }
      EXPECT_EQ(cuts.back(), sums.layer_count());
      EXPECT_NEAR(slowest, slowest_exact, 1e-6 * slowest_exact);
    }
  }
}

TEST(LayerSums, AgreeWithTheProfile) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Profile profile = random_request(seed).profile;
    if (seed % 2 == 1) profile.activation_factor = 0.5;
    LayerSums sums(profile);
    for (int64_t begin = 0; begin < sums.layer_count(); ++begin) {
      for (int64_t end = begin + 1; end <= sums.layer_count(); ++end) {
        const LayerRange layers{begin, end};
        for (const int64_t rows : {1, 5, 5000}) {
          EXPECT_NEAR(sums.times(layers, rows).total_us(),
                      range_times(profile, layers, rows).total_us(), 1e-6);
        }
        EXPECT_EQ(sums.parameter_bytes(layers), parameter_bytes(profile, layers));
        for (const bool recompute : {false, true}) {
          const StageMemory memory = stage_memory(profile, layers, 1, recompute);
          EXPECT_EQ(sums.state_bytes(layers), memory.state_bytes);
          EXPECT_EQ(sums.stash_row_bytes(layers, recompute), memory.stash_bytes);
          EXPECT_EQ(sums.extra_row_bytes(layers, recompute), memory.extra_bytes);
        }
      }
    }
  }
}

TEST(FlowTimes, KnowThePathsOfTheCluster) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const ClusterSpec cluster = random_request(seed).cluster;
    FlowTimes flows(cluster);
    const auto count = static_cast<int32_t>(cluster.devices.size());
    for (int32_t a = 0; a < count; ++a) {
      for (int32_t b = 0; b < count; ++b) {
        const LinkSpeed path = path_speed(cluster, a, b);
        EXPECT_EQ(flows.path(a, b), path);
        if (a == b) continue;
        const Flow flow{a, b, 1e6};
        const FlowTimes::Duration alone = flows.together({&flow, 1});
        EXPECT_NEAR(alone.bytes_us, 1e12 / path.bytes_per_second, 1e-6 * alone.bytes_us);
        EXPECT_EQ(alone.latency_us, path.latency_us);
      }
    }
  }
}

TEST(PlanMemory, IsThePeakOfTheSimulation) {
  int compared = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const PlanRequest request = random_request(seed);
    for (const Planner& planner : planners()) {
      const absl::StatusOr<PlannedPipeline> made = planner.make_plan(request);
      if (!made.ok()) continue;
      const Simulation simulation =
          simulate(made->plan, request.profile, request.cluster, request.simulation).value();
      const std::vector<WorkerMemory> memory = plan_memory(made->plan, request.profile);
      ASSERT_EQ(memory.size(), simulation.workers.size());
      for (size_t w = 0; w < memory.size(); ++w) {
        EXPECT_EQ(memory[w].worker, simulation.workers[w].id);
        EXPECT_EQ(memory[w].total_bytes(), simulation.workers[w].peak_bytes)
            << planner.name << " seed " << seed;
      }
      ++compared;
    }
  }
  EXPECT_GT(compared, 100);
}

TEST(CandidateTiming, IsTheSimulationOfStraightPipelines) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    PlanRequest request = random_request(seed);
    for (ClusterDevice& device : request.cluster.devices) device.memory_bytes = 0;
    set_bandwidths(request.cluster, 1e10, 1e10);
    request.cluster.links.clear();
    request.profile.tied_bytes = 0;
    CostModel model(request, request.cluster);
    CandidateTiming timing(model);
    const Plan plan = planners()[5].make_plan(request).value().plan;
    const double rated = timing.step_us(candidate_of(plan)).value();
    const double simulated = simulated_us(plan, request);
    EXPECT_NEAR(rated, simulated, 0.02 * simulated) << "seed " << seed;
    EXPECT_LE(least_step_us(candidate_of(plan), model), simulated * (1 + 1e-9));
  }
}

TEST(CandidateTiming, GivesTheSameWhateverWasAskedBefore) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const PlanRequest request = random_request(seed);
    const absl::StatusOr<PlannedPipeline> made = planners()[0].make_plan(request);
    if (!made.ok()) continue;
    CostModel shared(request, request.cluster);
    CandidateTiming warm(shared);
    int visited = 0;
    visit_neighbours(shared, candidate_of(made->plan), [&](const CandidatePlan& candidate) {
      CostModel own(request, request.cluster);
      CandidateTiming cold(own);
      const absl::StatusOr<double> a = warm.step_us(candidate);
      const absl::StatusOr<double> b = cold.step_us(candidate);
      EXPECT_EQ(a.ok(), b.ok());
      EXPECT_EQ(a.value_or(0), b.value_or(0));
      return ++visited < 100;
    });
  }
}

TEST(CandidateMoves, GiveStagesLayersAndReplicasRows) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const PlanRequest request = random_request(seed);
    CostModel model(request, request.cluster);
    const absl::StatusOr<PlannedPipeline> made = planners()[0].make_plan(request);
    if (!made.ok()) continue;
    visit_neighbours(model, candidate_of(made->plan), [&](const CandidatePlan& candidate) {
      EXPECT_EQ(candidate.cuts.size(), candidate.rank_of_stage.size() + 1);
      EXPECT_EQ(candidate.cuts.front(), 0);
      EXPECT_EQ(candidate.cuts.back(), static_cast<int64_t>(request.profile.layers.size()));
      EXPECT_TRUE(
          std::is_sorted(candidate.cuts.begin(), candidate.cuts.end(), std::less_equal<>()));
      std::vector<bool> used(request.cluster.devices.size(), false);
      for (const CandidateRank& rank : candidate.ranks) {
        EXPECT_EQ(std::accumulate(rank.rows.begin(), rank.rows.end(), int64_t{0}),
                  candidate.microbatch_rows);
        EXPECT_GE(*std::min_element(rank.rows.begin(), rank.rows.end()), 1);
        for (const int32_t device : rank.devices) {
          EXPECT_FALSE(used[static_cast<size_t>(device)]) << "device " << device << " twice";
          used[static_cast<size_t>(device)] = true;
        }
      }
      return true;
    });
  }
}

TEST(Placement, FollowsThePolicies) {
  const std::vector<std::vector<int32_t>> by_host{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}};
  Occupancy used{1, 0, 0};
  EXPECT_EQ(place_devices(by_host, PlacementPolicy::kFreshFirst, 3, used),
            (std::vector<int32_t>{4, 5, 6}));
  EXPECT_EQ(used, (Occupancy{1, 3, 0}));
  EXPECT_EQ(place_devices(by_host, PlacementPolicy::kAppendFirst, 4, used),
            (std::vector<int32_t>{1, 2, 3, 7}));
  EXPECT_EQ(used, (Occupancy{4, 4, 0}));
  used = {2, 0, 0};
  EXPECT_EQ(place_devices(by_host, PlacementPolicy::kScatterFirst, 6, used),
            (std::vector<int32_t>{2, 3, 4, 5, 8, 9}));
  EXPECT_EQ(free_devices(by_host, used), (std::vector<int32_t>{6, 7, 10, 11}));
}

TEST(DeviceOrders, HoldEveryDeviceOnce) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const PlanRequest request = random_request(seed);
    CostModel model(request, request.cluster);
    for (std::vector<int32_t> order : device_orders(model)) {
      std::sort(order.begin(), order.end());
      for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], static_cast<int32_t>(i));
      EXPECT_EQ(order.size(), request.cluster.devices.size());
    }
  }
}

TEST(DeviceOrders, EndRunsWhereHostsEnd) {
  const ClusterSpec cluster = cluster_of({{1, 1, 1}, {1, 1, 1, 1}, {1, 1}});
  std::vector<size_t> ends{4, 6, 9};
  snap_to_hosts(cluster, {0, 1, 2, 3, 4, 5, 6, 7, 8}, ends);
  EXPECT_EQ(ends, (std::vector<size_t>{3, 7, 9}));
}

}  // namespace
}  // namespace skein::plans
