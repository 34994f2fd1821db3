#include "actors/collectives/group_reducer.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "gpu/device.hpp"
#include "gpu/model/stage_model.hpp"

namespace skein::actors {
namespace {

plans::ModelSpec small_model(bool tied) {
  plans::ModelSpec model;
  model.layers = 2;
  model.channels = 8;
  model.heads = 2;
  model.vocab_size = 16;
  model.positions = 8;
  model.tied_head = tied;
  return model;
}

TEST(GroupReducer, TensorsTileTheGradientsOfEveryRangeOfLayers) {
  auto device = gpu::make_host_device(1);
  for (bool tied : {false, true}) {
    const plans::ModelSpec model = small_model(tied);
    const int64_t count = plans::layer_count(model);
    for (int64_t begin = 0; begin < count; ++begin) {
      for (int64_t end = begin + 1; end <= count; ++end) {
        gpu::StageModelOptions options;
        options.model = model;
        options.layers = {begin, end};
        options.rows = 1;
        options.seq_len = 4;
        auto stage = gpu::StageModel::create(options, *device);
        ASSERT_TRUE(stage.ok()) << stage.status();
        const std::vector<size_t> floats = stage_tensor_floats(model, options.layers);
        EXPECT_EQ(std::accumulate(floats.begin(), floats.end(), size_t{0}),
                  (*stage)->stage_gradients().size())
            << begin << " to " << end;
      }
    }
  }
}

TEST(GroupReducer, NumbersHostsByTheirFirstMember) {
  EXPECT_EQ(host_numbers({"a:1", "b:1", "a:2", "[::1]:5", "[::1]:6", "b:9"}),
            (std::vector<uint32_t>{0, 1, 0, 3, 3, 1}));
  EXPECT_EQ(host_numbers({}), std::vector<uint32_t>{});
}

}  // namespace
}  // namespace skein::actors
