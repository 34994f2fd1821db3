#include "cli/config/planning_inputs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/support/temporary_folder.hpp"

namespace skein::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A model of three layers that is no transformer, and two devices.
class PlanningInputsTest : public testing::Test {
 protected:
  PlanningInputsTest() {
    std::ofstream(options_.profile_path) << R"({"format": "skein-profile-1", "rows": [4, 16],
      "source": "written by hand", "layers": [
      {"name": "a", "forward_us": [10, 40], "backward_us": [20, 80], "parameter_bytes": 1000},
      {"name": "b", "forward_us": [10, 40], "backward_us": [20, 80], "parameter_bytes": 1000},
      {"name": "c", "forward_us": [10, 40], "backward_us": [20, 80], "parameter_bytes": 1000}]})";
    std::ofstream(cluster_) << "[[host]]\ndevices = 2\n";
    std::ofstream(job_) << "[model]\nn_layer = 1\n[training]\nseq_len = 32\n";
    options_.job_path = cluster_;  // The only file that is given.
  }
  std::string trouble() const {
    return std::string(load_planning_inputs(options_).status().message());
  }

  tests::TemporaryFolder folder_;
  std::string cluster_ = folder_.file("cluster.toml");
  std::string job_ = folder_.file("job.toml");
  PlanningOptions options_ = {.profile_path = folder_.file("three.json")};
};

TEST_F(PlanningInputsTest, AProfileAndAClusterAreEnough) {
  const auto inputs = load_planning_inputs(options_);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_FALSE(inputs->has_job);
  EXPECT_FALSE(inputs->estimated);
  EXPECT_EQ(inputs->job.spec.name, "three");
  EXPECT_EQ(model_text(*inputs), "3 layers");
  EXPECT_THAT(inputs->request.microbatch_rows, ElementsAre(16)) << "the most that was measured";
  EXPECT_EQ(inputs->request.global_batch_rows, 16 * 4 * 2);
  EXPECT_THAT(inputs->request.schedules, ElementsAre(plans::ScheduleKind::k1F1B));
  const auto plan = plans::planners().front().make_plan(inputs->request);
  EXPECT_TRUE(plan.ok()) << plan.status();
}

TEST_F(PlanningInputsTest, BatchAndScheduleAreGivenByFlags) {
  options_.batch = 48;
  options_.microbatch_rows = {4, 8};
  options_.schedules = {"GPipe", "1F1B"};
  options_.overrides = {{"job.name", "vgg"}, {"parallelism.plans_of_others", "false"}};
  const auto inputs = load_planning_inputs(options_);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_EQ(inputs->request.global_batch_rows, 48);
  EXPECT_THAT(inputs->request.microbatch_rows, ElementsAre(4, 8));
  EXPECT_EQ(inputs->request.schedules.size(), 2);
  EXPECT_EQ(inputs->job.spec.name, "vgg");
  EXPECT_FALSE(inputs->request.asks_others);
  options_.batch = 50;
  EXPECT_THAT(trouble(), HasSubstr("--microbatch-rows 4"));
  EXPECT_THAT(trouble(), HasSubstr("the batch of 50"));
}

TEST_F(PlanningInputsTest, OnlyAJobSaysHowManyTokensASampleHas) {
  const auto without = load_planning_inputs(options_);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(throughput(*without, 1e6).samples, 128);
  EXPECT_EQ(throughput(*without, 1e6).tokens, 0);
  options_.job_path = job_;
  options_.cluster_path = cluster_;
  options_.batch = 64;
  const auto with = load_planning_inputs(options_);
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_TRUE(with->has_job);
  EXPECT_EQ(model_text(*with), "3 layers = embedding, 1 block, head");
  EXPECT_EQ(throughput(*with, 2e6).samples, 32) << "--batch goes over the job's";
  EXPECT_EQ(throughput(*with, 2e6).tokens, 32 * 32);
  EXPECT_EQ(throughput(*with, 0).samples, 0);
}

TEST_F(PlanningInputsTest, WhatIsMissingIsSaid) {
  std::ofstream(job_) << "[model]\nn_layer = 7\n";
  options_.job_path = job_;
  EXPECT_THAT(trouble(), HasSubstr("that file is the cluster"));
  options_.cluster_path = cluster_;
  EXPECT_THAT(trouble(), HasSubstr("3 layers, but the job's model has 9 layers = embedding, 7 "));
  EXPECT_THAT(trouble(), HasSubstr("leave out the job file"));
  options_.cluster_path.clear();
  options_.profile_path.clear();
  EXPECT_THAT(trouble(), HasSubstr("a cluster file and --profile"));
}

}  // namespace
}  // namespace skein::cli
