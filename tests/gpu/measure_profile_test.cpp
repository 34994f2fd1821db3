#include "gpu/profile/measure_profile.hpp"

#include <gtest/gtest.h>

#include "gpu/model/stage_model.hpp"
#include "tests/gpu/rounding_device.hpp"

namespace skein::gpu {
namespace {

plans::JobSpec small_job() {
  plans::JobSpec job;
  job.model.layers = 3;
  job.model.heads = 2;
  job.model.channels = 32;
  job.model.vocab_size = 64;
  job.model.positions = 16;
  job.training.seq_len = 16;
  job.training.micro_batch_size = 4;
  return job;
}

TEST(MeasureProfile, TimesEveryLayerAtEveryNumberOfRows) {
  const auto device = make_host_device(1);
  const auto profile = measure_profile(small_job(), *device, {1, 4}, 2);
  ASSERT_TRUE(profile.ok()) << profile.status();
  ASSERT_EQ(profile->layers.size(), 5u);
  for (const plans::LayerProfile& layer : profile->layers) {
    ASSERT_EQ(layer.at.size(), 2u) << layer.name;
    EXPECT_GT(layer.at[0].forward_us, 0) << layer.name;
    EXPECT_GT(layer.at[0].backward_input_us, 0) << layer.name;
    EXPECT_GT(layer.parameter_bytes, 0) << layer.name;
  }
  EXPECT_EQ(profile->layers[3].name, "block 2");
  EXPECT_EQ(profile->layers[1].at, profile->layers[3].at);
}

TEST(MeasureProfile, BytesAreThoseOfAWholeStage) {
  const plans::JobSpec job = small_job();
  const auto host = make_host_device(1);
  RoundingDevice rounding;
  for (Device* device : {host.get(), static_cast<Device*>(&rounding)}) {
    const auto profile = measure_profile(job, *device, {4}, 1);
    ASSERT_TRUE(profile.ok()) << profile.status();
    const bool rounds = device == &rounding;
    EXPECT_EQ(profile->activation_factor, rounds ? 0.5 : 1);
    EXPECT_EQ(profile->state_factor, rounds ? 4.5 : 4);
    EXPECT_EQ(plans::cut_row_bytes(*profile, 1),
              (rounds ? 2 : 4) * job.training.seq_len * job.model.channels);
    for (const plans::LayerRange layers : {plans::LayerRange{0, 5}, {0, 2}, {1, 4}, {3, 5}}) {
      for (bool recompute : {false, true}) {
        StageModelOptions options;
        options.model = job.model;
        options.layers = layers;
        options.rows = 4;
        options.seq_len = job.training.seq_len;
        options.recompute = recompute;
        const auto model = StageModel::create(options, *device);
        ASSERT_TRUE(model.ok());
        EXPECT_EQ(plans::stage_memory(*profile, layers, 4, recompute).stash_bytes,
                  (*model)->stash_bytes())
            << layers.begin << ".." << layers.end << (recompute ? " with recomputation" : "");
      }
    }
  }
}

/// With memory of its own, for sizes.
class OwnMemoryDevice final : public Device {
 public:
  OwnMemoryDevice() { info_.memory_bytes = int64_t{1} << 30; }
  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<Buffer> allocate(int64_t) override { return absl::ResourceExhaustedError("none"); }
  absl::Status run(Work) override { return absl::OkStatus(); }

 private:
  DeviceInfo info_;
};

TEST(MeasureProfile, RoundingIsOfAsManyMicrobatchesAsThePlannerMayMake) {
  const OwnMemoryDevice device;
  plans::JobSpec job = small_job();
  job.training.global_batch_size = 8;
  const int64_t of_two = rounding_bytes(job, device, 4);
  job.training.micro_batch_size = 1;
  const int64_t of_eight = rounding_bytes(job, device, 4);
  EXPECT_GT(of_eight, of_two);
  job.training.micro_batch_size = 4;
  job.parallelism.pipeline_parallel_degree = plans::kAutoDegree;
  EXPECT_EQ(rounding_bytes(job, device, 4), of_eight);
}

TEST(MeasureProfile, ASleepingDeviceTakesItsTimesByBlocksAndRows) {
  const auto device = make_sleep_device({2000, 4000, 500}, 0.5);
  const auto profile = measure_profile(small_job(), *device, {2, 4}, 1);
  ASSERT_TRUE(profile.ok()) << profile.status();
  const plans::LayerTimes half = profile->layers[1].at[0];
  const plans::LayerTimes whole = profile->layers[1].at[1];
  EXPECT_GE(half.forward_us, 2000);
  EXPECT_GE(whole.forward_us, 4000);
  EXPECT_GE(whole.backward_us(), 8000);
}

}  // namespace
}  // namespace skein::gpu
