// The parts of bench/policies that its figures rest on: data, gradients, and what averaging means.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/policies/idx_file.hpp"
#include "bench/policies/labelled_data.hpp"
#include "bench/policies/lateness.hpp"
#include "bench/policies/mlp_task.hpp"
#include "bench/policies/sample_supply.hpp"
#include "bench/policies/trials.hpp"
#include "plans/sync/hetpipe.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::bench {
namespace {

std::string written(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(IdxFile, TakesOnlyFilesWhoseHeaderAndSizeAgree) {
  const tests::TemporaryFolder folder;
  const std::string path = folder.path() + "/idx";
  const std::string head = {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3};
  const auto good = read_idx(written(path, head + "abcdef"), 2);
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(good->sizes, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(good->values[5], 'f');
  const std::string huge = {0, 0, 8, 2, 127, 0, 0, 2, 127, 0, 0, 3};
  const std::string other = {0, 0, 9, 2, 0, 0, 0, 2, 0, 0, 0, 3};
  for (const std::string& bad : {head + "abcde", head + "abcdefg", huge + "abcdef",
                                 other + "abcdef", head.substr(0, 7), std::string()}) {
    EXPECT_EQ(read_idx(written(path, bad), 2).status().code(), absl::StatusCode::kDataLoss);
  }
  EXPECT_EQ(read_idx(path + "-missing", 2).status().code(), absl::StatusCode::kNotFound);
}

TEST(SampleSupply, ShuffledPassesTakeEverySampleOnceAndSkewedPipelinesKeepToTheirPart) {
  std::vector<uint32_t> order(64);
  std::iota(order.begin(), order.end(), 0u);
  for (const bool is_skewed : {false, true}) {
    SampleSupply supply(order, {.pipelines = 4, .batch = 4, .is_skewed = is_skewed, .seed = 3});
    std::multiset<uint32_t> seen;
    for (uint64_t step = 0; step < 8; ++step) {
      for (uint32_t pipeline = 0; pipeline < 4; ++pipeline) {
        for (const uint32_t sample : supply.take(pipeline, step)) {
          EXPECT_TRUE(!is_skewed || sample / 16 == pipeline) << sample;
          seen.insert(sample);
        }
        supply.finish(pipeline, step);
      }
    }
    for (const uint32_t sample : order) EXPECT_EQ(seen.count(sample), 2u) << sample;
  }
}

/// Loss of one sample batch by differences of the loss on a data set that holds out what it trains.
class MlpGradient : public testing::TestWithParam<uint32_t> {};

TEST_P(MlpGradient, IsTheDerivativeOfTheLossThroughAllStages) {
  LabelledData data = make_teacher_data(1);
  const std::vector<uint32_t> samples = {0, 1, 2, 3, 4};
  data.held_out.classes.assign(data.training.classes.begin(), data.training.classes.begin() + 5);
  data.held_out.inputs.assign(
      data.training.inputs.begin(),
      data.training.inputs.begin() + static_cast<ptrdiff_t>(5 * data.width));
  MlpTask task(data, GetParam(), 8);
  std::vector<std::vector<float>> weights, outputs;
  for (uint32_t stage = 0; stage < GetParam(); ++stage) {
    weights.push_back(task.initial_weights(stage, 2));
  }
  for (uint32_t stage = 0; stage + 1 < GetParam(); ++stage) {
    outputs.push_back(task.forward(stage, weights[stage], samples,
                                   stage > 0 ? outputs.back() : std::vector<float>()));
  }
  std::vector<float> passed;
  for (uint32_t stage = GetParam(); stage-- > 0;) {
    std::vector<float> gradient(weights[stage].size());
    passed = task.backward(stage, weights[stage], samples,
                           stage > 0 ? outputs[stage - 1] : std::vector<float>(), passed, gradient);
    for (size_t i = 0; i < gradient.size(); i += 17) {
      constexpr float kStep = 1e-2f;
      auto moved = weights;
      moved[stage][i] += kStep;
      const double above = task.evaluate(moved).loss;
      moved[stage][i] -= 2 * kStep;
      EXPECT_NEAR(gradient[i], (above - task.evaluate(moved).loss) / (2 * kStep), 3e-2)
          << "stage " << stage << " weight " << i;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Stages, MlpGradient, testing::Values(1, 2, 4));

TrialResult train(const NamedPolicy& policy, uint32_t stages,
                  const plans::PipelineScenario& scenario, double evaluate_every_us = 100'000,
                  uint64_t round_steps = kRoundSteps) {
  const LabelledData data = make_teacher_data(1);
  MlpTask task(data, stages, 16);
  Trial trial{
      .policy = policy, .scenario = scenario, .duration_us = 10e6, .round_steps = round_steps};
  trial.training.layout = {4, stages};
  trial.training.evaluate_every_us = evaluate_every_us;
  return run_trial(task, trial);
}

NamedPolicy named(const std::string& name) {
  for (NamedPolicy& policy : other_policies()) {
    if (policy.name == name) return policy;
  }
  return allreduce();
}

/// After each step, whatever it takes.
std::vector<double> losses(const TrialResult& result) {
  std::vector<double> losses;
  for (const TrainingPoint& point : result.points) {
    const bool is_same = !losses.empty() && std::abs(losses.back() - point.score.loss) < 1e-5;
    if (!is_same) losses.push_back(point.score.loss);  // An average only rounds the mean.
  }
  return losses;
}

/// The server adds the mean of local momentum steps, which is the momentum step of the mean; and
/// so is the average of weights when everybody takes part.
TEST(ReplicaTraining, ASynchronousServerAndFullAveragesTrainAsAllreduceDoes) {
  const std::vector<double> reduced = losses(train(allreduce(), 1, plans::homogeneous(), 20'000));
  for (const NamedPolicy& policy : {named("PS sync"), named("ours P=5")}) {
    const std::vector<double> own = losses(train(policy, 1, plans::homogeneous(), 20'000));
    ASSERT_GT(own.size(), 60u);
    for (size_t i = 0; i < 60; ++i) EXPECT_NEAR(own[i], reduced[i], 1e-3) << policy.name << i;
  }
}

/// The mean of momentum steps that nobody shares is the momentum step of the mean; and so it is
/// with what a server has had in a round's other steps.
TEST(ReplicaTraining, RoundsOfFewStepsTrainAsAllreduceDoes) {
  const std::vector<double> reduced = losses(train(allreduce(), 1, plans::homogeneous(), 20'000));
  const NamedPolicy nobody{"nobody", [](const auto& layout, uint64_t) {
                             return std::make_unique<plans::HetPipePolicy>(
                                 layout, plans::HetPipeOptions{.wave = 1'000'000});
                           }};
  const std::vector<std::pair<NamedPolicy, uint64_t>> trials = {{nobody, 1}, {named("PS sync"), 3}};
  for (const auto& [policy, round_steps] : trials) {
    const std::vector<double> own =
        losses(train(policy, 1, plans::homogeneous(), 20'000, round_steps));
    ASSERT_GT(own.size(), 40u) << policy.name;
    for (size_t i = 0; i < 40; ++i) EXPECT_NEAR(own[i], reduced[i], 1e-3) << policy.name << i;
  }
}

/// Its gradients are reduced, so it never waits for the end of a round.
TEST(ReplicaTraining, AllreduceHasNoRounds) {
  const TrialResult with = train(allreduce(), 1, plans::homogeneous());
  EXPECT_EQ(with.points, train(allreduce(), 1, plans::homogeneous(), 100'000, 0).points);
}

TEST(ReplicaTraining, EverySampleIsOfAClaimAndStashesAreOfTheirStep) {
  const plans::PipelineScenario noisy = plans::sleeping_pieces(1e5, 6e4, 5);
  for (const uint32_t stages : {1, 3}) {  // The checks are inside.
    for (const NamedPolicy& policy : artefact_policies()) {
      const TrialResult result = train(policy, stages, noisy);
      EXPECT_LT(result.points.back().score.loss, result.points.front().score.loss) << policy.name;
      EXPECT_GT(result.points.back().samples, 1000u) << policy.name;
    }
  }
}

TEST(Lateness, IsThatOfItsSeedAndAsLongInTheMeanAsItSays) {
  Lateness first(1), same(1), other(2);
  double sum_us = 0;
  uint64_t different = 0;
  for (int i = 0; i < 10'000; ++i) {
    const uint64_t late_us = first.next_us();
    EXPECT_EQ(late_us, same.next_us());
    different += late_us == other.next_us() ? 0 : 1;
    sum_us += static_cast<double>(late_us);
  }
  EXPECT_NEAR(sum_us / 10'000, Lateness::kMeanUs, 0.05 * Lateness::kMeanUs);
  EXPECT_GT(different, 9'900u);
}

TEST(TrialResult, FindsTimesBetweenEvaluations) {
  TrialResult result;
  result.points = {{0, 0, {2.0, 0}}, {100, 10, {1.0, 0}}, {200, 20, {0.5, 0}}};
  EXPECT_DOUBLE_EQ(result.time_to_loss_us(1.5).value(), 50);
  EXPECT_DOUBLE_EQ(result.time_to_loss_us(0.5).value(), 200);
  EXPECT_FALSE(result.time_to_loss_us(0.4));
  EXPECT_DOUBLE_EQ(result.samples_to_loss(1.5).value(), 5);
  EXPECT_DOUBLE_EQ(result.samples_to_loss(3).value(), 0);
  EXPECT_FALSE(result.samples_to_loss(0.4));
  EXPECT_DOUBLE_EQ(result.time_to_samples_us(15).value(), 150);
}

}  // namespace
}  // namespace skein::bench
