#include "actors/replica/model_work.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "actors/averaging/model_floats.hpp"
#include "gpu/data/token_data.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::actors {
namespace {

/// A stage in the middle whose gradient is 1 everywhere, trained with plain SGD.
struct Stage {
  Stage() {
    gpu::StageModelOptions options;
    options.model.vocab_size = 5;
    options.model.positions = 4;
    options.model.layers = 2;
    options.model.heads = 1;
    options.model.channels = 4;
    options.layers = {1, 2};
    options.optimizer.name = "sgd";
    options.optimizer.momentum = 0;
    options.optimizer.weight_decay = 0;
    options.rows = 1;
    options.seq_len = 4;
    model = gpu::StageModel::create(options, *device).value();
    const auto gradients = model->stage_gradients();
    std::fill(gradients.begin(), gradients.end(), 1.0F);
    job.optimizer = options.optimizer;
    job.optimizer.lr = 0.5;
    job.lr_scheduler.warmup_steps = 0;
    job.training.steps = 1000;
  }

  std::vector<float> weights() const {
    std::vector<float> values;
    EXPECT_TRUE(read_floats(*model, ModelFloats::kWeights, values).ok());
    return values;
  }
  /// How far each weight moves in an update.
  double moved(double norm_squared, double max_norm, double clip_share, bool by_stage = true,
               double gradient_norm = 0) {
    job.training.max_norm = max_norm;
    const std::vector<float> before = weights();
    plans::RunUpdate run;
    run.by_stage = by_stage;
    run.gradient_norm = gradient_norm;
    StageUpdate stage{model, 1, nullptr, std::make_shared<double>(norm_squared), clip_share};
    EXPECT_TRUE(device->run(update_work(run, job, {stage}, nullptr)).ok());
    const std::vector<float> after = weights();
    double most = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      most = std::max(most, std::abs(double{before[i]} - double{after[i]}));
    }
    return most;
  }

  std::unique_ptr<gpu::Device> device = gpu::make_host_device(1);
  std::shared_ptr<gpu::StageModel> model;
  plans::JobSpec job;
};

TEST(UpdateWork, ClipsByTheStagesOwnNormWhereNobodyHasLookedAtTheOthers) {
  const double rate = 0.5;
  EXPECT_NEAR(Stage().moved(4, 0, 1), rate, 1e-6) << "no clipping";
  EXPECT_NEAR(Stage().moved(4, 5, 1), rate, 1e-6) << "a norm of 2 is below 5";
  EXPECT_NEAR(Stage().moved(4, 1, 1), rate / 2, 1e-6);
  EXPECT_NEAR(Stage().moved(4, 1, 0.5), rate / 4, 1e-6) << "half of the norm is its share";
  EXPECT_NEAR(Stage().moved(4, 1, 0.5, false, 4), rate / 4, 1e-6) << "by the norm of all";
}

TEST(UpdateWork, DoesNotApplyAGradientThatIsNotFinite) {
  for (double norm :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(Stage().moved(norm, 1, 1), 0);
    EXPECT_EQ(Stage().moved(norm, 0, 1), 0) << "without clipping";
  }
}

/// The gradient and the tokens of a claim of two samples, by a model of one stage with so many
/// rows.
std::pair<std::vector<float>, int64_t> learnt_from_two(int64_t rows, gpu::Device& device,
                                                       std::shared_ptr<gpu::TokenData> data) {
  gpu::StageModelOptions options;
  options.model.vocab_size = 256;
  options.model.positions = 4;
  options.model.layers = 1;
  options.model.heads = 1;
  options.model.channels = 4;
  options.layers = {0, plans::layer_count(options.model)};
  options.rows = rows;
  options.seq_len = 4;
  StageReplica replica;
  replica.parts.model = gpu::StageModel::create(options, device).value();
  replica.rows = {0, rows};
  plans::RunAction run;
  run.begins_step = true;
  ForwardWork forward;
  forward.data = std::move(data);
  forward.first_sample = 7;
  forward.end_sample = 9;
  forward.seq_len = 4;
  EXPECT_TRUE(device.run(forward_work(run, replica, std::move(forward), 2)).ok());
  gpu::Work backward;
  backward.run = [&](gpu::Ops& ops) {
    return replica.parts.model->backward(ops, run.stash(), {}, {});
  };
  EXPECT_TRUE(device.run(std::move(backward)).ok());
  const std::span<const float> gradients = replica.parts.model->stage_gradients();
  return {{gradients.begin(), gradients.end()}, replica.parts.model->loss_tokens()};
}

TEST(ForwardWork, NothingIsLearntFromRowsBehindTheClaim) {
  const tests::TemporaryFolder folder;
  std::ofstream text(folder.file("text"));
  for (int i = 0; i < 20; ++i) text << "Nothing is learnt from row " << i << " behind the claim. ";
  text.close();
  gpu::TokenData::Options options;
  options.data.dataset = "text";
  options.data.path = folder.file("text");
  options.seq_len = 4;
  options.vocab_size = 256;
  const std::shared_ptr<gpu::TokenData> data = gpu::TokenData::open(options).value();
  const auto device = gpu::make_host_device(1);
  const auto [exact, counted] = learnt_from_two(2, *device, data);
  const auto [padded, counted_padded] = learnt_from_two(5, *device, data);
  EXPECT_EQ(counted, 8);
  EXPECT_EQ(counted_padded, 8);
  ASSERT_EQ(exact.size(), padded.size());
  double largest = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_NEAR(exact[i], padded[i], 1e-6) << i;
    largest = std::max(largest, std::abs(double{exact[i]}));
  }
  EXPECT_GT(largest, 1e-3);
}

/// A token of a deeper sub-model may have many more rows than are validated.
TEST(ValidationWork, RowsThatAreAllPaddingAreNotEvaluated) {
  Stage stage;
  StageReplica replica;
  replica.parts.model = stage.model;
  replica.rows = {0, 1};
  replica.block_count = 1;
  replica.row_share = 1;
  std::vector<float> given(stage.model->activation_elements()), taken(given.size());
  for (size_t i = 0; i < given.size(); ++i) given[i] = static_cast<float>(i % 3);
  const auto evaluate = [&](uint64_t first_sample) {
    std::fill(taken.begin(), taken.end(), 7.0F);
    ForwardWork forward;
    forward.first_sample = first_sample;
    forward.end_sample = 2;
    forward.seq_len = 4;
    forward.activations = std::make_shared<std::span<float>>(given);
    forward.output = std::make_shared<std::span<float>>(taken);
    gpu::Work work = validation_work({0, 1, 0, true}, replica, std::move(forward));
    const double share = work.share;
    EXPECT_TRUE(stage.device->run(std::move(work)).ok());
    return share;
  };
  EXPECT_EQ(evaluate(1), 1);
  EXPECT_NE(taken, given);
  EXPECT_NE(taken.front(), 7);
  EXPECT_NE(taken, std::vector<float>(taken.size(), 0));
  EXPECT_EQ(evaluate(2), 0) << "no time either";
  EXPECT_EQ(taken, std::vector<float>(taken.size(), 0));
}

}  // namespace
}  // namespace skein::actors
