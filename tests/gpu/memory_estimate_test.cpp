#include "gpu/model/memory_estimate.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace skein::gpu {
namespace {

StageModelOptions options_for(plans::LayerRange layers) {
  StageModelOptions options;
  options.model.vocab_size = 31;
  options.model.positions = 9;
  options.model.layers = 3;
  options.model.heads = 2;
  options.model.channels = 12;
  options.layers = layers;
  options.rows = 2;
  options.seq_len = 7;
  return options;
}

TEST(MemoryEstimate, IsWhatTheModelAllocates) {
  const auto device = make_host_device(1);
  for (int64_t begin = 0; begin < 5; ++begin) {
    for (int64_t end = begin + 1; end <= 5; ++end) {
      for (int flags = 0; flags < 8; ++flags) {
        StageModelOptions options = options_for({begin, end});
        options.model.tied_head = (flags & 1) != 0;
        options.recompute = (flags & 2) != 0;
        options.stash_count = (flags & 4) != 0 ? 3 : 1;
        for (const char* optimizer : {"adamw", "sgd"}) {
          options.optimizer.name = optimizer;
          const auto model = StageModel::create(options, *device).value();
          const MemoryEstimate estimate = estimate_memory(options);
          EXPECT_EQ(estimate.total_bytes(), model->memory_bytes())
              << begin << ".." << end << " flags " << flags << " " << optimizer;
          EXPECT_EQ(estimate.stash_bytes, model->stash_bytes() * options.stash_count);
          EXPECT_GE(estimate.working_bytes, 0);
        }
      }
    }
  }
}

TEST(MemoryEstimate, IsAddedToErrorsOfMemoryOnly) {
  const StageModelOptions options = options_for({1, 3});
  const MemoryEstimate estimate = estimate_memory(options);
  const std::string told(
      with_estimate(absl::ResourceExhaustedError("no memory"), options).message());
  EXPECT_EQ(told.find("no memory; the plan counts on " + std::to_string(estimate.planned_bytes()) +
                      " bytes for the stage of layers 1..3"),
            0u)
      << told;
  EXPECT_EQ(with_estimate(absl::InternalError("broken"), options), absl::InternalError("broken"));
  EXPECT_TRUE(with_estimate(absl::OkStatus(), options).ok());
}

}  // namespace
}  // namespace skein::gpu
