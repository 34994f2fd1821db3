// The shape of the tables that `bench/policy_simulation` prints: signs and orders. Bounds on ratios
// are round numbers about what an earlier simulation of ours had, `TableRow::earlier` [S], and
// about what this one has; what SDPipe's authors measured of speeds is not known to us. That P = 1
// equals all-reduce with one stage, and that groups get smaller with P, is theirs: appendix, figure
// 9 [R].
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bench/policy_simulation/policy_table.hpp"

namespace skein::bench {
namespace {

constexpr uint64_t kSeed = 1;
constexpr double kSeconds = 80;  // Simulated.
constexpr double kSuiteSeconds = 40;
constexpr double kNoise = 0.03;  // Differences below it mean nothing.

/// Relative throughputs, simulated, of SDPipe for P = 1, 2, 5, 10, and of both AD-PSGDs.
struct ArtefactPolicies {
  explicit ArtefactPolicies(const TableRow& row) {
    for (const NamedPolicy& policy : artefact_policies()) {
      relative.push_back(relative_throughput(row, policy, kSeed, kSeconds));
    }
  }
  double sdpipe_most() const {
    return std::max({relative[0], relative[1], relative[2], relative[3]});
  }
  double pairs() const { return relative[4]; }
  double wait_free() const { return relative[5]; }
  std::vector<double> relative;
};

std::vector<TableRow> rows_of(Disturbance disturbance) {
  std::vector<TableRow> rows = table_rows();
  std::erase_if(rows, [&](const TableRow& row) { return row.disturbance != disturbance; });
  return rows;
}

double of_other(const TableRow& row, const std::string& name) {
  for (const NamedPolicy& policy : other_policies()) {
    if (policy.name == name) return relative_throughput(row, policy, kSeed, kSeconds);
  }
  ADD_FAILURE() << "no policy " << name;
  return 0;
}

TEST(PolicyTable, WithoutDisturbanceSdpipeIsAsFastAsAllreduceAndPairsAreFaster) {
  for (const TableRow& row : rows_of(Disturbance::kNone)) {
    const ArtefactPolicies table(row);
    for (size_t p = 0; p < 4; ++p) EXPECT_NEAR(table.relative[p], 1.03, 0.06) << row.name();
    EXPECT_GT(table.pairs(), table.sdpipe_most()) << row.name();
    EXPECT_GE(table.wait_free(), table.pairs() - kNoise) << row.name();
  }
}

TEST(PolicyTable, LongerPeriodsBringMoreUnderDynamicNoise) {
  for (const TableRow& row : rows_of(Disturbance::kDynamic)) {
    const ArtefactPolicies table(row);
    for (size_t p = 1; p < 4; ++p) {
      EXPECT_GT(table.relative[p], table.relative[p - 1] - kNoise) << row.name();
    }
    EXPECT_GT(table.relative[2], 1.25) << row.name();
    EXPECT_GT(table.pairs(), 1.05) << row.name();
    EXPECT_LT(table.pairs(), table.relative[2]) << row.name();
    EXPECT_GE(table.wait_free(), table.sdpipe_most() - kNoise) << row.name();
  }
}

TEST(PolicyTable, OneSlowPipelineHurtsPairsThatMustMeetAndNotThoseThatNeedNot) {
  for (const TableRow& row : rows_of(Disturbance::kOneSlow)) {
    const ArtefactPolicies table(row);
    EXPECT_NEAR(table.pairs(), 1.05, 0.05) << row.name();
    EXPECT_GT(table.relative[1], 1.2) << row.name();
    EXPECT_GT(table.relative[2], table.relative[1]) << row.name();
    EXPECT_GT(table.relative[3], 2) << row.name();
    EXPECT_GT(table.wait_free(), table.sdpipe_most()) << row.name();
  }
}

TEST(PolicyTable, PeriodOneIsAllreduceWithOneStageOnly) {
  for (const TableRow& row : table_rows()) {
    const double relative = relative_throughput(row, sdpipe_artefact(1), kSeed, kSeconds);
    if (row.layout.stages == 1) {
      EXPECT_NEAR(relative, 1, 0.02) << row.name();
    } else if (row.disturbance == Disturbance::kDynamic) {
      EXPECT_GT(relative, 1.03) << row.name();
    }
  }
}

TEST(PolicyTable, ShortWindowsMakeManyLocalStepsInPipelines) {
  for (const TableRow& row : rows_of(Disturbance::kDynamic)) {
    if (row.layout.stages == 1) continue;
    for (const uint64_t period : {5, 10}) {
      const double size = simulate(row, sdpipe_artefact(period), kSeed, kSeconds).size_mean();
      EXPECT_GT(size, 1.2) << row.name();
      EXPECT_LT(size, 1.8) << row.name();
    }
  }
}

TEST(PolicyTable, GroupsGetSmallerWithThePeriod) {
  const TableRow row = table_rows()[1];  // 8x1, dynamic.
  uint64_t before = UINT64_MAX;
  for (const uint64_t period : {1, 2, 5}) {
    const plans::PolicySimulation result = simulate(row, sdpipe_artefact(period), kSeed, kSeconds);
    EXPECT_LE(result.size_quantile(0.5), before);
    before = result.size_quantile(0.5);
    EXPECT_EQ(result.size_quantile(0) == 8, period == 1);
  }
}

TEST(PolicyTable, LooserServersAreFasterUnderDynamicNoise) {
  for (const TableRow& row : rows_of(Disturbance::kDynamic)) {
    const double synchronous = of_other(row, "PS sync"), bounded = of_other(row, "PS s=4");
    EXPECT_LE(synchronous, 1) << row.name();
    EXPECT_GT(bounded, synchronous + 0.2) << row.name();
    EXPECT_GE(of_other(row, "PS async"), bounded) << row.name();
    EXPECT_GE(of_other(row, "groups 4"), of_other(row, "groups 2") - kNoise) << row.name();
  }
}

TEST(PolicyTable, ABoundedServerFollowsASlowPipelineInTheEndAndAsynchronousOnesDoNot) {
  for (const TableRow& row : rows_of(Disturbance::kOneSlow)) {
    EXPECT_NEAR(of_other(row, "PS s=4"), of_other(row, "PS sync"), kNoise) << row.name();
    EXPECT_GT(of_other(row, "PS async"), 2) << row.name();
    EXPECT_GT(of_other(row, "groups 2"), 1.3) << row.name();
    EXPECT_GT(of_other(row, "progressive"), of_other(row, "groups 2")) << row.name();
  }
}

/// Also where pipeline replicas die and join (H7), which all-reduce with its fixed members does not
/// outlive.
TEST(PolicyTable, NoPolicyIsStuckAnywhereInTheSuite) {
  std::vector<NamedPolicy> policies = artefact_policies();
  for (NamedPolicy& policy : other_policies()) policies.push_back(std::move(policy));
  for (const plans::PipelineLayout layout : {plans::PipelineLayout{8, 1}, {4, 4}}) {
    for (const plans::PipelineScenario& scenario : suite(layout, kSuiteSeconds, kSeed)) {
      for (const NamedPolicy& policy : policies) {
        const plans::PolicySimulation result =
            simulate(layout, scenario, policy, kSeed, kSuiteSeconds);
        EXPECT_FALSE(result.is_stuck) << scenario.name << " " << policy.name;
        for (const uint64_t steps : result.steps_by_pipeline) {
          EXPECT_GT(steps, 15u) << scenario.name << " " << policy.name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace skein::bench
