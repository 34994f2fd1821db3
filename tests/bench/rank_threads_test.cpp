#include "bench/policies/rank_threads.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "net/reduce/adasum.hpp"

namespace skein::bench {
namespace {

/// Orthogonal vectors add up, however many ranks there are.
TEST(RankThread, AdasumReducesTheVectorsOfThreads) {
  for (const uint32_t count : {1u, 2u, 5u, 16u}) {
    std::vector<std::vector<float>> vectors(count, std::vector<float>(count));
    for (uint32_t rank = 0; rank < count; ++rank) vectors[rank][rank] = 2;
    std::vector<RankMail> mail(count);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < count; ++rank) {
      threads.emplace_back([&, rank] {
        RankThread exchange(mail, rank);
        const std::vector<size_t> tensors = {count};
        EXPECT_TRUE(net::adasum(exchange, vectors[rank], tensors).ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::vector<float>& each : vectors) {
      EXPECT_EQ(each, std::vector<float>(count, 2)) << count;
    }
  }
}

TEST(RankThread, AnotherSizeIsAnError) {
  std::vector<RankMail> mail(2);
  const std::vector<std::byte> sent(3);
  std::vector<std::byte> expected(4);
  EXPECT_TRUE(RankThread(mail, 0).move({1, sent}, {}).ok());
  EXPECT_EQ(RankThread(mail, 1).move({}, {0, expected}).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace skein::bench
