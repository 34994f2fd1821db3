#include "plans/simulator/policy_rounds.hpp"

#include <gtest/gtest.h>

namespace skein::plans {
namespace {

/// Steps of eight samples, and rounds of ten steps.
JobSpec job_of_rounds() {
  JobSpec job;
  job.training.global_batch_size = 8;
  job.sync.round_steps = 10;
  job.validation.batches = 0;
  job.checkpoint.enable = false;
  return job;
}

/// Two pipeline replicas of two stages, of which the second one takes 300 us for an update.
PolicySimulationOptions options_of_two() {
  PolicySimulationOptions options;
  options.layout = {.pipelines = 2, .stages = 2};
  options.forward_us = {50, 100};
  options.backward_us = {100, 180};
  options.update_us = 20;
  return options;
}

TEST(PolicyRounds, AreThoseOfTheJobAndThereIsTimeForSeveral) {
  PolicySimulationOptions options = options_of_two();
  options.duration_us = 1000;
  EXPECT_EQ(set_rounds(job_of_rounds(), 700, 4, options), 1);
  EXPECT_EQ(options.round_samples, 80u);
  EXPECT_EQ(options.global_us, 700);
  EXPECT_DOUBLE_EQ(options.duration_us, 4 * (40 * 300 + 700));
  EXPECT_DOUBLE_EQ(options.warm_up_us, 40 * 300 + 700);
  options.duration_us = 1e6;
  EXPECT_EQ(set_rounds(job_of_rounds(), 700, 4, options), 1);
  EXPECT_DOUBLE_EQ(options.duration_us, 1e6) << "there was time for more";
}

TEST(PolicyRounds, ValidationsEndThem) {
  JobSpec job = job_of_rounds();
  job.validation = {.interval = 3, .batches = 1};
  PolicySimulationOptions options = options_of_two();
  EXPECT_EQ(set_rounds(job, 0, 4, options), 1);
  EXPECT_EQ(options.round_samples, 20u) << "thirty steps have twelve ends";
}

TEST(PolicyRounds, OneThatNeverEndsIsLeftOut) {
  JobSpec job = job_of_rounds();
  job.training.steps = 1'000'000;
  job.sync.round_steps = int64_t{1} << 61;  // Eight times as many are none, modulo 2^64.
  PolicySimulationOptions options = options_of_two();
  options.duration_us = 1000;
  EXPECT_NEAR(set_rounds(job, 700, 4, options), 1, 1e-6);
  EXPECT_EQ(options.round_samples, 0u);
  EXPECT_EQ(options.duration_us, 1000);
}

TEST(PolicyRounds, SizesOfClaimsSlownessAndStallsCount) {
  PolicySimulationOptions options = options_of_two();
  options.claim_samples = {3, 1};
  options.scenario.slowness = {1, 2};
  EXPECT_EQ(set_rounds(job_of_rounds(), 0, 4, options), 1);
  const double quiet_us = options.duration_us;
  EXPECT_NEAR(quiet_us, 4 * 80 / (3.0 / 300 + 1.0 / 580), 1) << "an update is never slowed down";
  options.scenario = sleeping_pieces(/*sleep_us=*/15000, /*step_us=*/300, /*seed=*/1);
  options.scenario.slowness = {1, 2};
  options.duration_us = 0;
  EXPECT_EQ(set_rounds(job_of_rounds(), 0, 4, options), 1);
  EXPECT_GT(options.duration_us, 2 * quiet_us) << "one in ten pieces takes 15 ms more";
}

TEST(PolicyRounds, TooLongOnesAreLeftOut) {
  JobSpec job = job_of_rounds();
  job.sync.round_steps = 1000;
  PolicySimulationOptions options = options_of_two();
  options.duration_us = 1000;
  EXPECT_EQ(set_rounds(job, 0, 4, options), 1);
  EXPECT_EQ(options.round_samples, 0u);
  EXPECT_EQ(options.duration_us, 1000);
  EXPECT_EQ(options.warm_up_us, 250);
}

/// Eight thousand samples at two in 300 us.
TEST(PolicyRounds, WhereTheyAreLeftOutTheGlobalAverageTakesItsShareOfTheTime) {
  JobSpec job = job_of_rounds();
  job.sync.round_steps = 1000;
  PolicySimulationOptions options = options_of_two();
  EXPECT_NEAR(set_rounds(job, 400'000, 4, options), 0.75, 1e-9);
  EXPECT_EQ(options.round_samples, 0u);
}

/// While it lasts nobody does an update, so there is nothing to simulate.
TEST(PolicyRounds, ALongGlobalAverageIsNoReasonToLeaveThemOut) {
  PolicySimulationOptions options = options_of_two();
  EXPECT_EQ(set_rounds(job_of_rounds(), 1e9, 4, options), 1);
  EXPECT_EQ(options.round_samples, 80u);
  EXPECT_DOUBLE_EQ(options.duration_us, 4 * (40 * 300 + 1e9));
}

}  // namespace
}  // namespace skein::plans
