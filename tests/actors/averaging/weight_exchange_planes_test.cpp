#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/averaging/weight_exchange.hpp"
#include "tests/actors/averaging/weighted_group.hpp"

namespace skein::actors {
namespace {

constexpr auto kPatience = std::chrono::seconds(20);
constexpr uint32_t kReplicas = 3;
constexpr size_t kFloats = 1'000'003;  // 65 chunks.

/// Replicas of a stage with data planes on loopback; the test's thread plays all of their actors.
struct WeightExchangeOverPlanes : testing::Test {
  WeightExchangeOverPlanes() : loop(net::EventLoop::start().value()) {
    std::map<plans::ReplicaId, std::string> addresses;
    for (uint32_t i = 0; i < kReplicas; ++i) {
      planes.push_back(net::DataPlane::start(*loop, {}).value());
      addresses[{kFirstReplica + i}] = planes[i]->address();
    }
    for (uint32_t i = 0; i < kReplicas; ++i) exchanges.push_back(exchange(i, addresses));
  }
  ~WeightExchangeOverPlanes() override {
    exchanges.clear();
    planes.clear();
    loop.reset();
  }

  std::unique_ptr<WeightExchange> exchange(
      uint32_t i, const std::map<plans::ReplicaId, std::string>& addresses) {
    WeightExchange::Options options;
    options.streams.plane = planes[i];
    options.streams.generation = 1;
    options.streams.self = {kFirstReplica + i};
    options.floats_max = kFloats;
    options.streams.addresses = addresses;
    options.streams.on_chunk = [this, i](const net::TensorKey& key, net::TensorHandle chunk) {
      std::lock_guard lock(mutex);
      mailbox.push_back({i, key, std::move(chunk)});
      arrived.notify_one();
    };
    return std::make_unique<WeightExchange>(std::move(options));
  }

  void begin(uint32_t i, uint64_t number, const std::vector<uint32_t>& indices) {
    auto values = values_of(i, number, kFloats);
    take(i, exchanges[i]->begin(number, members_of(indices), std::move(values)));
  }
  void take(uint32_t i, std::optional<WeightExchange::Done> done) {
    if (done) results[i].push_back(*std::move(done));
  }
  /// Handles the next chunk. False if none comes.
  bool handle_one() {
    std::unique_lock lock(mutex);
    if (!arrived.wait_for(lock, kPatience, [this] { return !mailbox.empty(); })) return false;
    Message next = std::move(mailbox.front());
    mailbox.pop_front();
    lock.unlock();
    ++handled[{next.replica, next.key.kind}];
    take(next.replica, exchanges[next.replica]->on_chunk(next.key, std::move(next.chunk)));
    return true;
  }
  bool all_have(const std::vector<uint32_t>& indices, size_t count) {
    return std::all_of(indices.begin(), indices.end(),
                       [&](uint32_t i) { return results[i].size() == count; });
  }

  struct Message {
    uint32_t replica = 0;
    net::TensorKey key;
    net::TensorHandle chunk;
  };
  std::unique_ptr<net::EventLoop> loop;
  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<Message> mailbox;
  std::vector<std::shared_ptr<net::DataPlane>> planes;
  std::vector<std::unique_ptr<WeightExchange>> exchanges;
  std::map<std::pair<uint32_t, net::schema::TensorKind>, int> handled;
  Results results{kReplicas};
};

TEST_F(WeightExchangeOverPlanes, GroupsOfAnyMembersAverageOneAfterTheOther) {
  const std::vector<std::vector<uint32_t>> groups = {{0, 1, 2}, {0, 2}, {1, 2}, {0, 1, 2}};
  std::vector<size_t> counts(kReplicas);
  for (size_t g = 0; g < groups.size(); ++g) {
    for (uint32_t i : groups[g]) begin(i, g, groups[g]);
    for (uint32_t i : groups[g]) ++counts[i];
    while (results[0].size() < counts[0] || results[1].size() < counts[1] ||
           results[2].size() < counts[2]) {
      ASSERT_TRUE(handle_one());
    }
    ASSERT_NO_FATAL_FAILURE(expect_mean(results, g, groups[g], kFloats));
  }
}

TEST_F(WeightExchangeOverPlanes, NobodyWaitsForABeginThatIsOnItsWay) {
  begin(1, 1, {0, 1, 2});
  begin(2, 1, {0, 1, 2});
  // All that is replica 0's to average comes, although it has not begun: 22 chunks of 2 members.
  const std::pair<uint32_t, net::schema::TensorKind> parts{0, net::schema::TensorKind::PART};
  while (handled[parts] < 44) ASSERT_TRUE(handle_one());
  begin(0, 1, {0, 1, 2});
  while (!all_have({0, 1, 2}, 1)) ASSERT_TRUE(handle_one());
  expect_mean(results, 1, {0, 1, 2}, kFloats);
}

TEST_F(WeightExchangeOverPlanes, OthersGoOnWhenAMemberDies) {
  planes[2]->inbox().close_before(2);  // Takes nothing more of this generation.
  begin(0, 1, {0, 1, 2});
  begin(1, 1, {0, 1, 2});
  ASSERT_TRUE(handle_one());
  for (uint32_t i : {0u, 1u}) exchanges[i]->abort(1);
  for (uint32_t i : {0u, 1u}) begin(i, 2, {0, 1});
  while (!all_have({0, 1}, 1)) ASSERT_TRUE(handle_one());
  expect_mean(results, 2, {0, 1}, kFloats);
  EXPECT_TRUE(results[2].empty());
}

}  // namespace
}  // namespace skein::actors
