#include "gpu/model/memory_estimate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "gpu/cuda/caching_allocator.hpp"
#include "tests/gpu/rounding_device.hpp"

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

void expect_what_is_allocated(Device& device, const StageModelOptions& options) {
  const auto model = StageModel::create(options, device).value();
  const MemoryEstimate estimate = estimate_memory(options, device.info());
  const std::string what =
      std::to_string(options.layers.begin) + ".." + std::to_string(options.layers.end) + " tied " +
      std::to_string(options.model.tied_head) + " recompute " + std::to_string(options.recompute) +
      " " + options.optimizer.name + " " + device.info().name;
  EXPECT_EQ(estimate.total_bytes(), model->memory_bytes()) << what;
  EXPECT_EQ(estimate.stash_bytes, model->stash_bytes() * options.stash_count) << what;
  EXPECT_GE(estimate.working_bytes, 0) << what;
}

TEST(MemoryEstimate, IsWhatTheModelAllocates) {
  const auto device = make_host_device(1);
  RoundingDevice rounding;
  for (int64_t begin = 0; begin < 5; ++begin) {
    for (int64_t end = begin + 1; end <= 5; ++end) {
      for (int flags = 0; flags < 16; ++flags) {
        StageModelOptions options = options_for({begin, end});
        options.model.name = (flags & 8) != 0 ? "llama" : "gpt2";
        plans::apply_family(options.model);
        if ((flags & 3) != 0) options.model.kv_heads = 1;
        if ((flags & 2) != 0) options.model.head_size = 10;
        options.model.tied_head = (flags & 1) != 0;
        options.recompute = (flags & 2) != 0;
        options.stash_count = (flags & 4) != 0 ? 3 : 1;
        options.old_versions = (flags & 4) != 0 ? 2 : 0;
        options.exact_summands = (flags & 2) != 0 ? 8 : 0;
        for (const char* optimizer : {"adamw", "sgd"}) {
          options.optimizer.name = optimizer;
          expect_what_is_allocated(*device, options);
          expect_what_is_allocated(rounding, options);
        }
      }
    }
  }
}

TEST(MemoryEstimate, OfBfloat16IsHalfOfActivationsAndWithoutStatistics) {
  const StageModelOptions options = options_for({1, 4});  // Three blocks.
  const MemoryEstimate floats = estimate_memory(options, DeviceInfo());
  const MemoryEstimate halves = estimate_memory(options, RoundingDevice().info());
  const int64_t statistics = 3 * (4 + 2) * 4 * options.rows * options.seq_len;
  EXPECT_EQ(2 * (halves.stash_bytes - statistics), floats.stash_bytes - statistics);
  EXPECT_EQ(8 * halves.state_bytes, 9 * floats.state_bytes) << "a copy of the weights";
}

/// A device with memory of its own, which counts what rounding adds.
class PagedDevice final : public Device {
 public:
  explicit PagedDevice(NumberType activations)
      : inner_(make_sleep_device({})), info_(inner_->info()) {
    info_.activations = activations;
    info_.memory_bytes = int64_t{1} << 40;
  }
  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<Buffer> allocate(int64_t bytes) override {
    added_bytes += CachingAllocator::rounded(bytes) - bytes;
    return inner_->allocate(bytes);
  }
  absl::Status run(Work work) override { return inner_->run(std::move(work)); }

  int64_t added_bytes = 0;

 private:
  std::unique_ptr<Device> inner_;
  DeviceInfo info_;
};

TEST(MemoryEstimate, BoundsWhatRoundingAddsToAStageOfAnyOfItsLayers) {
  for (const int64_t channels : {12, 192}) {  // Blocks of some KiB, and of more than a MiB.
    for (const NumberType type : {NumberType::kFloat32, NumberType::kBfloat16}) {
      StageModelOptions whole = options_for({0, 5});
      whole.model.channels = channels;
      whole.seq_len = whole.model.positions = 32;
      whole.stash_count = 3;
      whole.old_versions = 2;
      whole.exact_summands = 8;
      const int64_t bound = rounding_bytes(whole, PagedDevice(type).info());
      EXPECT_EQ(rounding_bytes(whole, RoundingDevice().info()), 0) << "its memory is the host's";
      int64_t most = 0;
      for (const plans::LayerRange& layers :
           {plans::LayerRange{0, 5}, {0, 1}, {0, 2}, {1, 3}, {2, 4}, {4, 5}}) {
        StageModelOptions options = whole;
        options.layers = layers;
        PagedDevice device(type);
        const auto model = StageModel::create(options, device);
        ASSERT_TRUE(model.ok()) << model.status();
        EXPECT_LE(device.added_bytes, bound) << layers.begin << ".." << layers.end;
        most = std::max(most, device.added_bytes);
      }
      EXPECT_GT(most, bound / 16) << "nor does it ask for far more than that";
      EXPECT_EQ(bound > (1 << 20), channels == 192) << "small blocks are rounded to 512 bytes";
    }
  }
}

TEST(MemoryEstimate, IsAddedToErrorsOfMemoryOnly) {
  const StageModelOptions options = options_for({1, 3});
  const MemoryEstimate estimate = estimate_memory(options, DeviceInfo());
  const std::string told(
      with_estimate(absl::ResourceExhaustedError("no memory"), options, DeviceInfo()).message());
  EXPECT_EQ(told.find("no memory; the plan counts on " + std::to_string(estimate.planned_bytes()) +
                      " bytes for the stage of layers 1..3"),
            0u)
      << told;
  EXPECT_EQ(with_estimate(absl::InternalError("broken"), options, DeviceInfo()),
            absl::InternalError("broken"));
  EXPECT_TRUE(with_estimate(absl::OkStatus(), options, DeviceInfo()).ok());
}

}  // namespace
}  // namespace skein::gpu
