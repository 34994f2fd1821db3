#include "plans/profile/estimate.hpp"

#include <gtest/gtest.h>

#include <string>

#include "gpu/device.hpp"
#include "gpu/model/stage_model.hpp"
#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

constexpr double kFlops = 1e11, kMemory = 2e10;

Profile estimate(const ModelSpec& model, int64_t seq_len = 16,
                 const std::vector<int64_t>& rows = {1, 4}, const char* optimizer = "adamw") {
  OptimizerSpec spec;
  spec.name = optimizer;
  return estimate_profile(model, seq_len, rows, spec, kFlops, kMemory);
}

ModelSpec flavored(const char* flavor) {
  ModelSpec model;
  model.flavor = flavor;
  EXPECT_TRUE(apply_flavor(model).ok());
  return model;
}

TEST(Estimate, IsAProfileOfEveryFlavor) {
  for (const char* flavor : {"byte-tiny", "byte-small", "byte-medium", "gpt2", "gpt2-xl",
                             "smollm-135m", "qwen2.5-0.5b"}) {
    const ModelSpec model = flavored(flavor);
    const Profile profile = estimate(model);
    EXPECT_TRUE(validate(profile).ok()) << validate(profile);
    EXPECT_EQ(profile.source, "estimated");
    EXPECT_EQ(parameter_bytes(profile, {0, layer_count(model)}), 4 * parameter_count(model));
  }
}

TEST(Estimate, NothingIsFasterThanItsArithmetic) {
  const ModelSpec model = flavored("byte-small");
  const Profile profile = estimate(model, 64, {1, 2, 8});
  for (int64_t l = 0; l < layer_count(model); ++l) {
    for (int64_t rows : profile.rows) {
      EXPECT_GE(layer_times(profile, l, rows).total_us() * (1 + 1e-12),
                layer_flops(model, l, rows, 64).total() / kFlops * 1e6);
    }
  }
}

/// All ranges of layers of tied and untied models of both families, rows and lengths, against what
/// the host back end allocates for a stage of them.
TEST(Estimate, SizesAreThoseThatTheHostBackEndAllocates) {
  const auto device = gpu::make_sleep_device({});
  gpu::StageModelOptions options;
  options.model.vocab_size = 23;
  options.model.positions = 12;
  options.model.layers = 3;
  options.model.heads = 3;
  options.model.channels = 12;
  const int64_t L = layer_count(options.model);
  for (uint64_t bits = 0; bits < 16; ++bits) {
    options.model.name = (bits & 8) != 0 ? "llama" : "gpt2";
    apply_family(options.model);
    options.model.kv_heads = (bits & 1) != 0 ? 1 : 0;
    options.model.head_size = (bits & 2) != 0 ? 6 : 0;
    options.model.tied_head = (bits & 1) != 0;
    options.recompute = (bits & 2) != 0;
    options.seq_len = (bits & 4) != 0 ? 12 : 5;
    const Profile profile = estimate(options.model, options.seq_len);
    for (options.layers.begin = 0; options.layers.begin < L; ++options.layers.begin) {
      for (options.layers.end = options.layers.begin + 1; options.layers.end <= L;
           ++options.layers.end) {
        options.rows = 1 + static_cast<int64_t>(random_bits(1, bits, 0) % 5);
        const auto stage = gpu::StageModel::create(options, *device);
        ASSERT_TRUE(stage.ok()) << stage.status();
        const StageMemory memory =
            stage_memory(profile, options.layers, options.rows, options.recompute);
        EXPECT_EQ(memory.stash_bytes, (*stage)->stash_bytes())
            << options.layers.begin << ".." << options.layers.end << " bits " << bits;
        int64_t weights = 0;
        for (const ParameterSpec& parameter : (*stage)->parameters()) {
          weights += 4 * element_count(parameter);
        }
        EXPECT_EQ(parameter_bytes(profile, options.layers), weights);
        EXPECT_EQ(memory.state_bytes, 4 * weights);
        if (options.layers.end < L) {
          EXPECT_EQ(cut_row_bytes(profile, options.layers.end) * options.rows,
                    4 * (*stage)->activation_elements());
        }
        EXPECT_GE((*stage)->memory_bytes(), memory.state_bytes + memory.stash_bytes);
      }
    }
  }
}

TEST(Estimate, SgdKeepsAndMovesLessThanAdamw) {
  const Profile adamw = estimate(flavored("byte-tiny"));
  const Profile sgd = estimate(flavored("byte-tiny"), 16, {1}, "sgd");
  EXPECT_EQ(adamw.state_factor, 4);
  EXPECT_EQ(sgd.state_factor, 3);
  EXPECT_LT(sgd.update_us_per_byte, adamw.update_us_per_byte);
}

TEST(Estimate, ADeviceOfBfloat16KeepsAndSendsHalfAndHasACopyOfTheWeights) {
  const ModelSpec model = flavored("byte-small");
  const Profile floats = estimate(model);
  const Profile halves = estimate_profile(model, 16, {1, 4}, {}, kFlops, kMemory, kBfloat16Bytes);
  EXPECT_EQ(halves.state_factor, floats.state_factor + 0.5);
  EXPECT_EQ(halves.activation_factor, 0.5);
  for (int64_t l = 0; l < layer_count(model); ++l) {
    const auto at = static_cast<size_t>(l);
    EXPECT_EQ(halves.layers[at].activation_row_bytes, floats.layers[at].activation_row_bytes);
    EXPECT_EQ(halves.layers[at].parameter_bytes, floats.layers[at].parameter_bytes);
    EXPECT_EQ(2 * kept_row_bytes(halves, l), kept_row_bytes(floats, l));
    EXPECT_LE(halves.layers[at].at[1].total_us(), floats.layers[at].at[1].total_us());
    EXPECT_LT(halves.layers[at].stash_row_bytes, floats.layers[at].stash_row_bytes);
  }
}

TEST(Estimate, OnlyGpusKeepBfloat16) {
  DeviceSpec device;
  for (const char* type : {"cpu", "cuda", "auto", "sleep"}) {
    for (const char* precision : {"bfloat16", "tf32", "float32"}) {
      device.type = type;
      device.precision = precision;
      const bool keeps = std::string(type) == "cuda" && std::string(precision) == "bfloat16";
      EXPECT_EQ(number_bytes(device), keeps ? kBfloat16Bytes : NumberBytes{}) << type << precision;
    }
  }
}

TEST(Estimate, OfADeviceThatSleepsOnlyBlocksTakeTime) {
  const ModelSpec model = flavored("byte-small");
  const Profile before = estimate(model);
  DeviceSpec device;
  device.sleep_forward_us = 300;
  device.sleep_backward_us = 800;
  device.sleep_update_us = 50;
  Profile profile = before;
  set_sleep_times(profile, model, device, 4);
  const LayerProfile& block = profile.layers[1];
  EXPECT_EQ(profile.rows, (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(block.at[1], (LayerTimes{300, 400, 400}));
  EXPECT_EQ(block.at[0], (LayerTimes{75, 100, 100})) << "a row takes its part of a micro-batch";
  EXPECT_EQ(profile.layers.front().at[1].total_us() + profile.layers.back().at[1].total_us(), 0);
  double bytes = 0;
  for (const LayerProfile& layer : profile.layers)
    bytes += static_cast<double>(layer.parameter_bytes);
  const auto blocks = static_cast<double>(layer_count(model) - 2);
  EXPECT_NEAR(profile.update_us_per_byte * bytes, 50 * blocks, 1e-6);
  EXPECT_EQ(block.stash_row_bytes, before.layers[1].stash_row_bytes);
}

TEST(Estimate, ATiedEmbeddingIsSharedByBothEnds) {
  ModelSpec model = flavored("byte-tiny");
  EXPECT_EQ(estimate(model).tied_bytes, 256 * 64 * 4);
  model.tied_head = false;
  EXPECT_EQ(estimate(model).tied_bytes, 0);
}

}  // namespace
}  // namespace skein::plans
