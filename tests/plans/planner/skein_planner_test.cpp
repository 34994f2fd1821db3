#include "plans/planner/skein_planner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <string>

#include "planner_requests.hpp"
#include "plans/planner/candidate_schedule.hpp"

namespace skein::plans {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Every plan for few devices: all cuts, all assignments of devices to stages in every order, all
/// splits of rows, all rows of a micro-batch, all schedules with one stage per rank.
class ByForce {
 public:
  explicit ByForce(const PlanRequest& request)
      : request_(request), model_(request, request.cluster) {}

  double best_us() {
    std::vector<int32_t> order(request_.cluster.devices.size());
    std::iota(order.begin(), order.end(), 0);
    do {
      for (size_t used = 1; used <= order.size(); ++used) {
        group({order.begin(), order.begin() + static_cast<std::ptrdiff_t>(used)}, {});
      }
    } while (std::next_permutation(order.begin(), order.end()));
    return best_us_;
  }

 private:
  void group(const std::vector<int32_t>& devices, const std::vector<std::vector<int32_t>>& stages) {
    if (devices.empty()) {
      for (const int64_t rows : request_.microbatch_rows) {
        CandidatePlan candidate;
        candidate.microbatch_rows = rows;
        candidate.cuts = {0};
        split(candidate, stages);
      }
      return;
    }
    for (size_t count = 1; count <= devices.size(); ++count) {
      const auto end = devices.begin() + static_cast<std::ptrdiff_t>(count);
      std::vector<std::vector<int32_t>> more = stages;
      more.emplace_back(devices.begin(), end);
      group({end, devices.end()}, more);
    }
  }

  void split(const CandidatePlan& candidate, const std::vector<std::vector<int32_t>>& stages) {
    const size_t s = candidate.ranks.size();
    if (s == stages.size()) {
      cut(candidate);
      return;
    }
    std::function<void(std::vector<int64_t>, int64_t)> place = [&](std::vector<int64_t> rows,
                                                                   int64_t left) {
      if (rows.size() + 1 == stages[s].size()) {
        rows.push_back(left);
        CandidatePlan more = candidate;
        more.ranks.push_back({stages[s], rows});
        more.rank_of_stage.push_back(static_cast<int32_t>(s));
        split(more, stages);
        return;
      }
      for (int64_t own = 1; own < left; ++own) {
        std::vector<int64_t> longer = rows;
        longer.push_back(own);
        place(longer, left - own);
      }
    };
    if (static_cast<int64_t>(stages[s].size()) <= candidate.microbatch_rows) {
      place({}, candidate.microbatch_rows);
    }
  }

  void cut(const CandidatePlan& candidate) {
    const auto layers = static_cast<int64_t>(request_.profile.layers.size());
    const size_t left = candidate.ranks.size() + 1 - candidate.cuts.size();
    if (left == 1) {
      CandidatePlan whole = candidate;
      whole.cuts.push_back(layers);
      judge(whole);
      return;
    }
    for (int64_t at = candidate.cuts.back() + 1; at + static_cast<int64_t>(left) - 1 <= layers;
         ++at) {
      CandidatePlan more = candidate;
      more.cuts.push_back(at);
      cut(more);
    }
  }

  void judge(CandidatePlan candidate) {
    for (const ScheduleKind kind : request_.schedules) {
      candidate.schedule = kind;
      const absl::StatusOr<Plan> plan = plan_of(candidate, model_);
      if (plan.ok()) best_us_ = std::min(best_us_, simulated_us(*plan, request_));
    }
  }

  const PlanRequest& request_;
  CostModel model_;
  double best_us_ = std::numeric_limits<double>::infinity();
};

/// Three devices of unlike speed on two hosts, at most eight unlike layers.
PlanRequest small_request(uint64_t seed) {
  PlanRequest request = random_request(seed);
  request.cluster = cluster_of({{1.0, 0.5}, {0.3 + 0.1 * static_cast<double>(seed % 10)}});
  set_bandwidths(request.cluster, 1e9, 3e7 * static_cast<double>(1 + seed % 7));
  request.profile.layers.resize(std::min<size_t>(8, request.profile.layers.size()));
  request.profile.tied_bytes = 0;
  request.global_batch_rows = 8;
  request.microbatch_rows = {2, 4};
  request.schedules = {ScheduleKind::k1F1B};
  if (seed % 2 == 0) request.schedules.push_back(ScheduleKind::k1F1BPB);
  request.may_recompute = false;
  return request;
}

TEST(SkeinPlanner, IsAsGoodAsTheBestOfAllPlans) {
  int optimal = 0;
  constexpr int kRequests = 24;
  for (uint64_t seed = 0; seed < kRequests; ++seed) {
    const PlanRequest request = small_request(seed);
    const double best_us = ByForce(request).best_us();
    const double ours_us = simulated_us(plan_skein(request).value().plan, request);
    EXPECT_LE(ours_us, best_us * 1.02) << "seed " << seed;
    EXPECT_GE(ours_us, best_us * (1 - 1e-9)) << "force missed a plan";
    if (ours_us <= best_us * (1 + 1e-9)) ++optimal;
  }
  EXPECT_GE(optimal, kRequests * 9 / 10) << "of " << kRequests;
  RecordProperty("optimal", optimal);
}

TEST(SkeinPlanner, IsNeverWorseThanTheOthers) {
  int better = 0;
  for (uint64_t seed = 100; seed < 200; ++seed) {
    const PlanRequest request = random_request(seed);
    const absl::StatusOr<PlannedPipeline> ours = plan_skein(request);
    double best_us = std::numeric_limits<double>::infinity();
    for (const Planner& planner : planners()) {
      if (planner.make_plan == &plan_skein) continue;
      for (const int64_t rows : request.microbatch_rows) {
        PlanRequest asked = request;
        asked.microbatch_rows = {rows};
        const absl::StatusOr<PlannedPipeline> theirs = planner.make_plan(asked);
        if (theirs.ok()) best_us = std::min(best_us, simulated_us(theirs->plan, request));
      }
    }
    if (!ours.ok()) {
      EXPECT_EQ(best_us, std::numeric_limits<double>::infinity()) << "seed " << seed;
      continue;
    }
    const double ours_us = simulated_us(ours->plan, request);
    EXPECT_LE(ours_us, best_us * (1 + 1e-9)) << "seed " << seed << ": " << ours->reason;
    EXPECT_NEAR(ours->objective_us, ours_us, 1e-6 * ours_us);
    if (ours_us < best_us * 0.99) ++better;
  }
  EXPECT_GT(better, 50);
}

TEST(SkeinPlanner, GivesSlowDevicesFewerLayers) {
  PlanRequest request = request_of(even_profile(14, {}), cluster_of({{4}, {2}, {1}}), 64, 1);
  set_bandwidths(request.cluster, 1e9, 1e9);
  const Plan plan = plan_skein(request).value().plan;  // One row: no replicas.
  ASSERT_EQ(plan.stages.size(), 3U) << to_text(plan);
  for (const StagePlan& stage : plan.stages) {
    const int64_t expected[] = {8, 4, 2};
    EXPECT_EQ(stage.layers.size(), expected[stage.replicas[0].worker.value - 1]) << to_text(plan);
  }
}

TEST(SkeinPlanner, GivesSlowDevicesFewerRows) {
  PlanRequest request = request_of(even_profile(1, {}), cluster_of({{4, 2, 1}}), 14, 14);
  request.microbatch_rows = {14};
  const Plan plan = plan_skein(request).value().plan;
  ASSERT_EQ(plan.stages[0].replicas.size(), 3U);
  for (const ReplicaPlan& replica : plan.stages[0].replicas) {
    const int64_t expected[] = {8, 4, 2};
    EXPECT_EQ(replica.rows.count, expected[replica.worker.value - 1]);
  }
}

TEST(SkeinPlanner, LeavesOutADeviceThatOnlyDelays) {
  PlanRequest request = request_of(even_profile(4, {}), cluster_of({{1, 1, 0.001}}), 8, 2);
  const Plan plan = plan_skein(request).value().plan;
  for (const StagePlan& stage : plan.stages) {
    for (const ReplicaPlan& replica : stage.replicas) EXPECT_NE(replica.worker.value, 3U);
  }
}

TEST(SkeinPlanner, KeepsTransfersOffASlowLink) {
  // Three hosts in a row of stages; the link between 0 and 1 is slow, so 2 stands between them.
  LayerByHand layer;
  layer.activation_bytes = 100'000;
  PlanRequest request = request_of(even_profile(6, layer), cluster_of({{1}, {1}, {1}}), 32, 1);
  set_bandwidths(request.cluster, 1e10, 1e10);
  request.cluster.links.push_back({0, 1, {1e8, 0}});
  const Plan plan = plan_skein(request).value().plan;
  ASSERT_EQ(plan.stages.size(), 3U);
  EXPECT_EQ(plan.stages[1].replicas[0].worker.value, 3U) << to_text(plan);
}

TEST(SkeinPlanner, ChoosesTheRowsOfAMicrobatch) {
  // Pipelines want many micro-batches; with an overhead per action they want few.
  PlanRequest request = request_of(even_profile(4, {}), cluster_of({{1}, {1}, {1}, {1}}), 64, 64);
  LayerByHand heavy;
  heavy.parameter_bytes = 1'000'000'000;
  request.profile = even_profile(4, heavy);
  set_bandwidths(request.cluster, 1e9, 1e9);
  EXPECT_EQ(plan_skein(request)->plan.microbatch_rows, 1);
  request.simulation.action_overhead_us = 5000;
  EXPECT_GT(plan_skein(request)->plan.microbatch_rows, 1);
}

TEST(SkeinPlanner, RecomputesOnlyWhereMemoryAsksForIt) {
  LayerByHand layer;
  layer.stash_bytes = 1'000'000;
  layer.activation_bytes = 1000;
  PlanRequest request = request_of(even_profile(8, layer), cluster_of({{1}, {1}}), 8, 1);
  request.may_recompute = true;
  EXPECT_FALSE(plan_skein(request)->plan.recompute);
  for (ClusterDevice& device : request.cluster.devices) device.memory_bytes = 3'500'000;
  const absl::StatusOr<PlannedPipeline> tight = plan_skein(request);
  ASSERT_TRUE(tight.ok()) << tight.status();
  EXPECT_TRUE(tight->plan.recompute);
  request.may_recompute = false;
  EXPECT_EQ(plan_skein(request).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(SkeinPlanner, PutsMoreLayersWhereThereIsMoreMemory) {
  LayerByHand layer;
  layer.parameter_bytes = 1'000'000;  // State 4 MB.
  PlanRequest request = request_of(even_profile(6, layer), cluster_of({{1}, {1}}), 8, 1);
  request.cluster.devices[0].memory_bytes = 5'000'000;
  request.cluster.devices[1].memory_bytes = 21'000'000;
  const absl::StatusOr<PlannedPipeline> made = plan_skein(request);
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ(made->plan.stages.size(), 2U);
  for (const StagePlan& stage : made->plan.stages) {
    EXPECT_EQ(stage.layers.size(), stage.replicas[0].worker.value == 1 ? 1 : 5);
  }
}

TEST(SkeinPlanner, ChoosesAmongSchedules) {
  LayerByHand layer;
  layer.activation_bytes = 200'000;
  PlanRequest request = request_of(even_profile(4, layer), cluster_of({{1}, {1}, {1}, {1}}), 16, 1);
  set_bandwidths(request.cluster, 1e9, 1e9);
  const double first_us = simulated_us(plan_skein(request)->plan, request);
  request.schedules = {ScheduleKind::k1F1B, ScheduleKind::k1F1BPB};
  const PlannedPipeline hidden = plan_skein(request).value();
  EXPECT_EQ(hidden.plan.schedule, ScheduleKind::k1F1BPB);
  EXPECT_LT(simulated_us(hidden.plan, request), first_us);
  request.schedules = {ScheduleKind::kZBH1, ScheduleKind::kGreedy};
  const PlannedPipeline zero = plan_skein(request).value();
  EXPECT_NE(zero.plan.schedule, ScheduleKind::k1F1B);
}

TEST(SkeinPlanner, UsesVirtualStagesWhereTheyPay) {
  // No transfer time, few micro-batches: the bubble of interleaving is half of that of 1F1B.
  PlanRequest request = request_of(even_profile(16, {}), cluster_of({{1}, {1}, {1}, {1}}), 4, 1);
  request.schedules = {ScheduleKind::k1F1B, ScheduleKind::kInterleaved1F1B};
  const PlannedPipeline made = plan_skein(request).value();
  EXPECT_EQ(made.plan.schedule, ScheduleKind::kInterleaved1F1B) << made.reason;
  EXPECT_GT(made.plan.stages.size(), made.plan.actions.size());
}

TEST(SkeinPlanner, PlansForLastingSlowness) {
  PlanRequest request = request_of(even_profile(12, {}), cluster_of({{1}, {1}}), 32, 1);
  request.simulation.scenario.kind = Scenario::Kind::kH2;
  request.simulation.scenario.factor = 3;
  request.simulation.scenario.devices = {1};
  const Plan plan = plan_skein(request).value().plan;
  ASSERT_EQ(plan.stages.size(), 2U);
  for (const StagePlan& stage : plan.stages) {
    EXPECT_EQ(stage.layers.size(), stage.replicas[0].worker.value == 1 ? 9 : 3);
  }
}

TEST(SkeinPlanner, SaysWhatWonByHowMuch) {
  PlanRequest request = request_of(even_profile(12, {}), cluster_of({{1}, {0.25}}), 32, 4);
  EXPECT_THAT(plan_skein(request)->reason, HasSubstr("% faster than "));
  PlanRequest even = request_of(even_profile(2, {}), cluster_of({{1}}), 4, 4);
  EXPECT_THAT(plan_skein(even)->reason, HasSubstr("none is faster than that of"));
}

TEST(SkeinPlanner, AsksTheOthersOnlyIfItMay) {
  PlanRequest request = request_of(even_profile(12, {}), cluster_of({{1}, {0.25}}), 32, 4);
  const PlannedPipeline with = plan_skein(request).value();
  request.asks_others = false;
  const PlannedPipeline without = plan_skein(request).value();
  EXPECT_THAT(without.reason, HasSubstr("; the other planners were not asked"));
  EXPECT_THAT(without.reason, Not(HasSubstr("faster")));
  EXPECT_GE(without.objective_us, with.objective_us * (1 - 1e-9));
  // They say what is lacking where nothing fits.
  for (ClusterDevice& device : request.cluster.devices) device.memory_bytes = 1;
  const absl::Status tight = plan_skein(request).status();
  request.asks_others = true;
  EXPECT_EQ(tight, plan_skein(request).status());
}

/// A choice that suits a rival badly, or not at all, takes none of its better plans away.
TEST(ComparePlanners, MoreChoicesOfRowsMakeNoPlannerWorse) {
  PlanRequest request = request_of(even_profile(8, {}), cluster_of({{1, 0.5}, {1}}), 16, 8);
  const std::vector<PlanVerdict> many = compare_planners(request);
  request.microbatch_rows = {8};
  const std::vector<PlanVerdict> few = compare_planners(request);
  for (size_t i = 0; i < few.size(); ++i) {
    ASSERT_TRUE(few[i].status.ok()) << few[i].planner << ": " << few[i].status;
    ASSERT_TRUE(many[i].status.ok()) << many[i].planner << ": " << many[i].status;
    EXPECT_LE(many[i].simulation.step_us, few[i].simulation.step_us * (1 + 1e-9)) << few[i].planner;
  }
}

TEST(ComparePlanners, GivesAVerdictForEach) {
  PlanRequest request = request_of(even_profile(8, {}), cluster_of({{1, 0.5}, {1}}), 12, 2);
  const std::vector<PlanVerdict> verdicts = compare_planners(request);
  ASSERT_EQ(verdicts.size(), planners().size());
  std::set<std::string> names;
  for (const PlanVerdict& verdict : verdicts) {
    names.insert(verdict.planner);
    if (!verdict.status.ok()) continue;
    EXPECT_NEAR(verdict.simulation.step_us, simulated_us(verdict.pipeline.plan, request), 1e-6);
    EXPECT_GE(verdict.simulation.step_us, verdicts[0].simulation.step_us * (1 - 1e-9));
  }
  EXPECT_EQ(names.size(), verdicts.size());
  EXPECT_TRUE(verdicts[0].status.ok());
  EXPECT_EQ(verdicts[0].planner, "skein");
  // Two rows for three devices: data parallelism is not possible, and says so.
  EXPECT_EQ(verdicts[4].status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(verdicts[4].simulation.workers.empty());
}

}  // namespace
}  // namespace skein::plans
