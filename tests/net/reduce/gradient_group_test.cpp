#include "net/reduce/gradient_group.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "plans/collectives/exchange_partners.hpp"
#include "plans/collectives/reducer_kind.hpp"

namespace skein::net {
namespace {

/// Rendezvous stores of several members that publish to each other.
struct Stores {
  explicit Stores(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      stores.push_back(
          RendezvousStore::create([this, i](const std::string& key, const std::vector<char>& value,
                                            const RendezvousStore::Receivers& receivers) {
            for (plans::WorkerId receiver : receivers) {
              EXPECT_NE(receiver, worker(i));
              std::lock_guard lock(mutex);
              ++entries;
              stores[receiver.value - 1]->deliver(key, value);
            }
          }));
    }
  }
  static plans::WorkerId worker(size_t rank) { return {static_cast<uint32_t>(rank) + 1}; }
  std::mutex mutex;
  size_t entries = 0;  // That went from one to another.
  std::vector<std::shared_ptr<RendezvousStore>> stores;
};

std::vector<std::unique_ptr<GradientGroup>> form(Stores& stores, const std::string& name,
                                                 const ReducerOptions& reducer = {}) {
  const auto count = static_cast<uint32_t>(stores.stores.size());
  std::vector<std::unique_ptr<GradientGroup>> groups(count);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      GradientGroup::Options options;
      options.name = name;
      options.rank = rank;
      options.rank_count = count;
      for (uint32_t partner : plans::exchange_partners(reducer.kind, rank, count)) {
        options.partners[partner] = Stores::worker(partner);
      }
      options.reducer = reducer;
      auto group = GradientGroup::create(options, stores.stores[rank]);
      ASSERT_TRUE(group.ok()) << group.status();
      const absl::Status connected = (*group)->connect();
      ASSERT_TRUE(connected.ok()) << connected;
      groups[rank] = *std::move(group);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return groups;
}

std::vector<std::vector<float>> reduce(std::vector<std::unique_ptr<GradientGroup>>& groups,
                                       size_t floats) {
  std::vector<std::vector<float>> values(groups.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < groups.size(); ++rank) {
    threads.emplace_back([&, rank] {
      for (size_t i = 0; i < floats; ++i) {
        values[rank].push_back(0.1F * static_cast<float>(rank + 1) + static_cast<float>(i % 17));
      }
      EXPECT_TRUE(groups[rank]->all_reduce_sum(values[rank]).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return values;
}

TEST(GradientGroup, AMemberHearsOfItsPartnersOnly) {
  Stores stores(7);
  auto groups = form(stores, "ring");
  EXPECT_EQ(stores.entries, 14u) << "two for each member";
  for (const auto& sums : reduce(groups, 100)) EXPECT_EQ(sums.size(), 100u);
}

TEST(GradientGroup, APartnerIsMissed) {
  Stores stores(3);
  GradientGroup::Options options;
  options.name = "torn";
  options.rank_count = 3;
  options.partners[1] = {2};
  const auto group = GradientGroup::create(options, stores.stores[0]);
  ASSERT_TRUE(absl::IsInvalidArgument(group.status()));
  EXPECT_EQ(group.status().message(), "torn lacks rank 2");
}

TEST(GradientGroup, SumsWithTheSameBitsEverywhereAndEveryTime) {
  for (size_t members : {2, 3, 4}) {
    Stores stores(members);
    auto groups = form(stores, "g");
    for (size_t floats : {1, 5, 1000, 100000}) {
      const auto first = reduce(groups, floats);
      for (const auto& values : first) EXPECT_EQ(values, first[0]);
      EXPECT_EQ(reduce(groups, floats), first);
      const float ranks = static_cast<float>(members * (members + 1)) / 2;
      EXPECT_NEAR(first[0][0], 0.1F * ranks, 1e-5);
    }
  }
}

TEST(GradientGroup, EveryReducerEndsWithTheSameBitsEverywhere) {
  for (const char* name :
       {"sum", "mean", "adasum", "topk", "hitopk", "fp16", "bf16", "hisum", "topka2a"}) {
    for (uint32_t members : {2, 3, 5}) {
      Stores stores(members);
      ReducerOptions reducer;
      reducer.kind = *plans::parse_reducer_kind(name);
      reducer.density = 0.3;
      for (uint32_t i = 0; i < members; ++i) reducer.hosts.push_back(i / 2);
      auto groups = form(stores, "g", reducer);
      for (size_t floats : {0, 1, 5, 1000, 100000}) {
        const auto first = reduce(groups, floats);
        for (const auto& values : first) ASSERT_EQ(values, first[0]) << name << " " << floats;
      }
    }
  }
}

/// A member dies; then the others are told to abort.
void abort_frees_all(const ReducerOptions& reducer) {
  Stores stores(4);
  auto groups = form(stores, "g", reducer);
  groups[0].reset();  // A member dies.
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::condition_variable changed;
  int failed = 0;
  for (size_t rank = 1; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      std::vector<float> values(1 << 20, 1.0F);
      const absl::Status status = groups[rank]->all_reduce_sum(values);
      std::lock_guard lock(mutex);
      failed += status.ok() ? 0 : 1;
      changed.notify_all();
    });
  }
  // The neighbours notice on their own; the third one is in the middle of the collective by then.
  {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return failed >= 2; }));
  }
  const auto start = std::chrono::steady_clock::now();
  for (size_t rank = 1; rank < 4; ++rank) groups[rank]->abort();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 3);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << "its time-out";
}

TEST(GradientGroup, AbortFreesAMemberThatIsNoNeighbourOfTheDead) {
  for (const char* name : {"sum", "adasum", "topk", "bf16"}) {
    SCOPED_TRACE(name);
    ReducerOptions reducer;
    reducer.kind = *plans::parse_reducer_kind(name);
    abort_frees_all(reducer);
  }
}

TEST(GradientGroup, FormingFailsWithoutAllMembers) {
  Stores stores(2);
  auto make = [&](const char* name, uint32_t rank) {
    GradientGroup::Options options;
    options.name = name;
    options.rank = rank;
    options.rank_count = 2;
    options.partners[1 - rank % 2] = Stores::worker(1 - rank % 2);
    options.appear_timeout_seconds = 0.05;
    return GradientGroup::create(options, stores.stores[rank % 2]);
  };
  EXPECT_FALSE((*make("g", 0))->connect().ok());
  auto aborted = *make("a", 1);
  aborted->abort();
  EXPECT_TRUE(absl::IsCancelled(aborted->connect()));
  stores.stores[1]->cancel();
  EXPECT_TRUE(absl::IsCancelled((*make("h", 1))->connect()));
  EXPECT_FALSE(make("g", 2).ok());
}

}  // namespace
}  // namespace skein::net
