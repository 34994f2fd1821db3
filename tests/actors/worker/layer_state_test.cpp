#include "actors/worker/layer_state.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "tests/actors/small_job.hpp"

namespace skein::actors {
namespace {

struct Models {
  plans::ModelSpec spec = small_job(1, 1).model;
  std::shared_ptr<gpu::Device> device = gpu::make_host_device(1);

  std::shared_ptr<gpu::StageModel> make(plans::LayerRange layers, uint64_t seed) {
    gpu::StageModelOptions options;
    options.model = spec;
    options.layers = layers;
    options.rows = 1;
    options.seq_len = 4;
    options.seed = seed;
    return gpu::StageModel::create(options, *device).value();
  }
  int64_t count() const { return plans::layer_count(spec); }
};

std::vector<float> weights(const gpu::StageModel& model) {
  std::vector<float> all;
  for (size_t i = 0; i < model.parameters().size(); ++i) {
    std::vector<float> values(static_cast<size_t>(plans::element_count(model.parameters()[i])));
    EXPECT_TRUE(model.read_state(i, gpu::StateKind::kWeight, values).ok());
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

TEST(LayerState, LayerByLayerAModelBecomesAnother) {
  for (bool tied : {false, true}) {
    Models models;
    models.spec.tied_head = tied;
    const auto from = models.make({0, models.count()}, 1);
    const auto to = models.make({0, models.count()}, 2);
    EXPECT_NE(weights(*from), weights(*to));
    for (int64_t layer = 0; layer < models.count(); ++layer) {
      std::vector<float> state(static_cast<size_t>(layer_state_floats(models.spec, layer)));
      ASSERT_TRUE(read_layer_state(models.spec, layer, *from, state).ok());
      ASSERT_TRUE(write_layer_state(models.spec, layer, state, *to).ok());
    }
    EXPECT_EQ(weights(*from), weights(*to)) << "tied " << tied;
  }
}

TEST(LayerState, TheLastStageGetsItsCopyOfATiedEmbedding) {
  Models models;
  models.spec.tied_head = true;
  const int64_t last = models.count() - 1;
  const auto whole = models.make({0, models.count()}, 1);
  const auto head = models.make({last, last + 1}, 2);
  std::vector<float> state(static_cast<size_t>(layer_state_floats(models.spec, last)));
  ASSERT_TRUE(read_layer_state(models.spec, last, *whole, state).ok());
  ASSERT_TRUE(write_layer_state(models.spec, last, state, *head).ok());
  EXPECT_EQ(weights(*head), weights(*models.make({last, last + 1}, 1)));
}

TEST(LayerState, AnyFlippedBitIsFound) {
  Models models;
  const auto model = models.make({1, 2}, 1);
  std::vector<float> state(static_cast<size_t>(layer_state_floats(models.spec, 1)));
  ASSERT_TRUE(read_layer_state(models.spec, 1, *model, state).ok());
  ASSERT_TRUE(check_layer_state(models.spec, 1, state).ok());
  for (size_t i = 0; i < state.size(); i += 7) {
    const float whole = state[i];
    state[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(whole) ^ (1U << (i % 32)));
    EXPECT_TRUE(absl::IsDataLoss(check_layer_state(models.spec, 1, state))) << i;
    state[i] = whole;
  }
  EXPECT_TRUE(absl::IsDataLoss(check_layer_state(models.spec, 2, state))) << "another layer's";
  state.pop_back();
  EXPECT_TRUE(absl::IsDataLoss(check_layer_state(models.spec, 1, state)));
}

TEST(LayerState, IsFoundByLayerAndStep) {
  Models models;
  HeldState live{5, 1, {0, 2}, models.make({0, 2}, 1), {}, {}};
  HeldState copy{4, 1, {2, 3}, nullptr, {}, {}};
  copy.copies[2] = make_layer_memory(layer_state_floats(models.spec, 2));
  const std::vector<HeldState> held = {live, copy};
  EXPECT_TRUE(find_layer_state(models.spec, 1, 5, held).ok());
  EXPECT_EQ(*find_layer_state(models.spec, 2, 4, held), copy.copies[2]) << "shared";
  EXPECT_TRUE(absl::IsNotFound(find_layer_state(models.spec, 1, 4, held).status()));
  EXPECT_TRUE(absl::IsNotFound(find_layer_state(models.spec, 2, 5, held).status()));
}

}  // namespace
}  // namespace skein::actors
