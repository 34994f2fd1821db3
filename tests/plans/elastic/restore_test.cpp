#include "plans/elastic/restore.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "plans/base/rng.hpp"
#include "plans/plan/layout_plan.hpp"
#include "small_plans.hpp"

namespace skein::plans {
namespace {

/// A plan of `stages` stages for workers 1, 2, ... and a model of 6 layers.
Plan plan_of(int64_t stages, int64_t pipelines = 1) {
  JobSpec job = small_job(4, false);
  job.parallelism.pipeline_parallel_degree = stages;
  job.parallelism.data_parallel_replicate_degree = pipelines;
  return *make_layout_plan(job, first_ids(static_cast<uint32_t>(stages * pipelines)), 1);
}

bool has(const StateSources& sources, WorkerId worker, int64_t layer, uint64_t step) {
  const auto held = sources.inventory.find(worker);
  if (held == sources.inventory.end()) return false;
  return std::any_of(held->second.begin(), held->second.end(), [&](const InventoryItem& holding) {
    return holding.step == step && holding.layers.contains(layer);
  });
}

bool is_whole_at(const StateSources& sources, int64_t layer_count, uint64_t step) {
  for (int64_t layer = 0; layer < layer_count; ++layer) {
    const bool is_held =
        std::any_of(sources.inventory.begin(), sources.inventory.end(),
                    [&](const auto& each) { return has(sources, each.first, layer, step); });
    if (!is_held) return false;
  }
  return true;
}

/// What the declaration promises of the step, by trying every step.
void expect_newest_step(const RestoreDecision& decision, const StateSources& sources,
                        int64_t layer_count) {
  for (uint64_t step = sources.committed + 1; step-- > sources.durable_step;) {
    if (!is_whole_at(sources, layer_count, step)) continue;
    EXPECT_FALSE(decision.from_checkpoint);
    EXPECT_EQ(decision.first_step, step);
    return;
  }
  EXPECT_TRUE(decision.from_checkpoint);
  EXPECT_EQ(decision.first_step, sources.durable_step);
  EXPECT_TRUE(decision.moves.empty());
}

/// Moves and what is there already give every worker what it computes, once.
void expect_complete_moves(const RestoreDecision& decision, const StateSources& sources,
                           const Plan& plan) {
  std::set<std::pair<int64_t, WorkerId>> received;
  for (const LayerMove& move : decision.moves) {
    EXPECT_TRUE(has(sources, move.from, move.layer, decision.first_step));
    EXPECT_FALSE(has(sources, move.to, move.layer, decision.first_step));
    EXPECT_TRUE(holds(plan, move.to, move.layer));
    if (!received.empty()) {
      EXPECT_LT(*received.rbegin(), std::pair(move.layer, move.to));
    }
    received.emplace(move.layer, move.to);
  }
  for (const StagePlan& stage : plan.stages) {
    for (const ReplicaPlan& replica : stage.replicas) {
      for (int64_t layer = stage.layers.begin; layer < stage.layers.end; ++layer) {
        EXPECT_TRUE(has(sources, replica.worker, layer, decision.first_step) ||
                    received.contains({layer, replica.worker}));
      }
    }
  }
}

TEST(DecideRestore, GivesEveryWorkerWhatItNeedsFromWorkersThatHaveIt) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const Plan plan =
        plan_of(1 + static_cast<int64_t>(rng.below(3)), 1 + static_cast<int64_t>(rng.below(2)));
    StateSources sources;
    sources.committed = 3 + rng.below(4);
    sources.durable_step = rng.below(sources.committed + 1);
    for (const WorkerId worker : first_ids(static_cast<uint32_t>(1 + rng.below(6)))) {
      std::vector<InventoryItem>& inventory = sources.inventory[worker];
      for (uint64_t n = rng.below(4); n > 0; --n) {
        const auto begin = static_cast<int64_t>(rng.below(5));
        inventory.push_back(
            {rng.below(8), {begin, begin + 1 + static_cast<int64_t>(rng.below(6))}});
      }
    }
    const RestoreDecision decision = decide_restore(plan, 6, sources);
    expect_newest_step(decision, sources, 6);
    if (!decision.from_checkpoint) expect_complete_moves(decision, sources, plan);
    EXPECT_EQ(decision, decide_restore(plan, 6, sources));
  }
}

TEST(DecideRestore, MovesNothingWhenEverybodyHoldsItsStage) {
  const Plan plan = plan_of(3);
  StateSources sources{{}, 7, 4};
  for (const StagePlan& stage : plan.stages) {
    sources.inventory[stage.replicas[0].worker] = {{7, stage.layers}};
  }
  EXPECT_EQ(decide_restore(plan, 6, sources), (RestoreDecision{7, false, {}}));
}

TEST(DecideRestore, GoesBackToTheSnapshotThatEveryStageHas) {
  // Worker 2 is lost; worker 1 holds a snapshot of its layers, and one of its own.
  const StateSources sources{
      {{WorkerId{1}, {{7, {0, 3}}, {5, {0, 3}}, {5, {3, 6}}}}, {WorkerId{3}, {}}}, 7, 4};
  Plan plan = plan_of(2);
  plan.stages[1].replicas[0].worker = WorkerId{3};
  const RestoreDecision decision = decide_restore(plan, 6, sources);
  EXPECT_EQ(decision.first_step, 5u);
  EXPECT_FALSE(decision.from_checkpoint);
  EXPECT_EQ(decision.moves.size(), static_cast<size_t>(plan.stages[1].layers.size()));
}

TEST(DecideRestore, PrefersInventoryToACheckpointOfTheSameStep) {
  const Plan plan = plan_of(1);
  const StateSources sources{{{WorkerId{1}, {{4, {0, 6}}}}}, 4, 4};
  EXPECT_EQ(decide_restore(plan, 6, sources), (RestoreDecision{4, false, {}}));
}

TEST(DecideRestore, ReadsTheCheckpointWhenItIsNewerOrInventoryHaveAGap) {
  const Plan plan = plan_of(1);
  const StateSources older{{{WorkerId{1}, {{3, {0, 6}}}}}, 4, 4};
  EXPECT_EQ(decide_restore(plan, 6, older), (RestoreDecision{4, true, {}}));
  const StateSources gap{{{WorkerId{1}, {{4, {0, 2}}, {4, {3, 6}}}}}, 4, 2};
  EXPECT_EQ(decide_restore(plan, 6, gap), (RestoreDecision{2, true, {}}));
  EXPECT_EQ(decide_restore(plan, 6, {}), (RestoreDecision{0, true, {}}));
}

TEST(DecideRestore, NeverUsesStateThatIsNotCommitted) {
  const Plan plan = plan_of(1);
  const StateSources sources{{{WorkerId{1}, {{9, {0, 6}}, {8, {0, 6}}}}}, 8, 0};
  EXPECT_EQ(decide_restore(plan, 6, sources).first_step, 8u);
}

TEST(DecideRestore, SpreadsTheSendingOverAllWhoHoldALayer) {
  Plan plan = plan_of(1);
  plan.stages[0].replicas[0].worker = WorkerId{3};
  const StateSources sources{{{WorkerId{1}, {{2, {0, 6}}}}, {WorkerId{2}, {{2, {0, 6}}}}}, 2, 0};
  std::vector<LayerMove> moves;
  for (int64_t layer = 0; layer < 6; ++layer) {
    moves.push_back({layer, WorkerId{layer % 2 == 0 ? 1u : 2u}, WorkerId{3}});
  }
  EXPECT_EQ(decide_restore(plan, 6, sources).moves, moves);
}

TEST(Restore, StateMovesOnlyBetweenWorkersThatReachOneAnother) {
  const Plan plan = plan_of(2);
  StateSources sources;
  sources.inventory = {{{1}, {{5, {0, 3}}}},  // Needs nothing else.
                       {{2}, {{4, {0, 6}}}},  // Older.
                       {{3}, {{5, {3, 6}}}},  // Cannot reach the second one.
                       {{4}, {{5, {3, 6}}}}};
  sources.committed = 5;
  sources.apart = {pair_of({3}, {2})};
  const RestoreDecision around = decide_restore(plan, 6, sources);
  EXPECT_EQ(around.first_step, 5u);
  ASSERT_EQ(around.moves.size(), 3u);
  for (const LayerMove& move : around.moves) EXPECT_EQ(move.from, WorkerId{4});
  sources.apart.insert(pair_of({4}, {2}));
  sources.apart.insert(pair_of({1}, {4}));
  const RestoreDecision older = decide_restore(plan, 6, sources);
  EXPECT_EQ(older.first_step, 4u) << "nobody can give the second one the newer state";
  EXPECT_EQ(newest_step(sources, 6), 5u) << "it is here all the same";
}

}  // namespace
}  // namespace skein::plans
