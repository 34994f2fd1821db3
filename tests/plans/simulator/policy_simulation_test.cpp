#include "plans/simulator/policy_simulation.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "plans/simulator/consensus_distance.hpp"
#include "plans/sync/allreduce.hpp"
#include "plans/sync/hetpipe.hpp"
#include "plans/sync/overlapped_average.hpp"
#include "plans/sync/parameter_server.hpp"
#include "plans/sync/policy_kind.hpp"
#include "plans/sync/progressive_server.hpp"
#include "plans/sync/sdpipe.hpp"

namespace skein::plans {
namespace {

constexpr double kForwardUs = 20000, kBackwardUs = 40000, kExchangeUs = 20000;
constexpr double kStepUs = kForwardUs + kBackwardUs;

PolicySimulationOptions options_of(const PipelineLayout& layout, const PipelineScenario& scenario) {
  PolicySimulationOptions options{.layout = layout, .scenario = scenario};
  options.forward_us.assign(layout.stages, kForwardUs);
  options.backward_us.assign(layout.stages, kBackwardUs);
  options.exchange_us = kExchangeUs;
  options.warm_up_us = 5e6;
  options.duration_us = 65e6;
  return options;
}

PolicySimulation run(GroupScheduler& policy, const PolicySimulationOptions& options) {
  return simulate_policy(policy, options);
}

TEST(PolicySimulation, AllreduceTakesAStepAndARing) {
  const PipelineLayout layout{8, 1};
  AllreducePolicy policy(layout);
  const PolicySimulation result = run(policy, options_of(layout, homogeneous()));
  EXPECT_NEAR(result.steps_per_second, 8 / (kStepUs + 2 * 7.0 / 8 * kExchangeUs) * 1e6, 0.2);
  EXPECT_EQ(result.size_quantile(0), 8u);
  EXPECT_EQ(result.waiting_share, 0);
  EXPECT_NEAR(result.averaging_share, 35.0 / 95, 0.01);
}

TEST(PolicySimulation, AllreduceIsAsFastAsItsSlowestPipeline) {
  const PipelineLayout layout{8, 1};
  AllreducePolicy policy(layout);
  const PolicySimulation result = run(policy, options_of(layout, slow_pipelines(layout, 1, 4)));
  EXPECT_NEAR(result.steps_per_second, 8 / (4 * kStepUs + 35000) * 1e6, 0.5);
}

TEST(PolicySimulation, ReductionsBesideTheBackwardTakeWhatIsLeft) {
  const PipelineLayout layout{8, 1};
  for (const double hidden_us : {0.0, 30000.0, 50000.0}) {
    AllreducePolicy policy(layout);
    PolicySimulationOptions options = options_of(layout, homogeneous());
    options.hidden_us = hidden_us;
    const double left_us = std::max(0.0, 2 * 7.0 / 8 * kExchangeUs - hidden_us);
    EXPECT_NEAR(run(policy, options).steps_per_second, 8 / (kStepUs + left_us) * 1e6, 0.5);
  }
}

/// However long they take: then they are rarer, and somebody may have to wait for their end.
TEST(PolicySimulation, AveragesBesideTheComputingTakeNoStepsTime) {
  const PipelineLayout layout{8, 1};
  for (const bool average_moments : {false, true}) {
    for (const double exchange_us : {0.1, 1.0, 10.0}) {
      PolicySimulationOptions options = options_of(layout, homogeneous());
      options.moments_per_weight = 2;
      options.exchange_us = exchange_us * kExchangeUs;
      OverlappedAveragePolicy policy(layout, {.ahead_max = 8, .average_moments = average_moments});
      const PolicySimulation result = run(policy, options);
      const double values = average_moments ? 3 : 1;
      const double average_us = values * 2 * 7.0 / 8 * options.exchange_us;
      const double most_us = std::max(kStepUs, average_us / 8);  // The longest part of a step.
      EXPECT_GT(result.steps_per_second, 0.97 * 8 / most_us * 1e6) << average_us;
      // A pipeline replica that has waited does one more before the next average begins.
      EXPECT_LT(result.steps_per_second, 9.1 / 8 * 8 / most_us * 1e6) << average_us;
      EXPECT_GT(result.sizes.at(8), 0u);
    }
  }
}

TEST(PolicySimulation, APipelineWithoutGroupsIsFullAfterItsWarmUp) {
  const PipelineLayout layout{2, 4};
  HetPipePolicy policy(layout, {.wave = 1'000'000});
  const PolicySimulation result = run(policy, options_of(layout, homogeneous()));
  EXPECT_NEAR(result.steps_per_second, 2 / kStepUs * 1e6, 0.1);
  EXPECT_EQ(result.sizes.size(), 1u);
}

TEST(PolicySimulation, AServerServesOneMemberAfterTheOther) {
  const PipelineLayout layout{4, 1};
  PolicySimulationOptions options = options_of(layout, homogeneous());
  options.server_us = 50000;  // Four take longer than a step.
  const auto policy = parameter_server(layout, {ServerMode::kAsynchronous});
  EXPECT_NEAR(run(*policy, options).steps_per_second, 1e6 / 50000, 0.1);
}

TEST(PolicySimulation, AGroupWithoutAServerOfItsOwnGoesOneWay) {
  const PipelineLayout layout{4, 1};
  PolicySimulationOptions options = options_of(layout, homogeneous());
  options.server_us = 1000;
  options.server_latency_us = 10000;
  for (const bool has_group_servers : {false, true}) {
    GroupedServerPolicy policy(layout, {0, 0, 0, 0}, has_group_servers);
    EXPECT_NEAR(run(policy, options).steps_per_second,
                4 / (kStepUs + (has_group_servers ? 20000 : 10000)) * 1e6, 0.2);
  }
}

/// In groups of one, and of the one that is alone beside three in a group.
TEST(PolicySimulation, OneAloneGoesOneWay) {
  const PipelineLayout layout{4, 1};
  PolicySimulationOptions options = options_of(layout, homogeneous());
  options.server_us = 1000;
  options.server_latency_us = 10000;
  for (const bool has_group_servers : {false, true}) {
    GroupedServerPolicy policy(layout, {0, 1, 2, 3}, has_group_servers);
    EXPECT_NEAR(run(policy, options).steps_per_second, 4 / (kStepUs + 10000) * 1e6, 0.2);
  }
  GroupedServerPolicy policy(layout, {0, 1, 1, 1});
  const std::vector<uint64_t> steps = run(policy, options).steps_by_pipeline;
  EXPECT_NEAR(static_cast<double>(steps[0]) / static_cast<double>(steps[1]),
              (kStepUs + 20000) / (kStepUs + 10000), 0.01);
}

TEST(PolicySimulation, ARoundCostsAFillADrainAndTheGlobalAverage) {
  const PipelineLayout layout{1, 4};
  constexpr double kUpdateUs = 5000, kGlobalUs = 300000;
  constexpr uint64_t kRound = 20;
  PolicySimulationOptions options = options_of(layout, homogeneous());
  options.update_us = kUpdateUs;
  options.warm_up_us = 0;
  options.duration_us = 600e6;
  SdpipePolicy endless(layout, {});
  EXPECT_NEAR(run(endless, options).steps_per_second, 1e6 / (kStepUs + kUpdateUs), 0.1);
  options.round_samples = kRound;
  options.global_us = kGlobalUs;
  SdpipePolicy policy(layout, {});
  const double round_us = static_cast<double>(kRound) * (kStepUs + kUpdateUs) +
                          (layout.stages - 1) * kStepUs + kGlobalUs;
  EXPECT_NEAR(run(policy, options).steps_per_second, kRound * 1e6 / round_us, 0.2);
}

/// Ten steps and a global average take a second.
TEST(PolicySimulation, WholeRoundsAreMeasured) {
  const PipelineLayout layout{1, 1};
  PolicySimulationOptions options = options_of(layout, homogeneous());
  options.round_samples = 10;
  options.global_us = 1e6 - 10 * kStepUs;
  for (const double duration_us : {1.7e6, 2.9e6, 3.5e6, 5.1e6}) {
    for (const double warm_up_us : {0.0, 0.5e6, 1.2e6}) {
      options.warm_up_us = warm_up_us;
      options.duration_us = duration_us;
      HetPipePolicy policy(layout, {.wave = 1'000'000});
      const PolicySimulation result = run(policy, options);
      EXPECT_NEAR(result.steps_per_second, 10, 1e-6) << warm_up_us << " to " << duration_us;
      EXPECT_EQ(result.steps_by_pipeline[0] % 10, 0u) << warm_up_us << " to " << duration_us;
    }
  }
}

TEST(PolicySimulation, TheLastClaimOfARoundHasWhatIsLeft) {
  const PipelineLayout layout{1, 1};
  PolicySimulationOptions options = options_of(layout, homogeneous());
  options.claim_samples = {4};
  options.round_samples = 10;  // Claims of 4, 4 and 2.
  SdpipePolicy policy(layout, {});
  const PolicySimulation result = run(policy, options);
  EXPECT_NEAR(result.samples_per_second / result.steps_per_second, 10.0 / 3, 0.02);
}

/// With one stage nothing is in flight when another claim might be taken. The fast one does seven
/// of eight claims in seven steps; with two of the slow one they would take ten.
TEST(PolicySimulation, WhoWouldBeLastWithOneStageTakesNoMore) {
  const PipelineLayout layout{2, 1};
  PolicySimulationOptions options = options_of(layout, slow_pipelines(layout, 1, 5));
  options.exchange_us = 0;
  options.round_samples = 8;
  HetPipePolicy policy(layout, {.wave = 1'000'000});
  const PolicySimulation result = run(policy, options);
  EXPECT_GT(result.steps_by_pipeline[1], 5 * result.steps_by_pipeline[0]);
}

TEST(PolicySimulation, SamplesAreThoseOfEachOnesClaims) {
  const PipelineLayout layout{2, 1};
  PolicySimulationOptions options = options_of(layout, slow_pipelines(layout, 1, 4));
  options.claim_samples = {2, 8};
  OverlappedAveragePolicy policy(layout, {});
  const PolicySimulation result = run(policy, options);
  const double done = 2.0 * static_cast<double>(result.steps_by_pipeline[0]) +
                      8.0 * static_cast<double>(result.steps_by_pipeline[1]);
  EXPECT_NEAR(result.samples_per_second, done / 60, 1e-6);
  EXPECT_GT(result.steps_by_pipeline[1], 2 * result.steps_by_pipeline[0]);
}

/// One that averages with nobody drifts away until the end of a round.
TEST(ConsensusDistance, IsNoMoreThanARoundsAmount) {
  const PipelineLayout layout{2, 1};
  PolicySimulationOptions options = options_of(layout, homogeneous());
  options.warm_up_us = 0;
  const auto apart = [&](uint64_t round_samples) {
    options.round_samples = round_samples;
    HetPipePolicy policy(layout, {.wave = 1'000'000});
    ConsensusDistance distance(layout, options.warm_up_us);
    simulate_policy(policy, options, &distance);
    return distance.mean();
  };
  EXPECT_LT(apart(20), 0.1 * apart(0));
  EXPECT_GT(apart(20), 0);
}

/// The first one's update goes into an average with the second one; the third one stays behind.
TEST(ConsensusDistance, MembersWeighByTheirClaims) {
  const PipelineLayout layout{3, 1};
  const auto mean_with = [&](std::vector<uint64_t> claim_samples) {
    ConsensusDistance distance(layout, 0, std::move(claim_samples));
    distance.advance(1);
    distance.on_gradient({0}, 0);
    const GroupStart both{.number = 1,
                          .average = Average::kAverageWeights,
                          .members = {{{0}, 0, 0.5}, {{1}, 0, 0.5}}};
    distance.on_group_start(both);
    distance.on_group_end(both, true);
    distance.on_forward_start({2}, 0);
    return distance.mean();
  };
  EXPECT_NEAR(mean_with({}), 1.0 / 9, 1e-12);
  EXPECT_NEAR(mean_with({1, 1, 1}), 1.0 / 9, 1e-12);
  EXPECT_NEAR(mean_with({3, 1, 1}), 1.0 / 4, 1e-12);
}

TEST(PolicySimulation, RoundsEndUnderEveryPolicyOfPipelineReplicas) {
  const PipelineLayout layout{4, 2};
  for (const char* name : {"sdpipe", "partial_reduce", "prague", "adpsgd", "adpsgd_paired",
                           "overlapped", "ps", "ps_async", "ps_bounded", "hetpipe", "grouped_ps"}) {
    JobSpec job;
    job.sync.policy = name;
    for (const PipelineScenario& scenario :
         {homogeneous(), slow_pipelines(layout, 1, 4), sleeping_pieces(48000, kStepUs, 3)}) {
      PolicySimulationOptions options = options_of(layout, scenario);
      options.round_samples = 30;
      options.warm_up_us = 0;
      const PolicySimulation result = run(*make_policy(job, layout), options);
      EXPECT_FALSE(result.is_stuck) << name << " " << scenario.name;
      EXPECT_GT(result.steps_per_second, 10) << name << " " << scenario.name;
      // A slow one that others wait for in every step holds nobody up at the end of a round.
      if (scenario.name != homogeneous().name) continue;
      PolicySimulationOptions without = options_of(layout, scenario);
      without.warm_up_us = 0;
      EXPECT_LT(result.steps_per_second,
                1.02 * run(*make_policy(job, layout), without).steps_per_second)
          << name;
    }
  }
}

TEST(PolicySimulation, IsTheSameTwice) {
  const PipelineLayout layout{5, 3};
  const auto options = options_of(layout, sleeping_pieces(100000, kStepUs, 3));
  HetPipePolicy first(layout, {.wave = 4, .distance = 1});
  HetPipePolicy second(layout, {.wave = 4, .distance = 1});
  const PolicySimulation a = run(first, options), b = run(second, options);
  EXPECT_EQ(a.steps_by_pipeline, b.steps_by_pipeline);
  EXPECT_EQ(a.sizes, b.sizes);
  EXPECT_EQ(a.waiting_share, b.waiting_share);
}

TEST(PolicySimulation, BoundedStalenessLetsAFastPipelineGoNoFurther) {
  const PipelineLayout layout{4, 2};
  const auto policy = parameter_server(layout, {ServerMode::kBounded, 3});
  const auto options = options_of(layout, slow_pipelines(layout, 1, 4));
  const PolicySimulation result = run(*policy, options);
  for (uint32_t pipeline = 1; pipeline < 4; ++pipeline) {
    EXPECT_LE(result.steps_by_pipeline[pipeline], result.steps_by_pipeline[0] + 2 * 3 + 2);
  }
  EXPECT_LE(result.staleness.rbegin()->first, 2 * 3 * 3u);
}

TEST(PolicySimulation, AsynchronousServersKeepTheHealthyPipelinesBusy) {
  const PipelineLayout layout{8, 4};
  const auto options = options_of(layout, slow_pipelines(layout, 1, 4));
  const auto synchronous = parameter_server(layout, {ServerMode::kSynchronous});
  const auto asynchronous = parameter_server(layout, {ServerMode::kAsynchronous});
  const PolicySimulation slow = run(*synchronous, options), fast = run(*asynchronous, options);
  EXPECT_GT(fast.steps_per_second, 2.5 * slow.steps_per_second);
  EXPECT_GT(slow.waiting_share, 0.5);
  EXPECT_LT(fast.waiting_share, 0.01);
}

TEST(PolicySimulation, ProgressiveGroupsComeCloseToTheTimeWithoutDelay) {
  const PipelineLayout layout{10, 1};
  const auto options = options_of(layout, slow_pipelines(layout, 1, 4));
  ProgressiveServerPolicy policy(layout, {.regroup = {.slowdown_max = 1.2}});
  const PolicySimulation result = run(policy, options);
  const double undisturbed = 10 / kStepUs * 1e6;
  EXPECT_GT(result.steps_per_second, undisturbed / 1.25);
  EXPECT_LE(result.size_quantile(1), 3u);  // Four groups of ten pipeline replicas.
}

TEST(PolicySimulation, NoPolicyOfServersIsStuckInAnyScenarioOfTheSuite) {
  for (const PipelineLayout layout : {PipelineLayout{4, 1}, PipelineLayout{5, 3}}) {
    PolicySimulationOptions options = options_of(layout, homogeneous());
    for (const PipelineScenario& scenario :
         heterogeneity_suite(layout, kStepUs, options.duration_us, 1)) {
      options.scenario = scenario;
      std::vector<std::unique_ptr<GroupScheduler>> policies;
      policies.push_back(parameter_server(layout, {ServerMode::kSynchronous}));
      policies.push_back(parameter_server(layout, {ServerMode::kAsynchronous}));
      policies.push_back(parameter_server(layout, {ServerMode::kBounded, 2}));
      policies.push_back(
          std::make_unique<HetPipePolicy>(layout, HetPipeOptions{.wave = 3, .distance = 1}));
      policies.push_back(
          std::make_unique<ProgressiveServerPolicy>(layout, ProgressiveServerOptions{}));
      for (size_t i = 0; i < policies.size(); ++i) {
        const PolicySimulation result = run(*policies[i], options);
        EXPECT_FALSE(result.is_stuck) << scenario.name << " policy " << i;
        EXPECT_GT(result.steps_per_second, 3) << scenario.name << " policy " << i;
      }
    }
  }
}

TEST(Heterogeneity, SleepsAreAShareOfThePieces) {
  const PipelineLayout layout{4, 2};
  const PipelineScenario scenario = sleeping_pieces(100, kStepUs, 5);
  int sleeps = 0;
  for (uint64_t iteration = 0; iteration < 5000; ++iteration) {
    const double end_us = end_of_piece(scenario, layout, {1, 3, iteration, true, 64}, 1000);
    EXPECT_TRUE(end_us == 1064 || end_us == 1164);
    sleeps += end_us == 1164 ? 1 : 0;
  }
  EXPECT_NEAR(sleeps / 5000.0, 0.1, 0.02);
}

TEST(Heterogeneity, AllScenariosOfTheSuiteAreValid) {
  const PipelineLayout layout{6, 3};
  for (const PipelineScenario& scenario : heterogeneity_suite(layout, kStepUs, 1e8, 1)) {
    const auto devices = static_cast<int32_t>(layout.replica_count());
    EXPECT_TRUE(validate(scenario.slowdown, devices).ok()) << scenario.name;
    for (size_t i = 1; i < scenario.changes.size(); ++i) {
      EXPECT_LE(scenario.changes[i - 1].at_us, scenario.changes[i].at_us);
    }
  }
}

/// Counts what it is told, and that it comes in an order that makes sense.
class Recorder final : public PolicyListener {
 public:
  explicit Recorder(const PipelineLayout& layout) : flights_(layout.replica_count()) {}
  bool advance(double now_us) override {
    EXPECT_GE(now_us, now_us_);
    now_us_ = now_us;
    return now_us < end_us;
  }
  void on_forward_start(ReplicaId replica, uint64_t step) override {
    EXPECT_EQ(step, flights_[replica.value].started++);
  }
  void on_forward_end(ReplicaId replica, uint64_t step) override {
    EXPECT_EQ(step, flights_[replica.value].ended++);
  }
  void on_gradient(ReplicaId replica, uint64_t step) override {
    Flight& flight = flights_[replica.value];
    EXPECT_EQ(step, flight.gradients++);
    EXPECT_LE(flight.gradients, flight.ended);
    EXPECT_FALSE(flight.is_ready);
    flight.is_ready = true;
  }
  void on_group_start(const GroupStart& start) override {
    for (const GroupMember& member : start.members) flights_[member.replica.value].is_ready = false;
    if (start.average != Average::kLocal) open_.insert(start.number);
  }
  void on_group_end(const GroupStart& start, bool ok) override {
    EXPECT_TRUE(ok);
    EXPECT_EQ(open_.erase(start.number), 1u);
    ++groups;
  }
  uint64_t gradients() const {
    uint64_t sum = 0;
    for (const Flight& flight : flights_) sum += flight.gradients;
    return sum;
  }

  double end_us = 1e18;
  uint64_t groups = 0;

 private:
  struct Flight {
    uint64_t started = 0, ended = 0, gradients = 0;
    bool is_ready = false;
  };
  std::vector<Flight> flights_;
  std::set<uint64_t> open_;
  double now_us_ = 0;
};

TEST(PolicySimulation, AListenerIsToldOfEveryPieceAndGroupAndChangesNothing) {
  const PipelineLayout layout{4, 3};
  const PolicySimulationOptions options = options_of(layout, sleeping_pieces(1e5, kStepUs, 3));
  AllreducePolicy policy(layout), same(layout);
  Recorder recorder(layout);
  const PolicySimulation result = simulate_policy(policy, options, &recorder);
  EXPECT_EQ(result.steps_per_second, run(same, options).steps_per_second);
  EXPECT_GT(recorder.groups, 100u);
  EXPECT_NEAR(recorder.gradients() / 12, recorder.groups / 3, 3);
}

TEST(PolicySimulation, AListenerMayEndTheRun) {
  const PipelineLayout layout{8, 1};
  AllreducePolicy policy(layout);
  Recorder recorder(layout);
  recorder.end_us = 20e6;
  const PolicySimulation result =
      simulate_policy(policy, options_of(layout, homogeneous()), &recorder);
  EXPECT_NEAR(result.steps_per_second, 8 / (kStepUs + 2 * 7.0 / 8 * kExchangeUs) * 1e6, 1);
}

}  // namespace
}  // namespace skein::plans
