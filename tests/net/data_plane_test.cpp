#include "net/data_plane.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

namespace skein::net {
namespace {

constexpr auto kPatience = std::chrono::seconds(20);
constexpr uint32_t kRowFloats = 33;

struct DataPlaneTest : testing::Test {
  DataPlaneTest() : loop(EventLoop::start().value()) {
    sender = DataPlane::start(*loop, {}).value();
    receiver = DataPlane::start(*loop, {}).value();
  }
  ~DataPlaneTest() override {
    arrived.clear();
    sender.reset();
    receiver.reset();
    loop.reset();
  }

  TensorInbox::StreamSpec stream(uint32_t begin, uint32_t count, uint32_t tensors_max = 100) {
    TensorInbox::StreamSpec spec;
    spec.generation = 1;
    spec.receiver = 5;
    spec.row_begin = begin;
    spec.row_count = count;
    spec.row_floats = kRowFloats;
    spec.tensors_max = tensors_max;
    spec.on_tensor = [this](const TensorKey& key, TensorHandle handle) {
      std::lock_guard lock(mutex);
      arrived[key.microbatch] = std::move(handle);
      ++count_arrived;
      changed.notify_all();
    };
    return spec;
  }

  /// Rows whose values are their row number and micro-batch.
  DataPlane::Rows rows(uint32_t microbatch, uint32_t begin, uint32_t count,
                       uint64_t generation = 1) {
    auto values = std::make_shared<std::vector<float>>(size_t{count} * kRowFloats);
    for (uint32_t r = 0; r < count; ++r) {
      std::fill_n(values->begin() + r * kRowFloats, kRowFloats,
                  static_cast<float>(100 * microbatch + begin + r));
    }
    DataPlane::Rows part;
    part.key = {generation, 5, schema::TensorKind::ACTIVATION, 0, microbatch};
    part.row_begin = begin;
    part.row_count = count;
    part.payload = *values;
    part.owner = values;
    return part;
  }

  bool wait_for(size_t tensors) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kPatience, [&] { return count_arrived >= tensors; });
  }

  std::unique_ptr<EventLoop> loop;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<uint32_t, TensorHandle> arrived;
  size_t count_arrived = 0;
  std::unique_ptr<DataPlane> sender, receiver;
};

TEST_F(DataPlaneTest, ConcatenatesAnySplit) {
  receiver->inbox().open(stream(2, 6));
  const std::vector<std::vector<uint32_t>> splits = {{6}, {2, 4}, {1, 1, 4}, {3, 1, 1, 1}};
  for (uint32_t m = 0; m < splits.size(); ++m) {
    uint32_t begin = 2;
    for (uint32_t count : splits[m]) {
      sender->send(receiver->address(), rows(m, begin, count));
      begin += count;
    }
  }
  ASSERT_TRUE(wait_for(splits.size()));
  for (auto& [m, handle] : arrived) {
    ASSERT_EQ(handle->size(), 6u * kRowFloats);
    for (uint32_t i = 0; i < handle->size(); ++i) {
      ASSERT_EQ((*handle)[i], static_cast<float>(100 * m + 2 + i / kRowFloats));
    }
  }
}

TEST_F(DataPlaneTest, ATensorWaitsForItsStreamToOpen) {
  sender->send(receiver->address(), rows(0, 0, 4));
  receiver->inbox().open(stream(0, 4));
  EXPECT_TRUE(wait_for(1));
}

TEST_F(DataPlaneTest, NoMoreTensorsArriveThanMayBeHeld) {
  receiver->inbox().open(stream(0, 4, 2));
  for (uint32_t m = 0; m < 10; ++m) sender->send(receiver->address(), rows(m, 0, 4));
  for (uint32_t m = 0; m < 10; ++m) {
    ASSERT_TRUE(wait_for(m + 1));
    std::lock_guard lock(mutex);
    EXPECT_LE(arrived.size(), 2u);
    arrived.erase(m);  // Makes room for the next one.
  }
}

TEST_F(DataPlaneTest, DropsRepeatsAndStaleGenerations) {
  receiver->inbox().close_before(1);
  receiver->inbox().open(stream(0, 4));
  sender->send(receiver->address(), rows(7, 0, 4, /*generation=*/0));
  sender->send(receiver->address(), rows(0, 0, 2));
  sender->send(receiver->address(), rows(0, 0, 2));
  sender->send(receiver->address(), rows(0, 2, 2));
  sender->send(receiver->address(), rows(0, 0, 2));
  sender->send(receiver->address(), rows(1, 0, 4));
  ASSERT_TRUE(wait_for(2));
  EXPECT_EQ(count_arrived, 2u);
  EXPECT_FALSE(arrived.contains(7));
  EXPECT_EQ(receiver->statistics().dropped_headers, 3u);
}

TEST_F(DataPlaneTest, TellsOfAPeerThatIsNotThere) {
  DataPlane::Options options;
  std::condition_variable lost;
  bool is_lost = false;
  options.connect_timeout_seconds = 0.1;
  options.on_peer_lost = [&](const std::string&, absl::Status) {
    std::lock_guard lock(mutex);
    is_lost = true;
    lost.notify_all();
  };
  auto alone = DataPlane::start(*loop, options).value();
  alone->send("no address", rows(0, 0, 4));
  std::unique_lock lock(mutex);
  EXPECT_TRUE(lost.wait_for(lock, kPatience, [&] { return is_lost; }));
}

}  // namespace
}  // namespace skein::net
