#include "net/data/tensor_stream.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace skein::net {
namespace {

constexpr uint32_t kStreamRowFloats = 3;

struct TensorStreamTest : testing::Test {
  TensorStreamTest() {
    TensorInbox::StreamSpec spec;
    spec.row_begin = 2;
    spec.row_count = 6;
    spec.row_floats = kStreamRowFloats;
    spec.parts = {{2, 2}, {4, 4}};
    spec.tensors_max = 1;
    spec.on_tensor = [this](const TensorKey& key, TensorHandle tensor) {
      arrived.push_back(key.microbatch);
      held = std::move(tensor);
    };
    stream = std::make_shared<TensorStream>(spec, [this] { ++spaces; });
  }
  static TensorStream::Rows rows(uint32_t begin, uint32_t count, uint32_t microbatch = 0) {
    TensorStream::Rows rows;
    rows.key.microbatch = microbatch;
    rows.begin = begin;
    rows.count = count;
    rows.bytes = uint64_t{count} * kStreamRowFloats * sizeof(float);
    return rows;
  }

  std::shared_ptr<TensorStream> stream;
  std::vector<uint32_t> arrived;
  TensorHandle held;
  int spaces = 0;
};

TEST_F(TensorStreamTest, TakesThePartsOfThePlanAndNoOtherRows) {
  for (uint32_t begin = 0; begin < 10; ++begin) {
    for (uint32_t count = 0; count < 10; ++count) {
      const bool is_part = (begin == 2 && count == 2) || (begin == 4 && count == 4);
      EXPECT_EQ(stream->check(rows(begin, count)).ok(), is_part) << begin << "+" << count;
    }
  }
  TensorStream::Rows larger = rows(2, 2);
  larger.bytes += sizeof(float);
  EXPECT_TRUE(absl::IsInvalidArgument(stream->check(larger)));
  TensorStream::Rows half = rows(2, 2);
  half.is_bfloat16 = true;
  EXPECT_TRUE(absl::IsInvalidArgument(stream->check(half))) << "twice the bytes of such numbers";
  half.bytes /= 2;
  EXPECT_TRUE(stream->check(half).ok());
  half.is_bfloat16 = false;
  EXPECT_TRUE(absl::IsInvalidArgument(stream->check(half))) << "half of the bytes";
}

TEST(TensorStream, OneThatIsForOneSenderTakesNothingOfOthers) {
  TensorInbox::StreamSpec spec;
  spec.row_count = 1;
  spec.row_floats = 1;
  spec.sender = plans::WorkerId{3};
  const TensorStream stream(spec, [] {});
  TensorStream::Rows rows;
  rows.count = 1;
  rows.bytes = sizeof(float);
  for (const uint32_t sender : {0u, 2u, 3u, 4u}) {
    rows.sender = {sender};
    EXPECT_EQ(stream.check(rows).ok(), sender == 3) << sender;
  }
}

TEST_F(TensorStreamTest, ATensorIsCompleteWhenNoPartOfItIsBeingRead) {
  ASSERT_TRUE(stream->reserve(rows(2, 2)).ok());
  ASSERT_TRUE(stream->reserve(rows(4, 4)).ok());
  stream->arrived(rows(4, 4));
  stream->arrived(rows(4, 4));
  EXPECT_TRUE(arrived.empty()) << "its first rows are still being read";
  stream->arrived(rows(2, 2));
  EXPECT_EQ(arrived, std::vector<uint32_t>{0});
}

TEST_F(TensorStreamTest, APartThatIsBeingReadIsNoRepeatAndHasNoSpaceForASecondReader) {
  ASSERT_TRUE(stream->reserve(rows(2, 2)).ok());
  EXPECT_FALSE(stream->is_repeat(rows(2, 2)));
  EXPECT_FALSE(stream->has_space(rows(2, 2)));
  EXPECT_TRUE(stream->has_space(rows(4, 4)));
  EXPECT_FALSE(stream->has_space(rows(2, 2, 1))) << "of another tensor";
  stream->arrived(rows(2, 2));
  EXPECT_TRUE(stream->is_repeat(rows(2, 2)));
}

TEST_F(TensorStreamTest, APartThatIsGivenUpMayBeSentBySomebodyElse) {
  ASSERT_TRUE(stream->reserve(rows(2, 2)).ok());
  stream->abandon(rows(2, 2));
  EXPECT_EQ(spaces, 1);
  EXPECT_TRUE(stream->has_space(rows(2, 2, 1))) << "the tensor's memory is free again";
  ASSERT_TRUE(stream->reserve(rows(2, 2)).ok());
  ASSERT_TRUE(stream->reserve(rows(4, 4)).ok());
  stream->arrived(rows(2, 2));
  stream->abandon(rows(4, 4));
  stream->abandon(rows(4, 4));
  EXPECT_TRUE(stream->is_repeat(rows(2, 2))) << "what is there stays";
  ASSERT_TRUE(stream->reserve(rows(4, 4)).ok());
  stream->arrived(rows(4, 4));
  EXPECT_EQ(arrived, std::vector<uint32_t>{0});
}

/// The process goes on, and so do others' tensors.
TEST(TensorStream, ATensorThatNoMemoryIsForLeavesNothingBehind) {
  TensorInbox::StreamSpec spec;
  spec.row_count = 2;
  spec.row_floats = uint64_t{1} << 50;  // More than any machine can address.
  spec.parts = {{0, 1}, {1, 1}};
  spec.tensors_max = 1;
  TensorStream stream(spec, [] {});
  TensorStream::Rows rows;
  rows.count = 1;
  const auto memory = stream.reserve(rows);
  EXPECT_TRUE(absl::IsResourceExhausted(memory.status())) << memory.status();
  EXPECT_FALSE(stream.is_being_read(rows));
  EXPECT_TRUE(stream.has_space(rows)) << "a later try may find memory";
  rows.key.microbatch = 1;
  EXPECT_TRUE(stream.has_space(rows));
}

}  // namespace
}  // namespace skein::net
