#include "gpu/cuda/tables.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "gpu/cuda/caching_allocator.hpp"
#include "gpu/cuda/launch_shape.hpp"
#include "gpu/cuda/staging.hpp"
#include "gpu/host/host_memory.hpp"
#include "plans/base/rng.hpp"

namespace skein::gpu {
namespace {

using kernels::kChunkElements;

TEST(CudaTables, CutTensorsIntoChunksThatTileThem) {
  const std::vector<int64_t> counts = {
      0, 1, kChunkElements - 1, kChunkElements, kChunkElements + 1, 0, 5 * kChunkElements + 3};
  std::vector<int64_t> next(counts.size(), 0);
  int32_t tensor = 0;
  for (const kernels::Chunk& chunk : cut_in_chunks(counts)) {
    EXPECT_GE(chunk.tensor, tensor);
    tensor = chunk.tensor;
    EXPECT_EQ(chunk.begin, next[static_cast<size_t>(tensor)]);
    EXPECT_GE(chunk.count, 1);
    EXPECT_LE(chunk.count, kChunkElements);
    EXPECT_EQ(chunk.begin % 4, 0) << "vectors are whole";
    next[static_cast<size_t>(tensor)] += chunk.count;
  }
  EXPECT_EQ(next, counts);
}

TEST(CudaTables, GroupRowsByTokenInAscendingOrder) {
  plans::Rng rng(1, 2);
  for (int rows = 0; rows < 40; ++rows) {
    std::vector<int32_t> tokens(static_cast<size_t>(rows));
    for (int32_t& token : tokens) token = static_cast<int32_t>(rng.below(7));
    const RowsByToken grouped = group_rows_by_token(tokens);
    std::set<int32_t> seen;
    int32_t next = 0;
    for (const kernels::TokenRows& segment : grouped.segments) {
      EXPECT_TRUE(seen.insert(segment.token).second) << "a token has one segment";
      EXPECT_EQ(segment.begin, next);
      EXPECT_LT(segment.begin, segment.end);
      for (int32_t i = segment.begin; i < segment.end; ++i) {
        const int32_t row = grouped.order[static_cast<size_t>(i)];
        EXPECT_EQ(tokens[static_cast<size_t>(row)], segment.token);
        EXPECT_TRUE(i == segment.begin || row > grouped.order[static_cast<size_t>(i - 1)]);
      }
      next = segment.end;
    }
    EXPECT_EQ(next, rows);
  }
}

TEST(CudaLaunchShape, SlabsTileAllRows) {
  for (int64_t rows = 1; rows < 20'000; ++rows) {
    const int64_t slabs = kernels::slab_count(rows), each = kernels::slab_rows(rows);
    ASSERT_GE(slabs * each, rows);
    ASSERT_LE(slabs, kernels::kSlabsMax);
    // An empty slab is allowed: its sums are zeros.
    ASSERT_LT((slabs - 1) * (each - 1), rows);
  }
}

TEST(CudaLaunchShape, StridingBlocksAreEnoughAndBounded) {
  for (int64_t count :
       {int64_t{1}, int64_t{1023}, int64_t{1024}, int64_t{1025}, int64_t{1} << 40}) {
    const int64_t blocks = kernels::striding_blocks(count, 1024);
    EXPECT_GE(blocks, 1);
    EXPECT_LE(blocks, kernels::kStridingBlocksMax);
    EXPECT_TRUE(blocks * 1024 >= count || blocks == kernels::kStridingBlocksMax);
  }
}

TEST(CudaLaunchShape, HeadsArePaddedToTheNextInstance) {
  for (int64_t size = 1; size <= 256; ++size) {
    const int64_t padded = kernels::attention_padded_size(size);
    EXPECT_GE(padded, size);
    EXPECT_LT(padded - size, size <= kernels::kTensorCoreHeadMax ? 32 : 128);
    EXPECT_EQ(padded % 32, 0);
    EXPECT_EQ(padded <= kernels::kTensorCoreHeadMax, size <= kernels::kTensorCoreHeadMax);
  }
  EXPECT_EQ(kernels::attention_padded_size(0), 0);
  EXPECT_EQ(kernels::attention_padded_size(257), 0);
}

TEST(CudaLaunchShape, HeadsTileThePackedTensors) {
  for (const kernels::AttentionShape& s :
       {kernels::AttentionShape{2, 3, 4, 4, 5}, {2, 3, 4, 2, 5}, {1, 2, 6, 1, 3}}) {
    std::map<int64_t, int64_t> in_qkv, in_out;
    for (int64_t index = 0; index < s.batch * s.heads; ++index) {
      const kernels::HeadOffsets at = kernels::head_offsets(s, index);
      for (int64_t row = 0; row < s.seq_len; ++row) {
        for (int64_t i = 0; i < s.size; ++i) {
          for (const int64_t part : {at.q, at.k, at.v}) ++in_qkv[part + row * at.qkv_stride + i];
          ++in_out[at.out + row * at.out_stride + i];
        }
      }
    }
    const int64_t rows = s.batch * s.seq_len, queries = s.heads * s.size;
    const int64_t width = (s.heads + 2 * s.kv_heads) * s.size;
    ASSERT_EQ(in_qkv.size(), static_cast<size_t>(rows * width));
    EXPECT_EQ(in_qkv.rbegin()->first, rows * width - 1);
    for (const auto& [at, count] : in_qkv) {
      EXPECT_EQ(count, at % width < queries ? 1 : s.heads / s.kv_heads) << at;
    }
    ASSERT_EQ(in_out.size(), static_cast<size_t>(rows * queries));
    EXPECT_EQ(in_out.rbegin()->first, rows * queries - 1);
  }
}

/// Host memory with a limit, which counts what is out.
struct Driver {
  int64_t limit = 0;
  int64_t out = 0;
  int64_t calls = 0;

  CachingAllocator::Source source() {
    return {[this](int64_t bytes) -> absl::StatusOr<void*> {
              ++calls;
              if (out + bytes > limit) return absl::ResourceExhaustedError("full");
              out += bytes;
              sizes_.push_back({std::make_unique<char[]>(1), bytes});
              return sizes_.back().first.get();
            },
            [this](void* memory) {
              for (auto& [block, bytes] : sizes_) {
                if (block.get() != memory) continue;
                out -= bytes;
                bytes = 0;
              }
            }};
  }
  std::vector<std::pair<std::unique_ptr<char[]>, int64_t>> sizes_;
};

TEST(CachingAllocator, UsesAgainWhatCameBack) {
  Driver driver{1 << 20};
  CachingAllocator allocator(driver.source(), 0);
  void* first = allocator.take(1000).value();
  allocator.give_back(first);
  EXPECT_EQ(allocator.take(900).value(), first) << "both are rounded to 1024 bytes";
  EXPECT_EQ(driver.calls, 1);
  EXPECT_EQ(allocator.memory().in_use, 1024);
  EXPECT_EQ(allocator.memory().cached, 0);
  void* small = allocator.take(10).value();
  EXPECT_NE(small, first);
  allocator.give_back(first);
  EXPECT_NE(allocator.take(10).value(), first) << "too much would be wasted";
  EXPECT_EQ(allocator.memory().in_use_max, 1536);
  for (void* memory : {small}) allocator.give_back(memory);
  EXPECT_EQ(allocator.memory().cached, 1024 + 512);
  // What is left is the second piece of 10 bytes.
  EXPECT_EQ(allocator.memory().in_use, 512);
  allocator.give_back(driver.sizes_.back().first.get());
}

TEST(CachingAllocator, GivesItsCacheBackBeforeItRefuses) {
  Driver driver{4096};
  CachingAllocator allocator(driver.source(), 0);
  allocator.give_back(allocator.take(3000).value());
  EXPECT_EQ(driver.out, 3072);
  void* larger = allocator.take(4000).value();
  EXPECT_EQ(driver.out, 4096);
  const absl::Status refused = allocator.take(1).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(allocator.memory().in_use, 4096);
  allocator.give_back(larger);
  EXPECT_TRUE(absl::IsInvalidArgument(allocator.take(-1).status()));
}

TEST(CachingAllocator, KeepsToItsLimitAndSaysAllSizes) {
  Driver driver{1 << 20};
  CachingAllocator allocator(driver.source(), 2048);
  void* first = allocator.take(1024).value();
  const std::string refused(allocator.take(1025).status().message());
  EXPECT_NE(
      refused.find("1536 bytes: 1024 are in use, 2048 are the limit, 1024 were the most so far"),
      std::string::npos)
      << refused;
  void* second = allocator.take(1024).value();
  allocator.give_back(first);
  allocator.give_back(second);
  EXPECT_TRUE(allocator.take(2048).ok()) << "the cache makes room";
  EXPECT_EQ(driver.out, 2048);
  allocator.give_back(driver.sizes_.back().first.get());
}

TEST(Staging, GivesDistinctPiecesAndKeepsItsBlocks) {
  int blocks = 0;
  Staging staging([&](int64_t bytes) {
    ++blocks;
    return allocate_host(bytes);
  });
  std::set<void*> first;
  for (int round = 0; round < 3; ++round) {
    std::set<void*> pieces;
    for (int64_t bytes : {1, 64, 65, 20 << 20, 1000, 0}) {
      void* piece = staging.take(bytes).value();
      EXPECT_EQ(reinterpret_cast<uintptr_t>(piece) % 64, 0u);
      EXPECT_TRUE(pieces.insert(piece).second || bytes == 0);
    }
    if (round == 0) first = pieces;
    EXPECT_EQ(pieces, first);
    staging.reset();
  }
  EXPECT_LE(blocks, 3);
}

}  // namespace
}  // namespace skein::gpu
