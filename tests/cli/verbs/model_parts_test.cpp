#include "cli/verbs/model_parts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/model/decoder.hpp"

namespace skein::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A device with memory of its own, so much of which is free, that is only looked at.
class DeviceOfSize final : public gpu::Device {
 public:
  DeviceOfSize(std::string name, int64_t bytes, gpu::NumberType activations) {
    info_.name = std::move(name);
    info_.is_host_memory = false;
    info_.memory_bytes = bytes;
    info_.activations = activations;
  }
  const gpu::DeviceInfo& info() const override { return info_; }
  absl::StatusOr<gpu::Buffer> allocate(int64_t) override {
    return absl::InternalError("nothing is allocated");
  }
  absl::Status run(gpu::Work) override { return absl::InternalError("nothing runs"); }

 private:
  gpu::DeviceInfo info_;
};

class ModelPartsTest : public testing::Test {
 protected:
  ModelPartsTest() {
    need_.model.name = "llama";
    plans::apply_family(need_.model);
    need_.model.layers = 10;
    need_.model.tied_head = true;
    need_.positions = 200;
    need_.added = 50;
  }
  void add(const std::string& name, int64_t bytes,
           gpu::NumberType activations = gpu::NumberType::kBfloat16) {
    devices_.push_back(std::make_unique<DeviceOfSize>(name, bytes, activations));
  }
  /// What the layers take on the first device.
  gpu::Decoder::Memory memory(int64_t begin, int64_t end) const {
    return gpu::Decoder::memory({need_.model, {begin, end}, need_.positions}, need_.added,
                                devices_.front()->info());
  }
  std::vector<plans::LayerRange> cut() const {
    std::vector<plans::LayerRange> ranges;
    const auto parts = cut_model(need_, devices_);
    EXPECT_TRUE(parts.ok()) << parts.status();
    for (const auto& part : *parts) ranges.push_back(part.layers);
    return ranges;
  }
  std::string refusal() const {
    const absl::Status status = cut_model(need_, devices_).status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    return std::string(status.message());
  }

  DecodingNeed need_;
  std::vector<std::unique_ptr<gpu::Device>> devices_;
};

TEST_F(ModelPartsTest, TakeOneDeviceToTheLastByte) {
  for (const auto type : {gpu::NumberType::kFloat32, gpu::NumberType::kBfloat16}) {
    devices_.clear();
    add("measured", 1, type);
    const int64_t bytes = memory(0, 12).total_bytes();
    devices_.clear();
    add("enough", bytes, type);
    EXPECT_EQ(cut(), (std::vector<plans::LayerRange>{{0, 12}}));
    devices_.clear();
    add("too small", bytes - 1, type);
    EXPECT_THAT(refusal(), AllOf(HasSubstr("context of 200 tokens"), HasSubstr("--tokens"),
                                 Not(HasSubstr("\n"))));
  }
}

TEST_F(ModelPartsTest, AreEvenWhereThereIsMemory) {
  for (const char* name : {"a", "b", "c"}) add(name, int64_t{1} << 40);
  const auto ranges = cut();
  ASSERT_EQ(ranges.size(), 3U);
  for (const auto& range : ranges) EXPECT_NEAR(range.size(), 4, 1);
}

TEST_F(ModelPartsTest, GoByWhatIsFreeInOrder) {
  add("small", 1);
  const int64_t bytes = memory(0, 3).kept_bytes() + memory(0, 12).fixed_bytes();
  devices_.clear();
  add("small", bytes);
  add("large", int64_t{1} << 40);
  EXPECT_EQ(cut(), (std::vector<plans::LayerRange>{{0, 3}, {3, 12}}));
  devices_.clear();
  add("full", 1);
  add("large", int64_t{1} << 40);
  EXPECT_EQ(cut(), (std::vector<plans::LayerRange>{{0, 12}}));
  EXPECT_EQ(parts_text(cut_model(need_, devices_).value()), "layers 0-11 on large");
}

TEST_F(ModelPartsTest, CountATiedEmbeddingOnceOnTheOneDeviceThatHasAll) {
  add("measured", 1, gpu::NumberType::kFloat32);
  const int64_t bytes = memory(0, 12).total_bytes();
  devices_.clear();
  add("full", 1, gpu::NumberType::kFloat32);
  add("enough", bytes, gpu::NumberType::kFloat32);
  EXPECT_EQ(cut(), (std::vector<plans::LayerRange>{{0, 12}}));
}

TEST_F(ModelPartsTest, SayHowMuchIsMissingWhere) {
  add("first", 1);
  const int64_t bytes = memory(0, 3).kept_bytes() + memory(0, 12).fixed_bytes();
  devices_.clear();
  add("first", bytes);
  add("second", bytes);
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("are missing on second for layers 3-11: "), Not(HasSubstr("\n"))));
}

TEST_F(ModelPartsTest, ShareTheMachinesMemoryIfTheyAreItsProcessor) {
  for (int i = 0; i < 3; ++i) devices_.push_back(gpu::make_host_device(1));
  EXPECT_EQ(cut().size(), 3U);
  need_.model.layers = 100;
  need_.positions = int64_t{1} << 33;
  EXPECT_THAT(refusal(), HasSubstr("missing on cpu x1 for layers 0-101"));
}

}  // namespace
}  // namespace skein::cli
