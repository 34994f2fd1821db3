#include "plans/collectives/weight_slices.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

using Part = WeightSlices::Part;
constexpr uint32_t kMembersMax = 9;
constexpr uint32_t kChunksMax = 40;

TEST(WeightSlices, AChunkIsAtLeast4KiBAndAtMost256KiB) {
  EXPECT_EQ(weight_chunk_floats(0), 1024u);
  EXPECT_EQ(weight_chunk_floats(64 * 1024 + 63), 1024u);
  EXPECT_EQ(weight_chunk_floats(64 * 1025), 1025u);
  EXPECT_EQ(weight_chunk_floats(64ull * 65537), 65536u);
  EXPECT_EQ(weight_chunk_floats(UINT64_MAX), 65536u);
}

TEST(WeightSlices, ChunksCoverTheVector) {
  EXPECT_EQ(weight_chunk_count(0, 1024), 0u);
  EXPECT_EQ(weight_chunk_count(1, 1024), 1u);
  EXPECT_EQ(weight_chunk_count(1024, 1024), 1u);
  EXPECT_EQ(weight_chunk_count(1025, 1024), 2u);
  EXPECT_EQ(weight_chunk_count(UINT64_MAX, 65536), 1ull << 48);
}

TEST(WeightSlices, SlicesTileTheChunksAndDifferByOneAtMost) {
  for (uint32_t members = 2; members <= kMembersMax; ++members) {
    for (uint32_t chunks = 0; chunks <= kChunksMax; ++chunks) {
      const WeightSlices slices({chunks, members, 0});
      uint32_t next = 0;
      for (uint32_t m = 0; m < members; ++m) {
        const ChunkRange own = slices.owned_by(m);
        ASSERT_EQ(own.begin, next);
        ASSERT_GE(own.end - own.begin, chunks / members);
        ASSERT_LE(own.end - own.begin, (chunks + members - 1) / members);
        for (uint32_t c = own.begin; c < own.end; ++c) ASSERT_EQ(slices.owner_of(c), m);
        next = own.end;
      }
      ASSERT_EQ(next, chunks);
    }
  }
}

TEST(WeightSlices, NoGroupSendsMorePartsToAMemberThanTheMost) {
  for (uint32_t chunks = 0; chunks <= kChunksMax; ++chunks) {
    uint64_t most = 0;
    for (uint32_t members = 2; members <= kMembersMax; ++members) {
      const WeightSlices slices({chunks, members, 0});
      for (uint32_t m = 0; m < members; ++m) {
        const ChunkRange own = slices.owned_by(m);
        most = std::max(most, uint64_t{own.end - own.begin} * (members - 1));
      }
      ASSERT_EQ(weight_parts_max(chunks, members), most) << chunks << " chunks, " << members;
    }
    EXPECT_EQ(weight_parts_max(chunks, 1), 0u);
  }
}

TEST(WeightSlices, AnEmptyVectorAwaitsNothing) {
  EXPECT_TRUE(WeightSlices({0, 3, 1}).is_done());
  EXPECT_FALSE(WeightSlices({1, 3, 2}).is_done());
}

TEST(WeightSlices, IsDoneWithTheLastMessageInAnyOrderAndNotBefore) {
  Rng rng(11);
  for (uint32_t members = 2; members <= kMembersMax; ++members) {
    for (uint32_t chunks = 1; chunks <= kChunksMax; chunks += 3) {
      for (uint32_t self = 0; self < members; ++self) {
        WeightSlices slices({chunks, members, self});
        struct Message {
          uint32_t member, chunk;
        };
        std::vector<Message> messages;  // Parts of our chunks and averages of the others'.
        for (uint32_t c = 0; c < chunks; ++c) {
          const uint32_t owner = slices.owner_of(c);
          for (uint32_t m = 0; m < members; ++m) {
            if (m != self && (owner == self || owner == m)) messages.push_back({m, c});
          }
        }
        uint32_t complete = 0;
        while (!messages.empty()) {
          ASSERT_FALSE(slices.is_done());
          std::swap(messages[rng.below(messages.size())], messages.back());
          const auto [member, chunk] = messages.back();
          messages.pop_back();
          if (slices.owner_of(chunk) != self) {
            ASSERT_TRUE(slices.on_average(member, chunk));
            continue;
          }
          const Part part = slices.on_part(member, chunk);
          ASSERT_NE(part, Part::kUnfit);
          if (part == Part::kComplete) ++complete;
        }
        ASSERT_TRUE(slices.is_done());
        const ChunkRange own = slices.owned_by(self);
        ASSERT_EQ(complete, own.end - own.begin);
      }
    }
  }
}

TEST(WeightSlices, DropsWhatDoesNotFit) {
  WeightSlices slices({6, 3, 1});  // Ours are chunks 2 and 3.
  for (uint32_t chunk : {0u, 1u, 4u, 5u, 6u, UINT32_MAX}) {
    EXPECT_EQ(slices.on_part(0, chunk), Part::kUnfit) << chunk;
  }
  for (uint32_t member : {1u, 3u, UINT32_MAX}) {
    EXPECT_EQ(slices.on_part(member, 2), Part::kUnfit) << member;
    EXPECT_FALSE(slices.on_average(member, 2)) << member;
    EXPECT_FALSE(slices.on_average(member, 0)) << member;
  }
  EXPECT_FALSE(slices.on_average(2, 0));  // It is member 0's.
  EXPECT_FALSE(slices.on_average(0, 6));
  EXPECT_EQ(slices.on_part(0, 2), Part::kKept);
  EXPECT_EQ(slices.on_part(0, 2), Part::kUnfit);
  EXPECT_EQ(slices.on_part(2, 2), Part::kComplete);
  EXPECT_EQ(slices.on_part(2, 2), Part::kUnfit);
  EXPECT_TRUE(slices.on_average(2, 5));
  EXPECT_FALSE(slices.on_average(2, 5));
}

TEST(WeightSlices, AddsUpInDoubleAndRoundsOnce) {
  constexpr size_t kFloats = 2500;  // Not a whole number of blocks.
  Rng rng(5);
  const std::vector<double> weights = {0.5, 0.3, 0.2};
  std::vector<std::vector<float>> values(weights.size(), std::vector<float>(kFloats));
  std::vector<std::span<const float>> parts;
  for (auto& each : values) {
    for (float& value : each) value = static_cast<float>(rng.uniform() * 2 - 1);
    parts.emplace_back(each);
  }
  std::vector<float> out(kFloats, 7.0f);
  add_weighted(parts, weights, out);
  for (size_t i = 0; i < kFloats; ++i) {
    double sum = 0;
    for (size_t m = 0; m < weights.size(); ++m) sum += weights[m] * double{values[m][i]};
    ASSERT_FLOAT_EQ(out[i], static_cast<float>(sum)) << i;
  }
}

}  // namespace
}  // namespace skein::plans
