// Stages that are sent to the coordinator: from the ShardIo of a worker without the run's folder to
// the RemoteShardIo.

#include "actors/coordinator/remote_shard_io.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/send.hpp>

#include "actors/replica/shard_io.hpp"
#include "actors/run_id.hpp"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/files/durable_file.hpp"
#include "tests/actors/small_job.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/without_rights.hpp"

namespace skein::actors {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kShardGeneration = 4;
constexpr uint64_t kShardSteps = 7;

/// Keeps what is sent, and what is received, until the test moves it.
class WaitingPlane : public net::DataPlane, public net::TensorInbox {
 public:
  const std::string& address() const override { return address_; }
  net::TensorInbox& inbox() override { return *this; }
  void send(const std::string&, Rows rows) override { sent.push_back(std::move(rows)); }
  net::DataPlaneStatistics statistics() const override { return {}; }
  void open(StreamSpec stream) override { streams[stream.receiver] = std::move(stream); }
  void close(uint64_t, uint32_t receiver, net::schema::TensorKind) override {
    streams.erase(receiver);
  }
  void close_before(uint64_t generation) override { floor = generation; }
  void drop_link(const std::string&, double) override {}

  /// The oldest tensor that was sent arrives.
  void move() {
    const Rows rows = std::move(sent.front());
    sent.pop_front();
    ASSERT_TRUE(streams.contains(rows.key.receiver));
    const StreamSpec& stream = streams.at(rows.key.receiver);
    ASSERT_EQ(stream.row_floats, rows.payload.size());
    const net::TensorHandle copy = make_layer_memory(stream.row_floats);
    std::copy(rows.payload.begin(), rows.payload.end(), copy->begin());
    stream.on_tensor(rows.key, copy);
  }

  std::deque<Rows> sent;
  std::map<uint32_t, StreamSpec> streams;  // By layer.
  uint64_t floor = 0;

 private:
  std::string address_ = "127.0.0.1:2";
};

struct RemoteShards {
  explicit RemoteShards(bool tied = false, plans::LayerRange stage = {1, 4}) {
    config.set("scheduler.policy", caf::atom("testing"));
    system = std::make_unique<caf::actor_system>(config);
    job.model.tied_head = tied;
    order = {kShardGeneration, {2}, 1, 2, stage, kShardSteps};
    std::ofstream(coordinators.file(kRunIdName)) << "run-1\n";
    remote = system->spawn(remote_shard_io, RemoteShardIoConfig{coordinators.path(), job, plane});
    sender = system->spawn([this]() -> ShardListener::behavior_type {
      return {[this](const ShardWritten& done) { written.push_back(done); }};
    });
    receiver = system->spawn([this]() -> RemoteShardListener::behavior_type {
      return {[this](const ShardLayerArrived&) { ++layers; },
              [this](const ShardReceived& done) { received.push_back(done); }};
    });
  }
  ~RemoteShards() {
    for (const auto& each :
         {caf::actor_cast<caf::actor>(remote), caf::actor_cast<caf::actor>(sender),
          caf::actor_cast<caf::actor>(receiver), caf::actor_cast<caf::actor>(shards)}) {
      if (each) caf::anon_send_exit(each, caf::exit_reason::user_shutdown);
    }
    run();
  }

  void run() { dynamic_cast<caf::scheduler::test_coordinator&>(system->scheduler()).run(); }
  /// The worker's half: it sees the run's folder in `run_folder`, or does not.
  void spawn_worker(const std::string& run_folder) {
    ShardIoConfig made;
    made.run_folder = run_folder;
    made.run = "run-1";
    made.coordinator_address = "127.0.0.1:2";
    made.model = job.model;
    made.generation = kShardGeneration;
    made.optimizer = job.optimizer.name;
    made.shard_count = 2;
    made.plane = plane;
    shards = system->spawn(shard_io, std::move(made));
  }
  void save(uint64_t steps_done = kShardSteps) {
    ShardRequest request;
    request.steps_done = steps_done;
    request.stage = 1;
    request.layers = order.layers;
    request.parameters = plans::range_parameters(job.model, order.layers);
    float next = static_cast<float>(steps_done);
    for (const plans::ParameterSpec& each : request.parameters) {
      for (auto* to : {&request.weights, &request.moments_first, &request.moments_second}) {
        to->emplace_back(static_cast<size_t>(plans::element_count(each)));
        for (float& value : to->back()) value = next += 0.25f;
      }
    }
    caf::anon_send(shards, std::move(request), ShardListener(sender));
    run();
  }
  void receive(uint64_t steps_done = kShardSteps) {
    order.steps_done = steps_done;
    caf::anon_send(remote, order, RemoteShardListener(receiver));
    run();
  }
  void move(size_t count) {
    for (size_t i = 0; i < count; ++i) plane->move();
    run();
  }
  static std::string contents(const std::string& folder, const std::string& name) {
    std::ifstream file(
        gpu::partial_checkpoint_path(folder, kShardSteps, kShardGeneration) + "/" + name,
        std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  plans::JobSpec job = small_job(2, 1);
  tests::TemporaryFolder coordinators;
  tests::TemporaryFolder workers;  // Another machine's, of no run.
  plans::ReceiveShard order;
  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> system;
  std::shared_ptr<WaitingPlane> plane = std::make_shared<WaitingPlane>();
  RemoteShardIo remote;
  ShardIo shards;
  ShardListener sender;
  RemoteShardListener receiver;
  std::vector<ShardWritten> written;
  std::vector<ShardReceived> received;
  int layers = 0;
};

TEST(RemoteShardIo, WritesTheFilesThatTheWorkerWouldHaveWritten) {
  for (const bool tied : {false, true}) {
    for (const plans::LayerRange stage : {plans::LayerRange{0, 4}, {0, 2}, {2, 4}, {3, 4}}) {
      RemoteShards there(tied, stage);
      there.spawn_worker(there.coordinators.path());
      there.save();
      ASSERT_EQ(there.written.size(), 1u);
      ASSERT_TRUE(there.written[0].files.ok()) << there.written[0].files.status();
      EXPECT_FALSE(there.written[0].is_sent);
      EXPECT_TRUE(there.plane->sent.empty());

      RemoteShards apart(tied, stage);
      apart.spawn_worker(apart.workers.path());
      apart.save();
      ASSERT_EQ(apart.written.size(), 1u);
      EXPECT_TRUE(apart.written[0].is_sent);
      apart.receive();
      apart.move(static_cast<size_t>(stage.size()));
      EXPECT_EQ(apart.layers, stage.size());
      ASSERT_EQ(apart.received.size(), 1u);
      ASSERT_TRUE(apart.received[0].files.ok()) << apart.received[0].files.status();
      EXPECT_EQ(*apart.received[0].files, *there.written[0].files);
      for (const gpu::SavedFile& file : *there.written[0].files) {
        EXPECT_EQ(RemoteShards::contents(apart.coordinators.path(), file.name),
                  RemoteShards::contents(there.coordinators.path(), file.name));
      }
      EXPECT_TRUE(apart.plane->streams.empty()) << "its memory is free";
      EXPECT_TRUE(std::filesystem::is_empty(apart.workers.path()));
    }
  }
}

TEST(RemoteShardIo, AFolderOfAnotherRunIsNotItsOwn) {
  RemoteShards rig;
  std::ofstream(rig.workers.file(kRunIdName)) << "run-2\n";
  rig.spawn_worker(rig.workers.path());
  rig.save();
  ASSERT_EQ(rig.written.size(), 1u);
  EXPECT_TRUE(rig.written[0].is_sent);
}

TEST(RemoteShardIo, AWorkerThatMayNotWriteInTheFolderSendsItsShard) {
  namespace fs = std::filesystem;
  for (const bool is_begun : {false, true}) {
    RemoteShards rig;
    const std::string run = rig.coordinators.path();
    const std::string partial = gpu::partial_checkpoint_path(run, kShardSteps, kShardGeneration);
    const std::string closed = is_begun ? partial : run;
    fs::create_directories(closed);
    fs::permissions(run,
                    fs::perms::group_read | fs::perms::group_exec | fs::perms::others_read |
                        fs::perms::others_exec,
                    fs::perm_options::add);
    fs::permissions(closed, fs::perms::owner_write, fs::perm_options::remove);
    rig.spawn_worker(run);
    {
      const tests::WithoutRights nobody;
      rig.save();
    }
    fs::permissions(closed, fs::perms::owner_write, fs::perm_options::add);
    ASSERT_EQ(rig.written.size(), 1u);
    EXPECT_TRUE(rig.written[0].is_sent);
    EXPECT_TRUE(rig.written[0].files.ok()) << rig.written[0].files.status();
    rig.receive();
    ASSERT_EQ(rig.plane->sent.size(), 3u);
    rig.move(3);
    ASSERT_EQ(rig.received.size(), 1u);
    EXPECT_TRUE(rig.received[0].files.ok()) << rig.received[0].files.status();
  }
}

TEST(RemoteShardIo, AWorkerWithoutSpaceForItsShardSaysSo) {
  RemoteShards rig;
  rig.spawn_worker(rig.coordinators.path());
  gpu::fail_file_operation(1);
  rig.save();
  gpu::fail_file_operation(0);
  ASSERT_EQ(rig.written.size(), 1u);
  EXPECT_FALSE(rig.written[0].is_sent) << "the coordinator would have none, either";
  EXPECT_TRUE(absl::IsResourceExhausted(rig.written[0].files.status()));
}

TEST(RemoteShardIo, ADamagedLayerFailsTheShard) {
  RemoteShards rig;
  rig.spawn_worker(rig.workers.path());
  rig.save();
  const_cast<float&>(rig.plane->sent[1].payload[0]) += 1;
  rig.receive();
  rig.move(2);
  ASSERT_EQ(rig.received.size(), 1u);
  EXPECT_THAT(std::string(rig.received[0].files.status().message()), HasSubstr("layer 2"));
  EXPECT_TRUE(rig.plane->streams.empty());
}

TEST(RemoteShardIo, WhatIsLeftOfAnOlderShardIsDropped) {
  RemoteShards rig;
  rig.spawn_worker(rig.workers.path());
  rig.save(kShardSteps - 1);
  rig.save();
  rig.receive(kShardSteps - 1);
  rig.move(1);
  caf::anon_send(rig.remote, plans::EndTransfers{kShardGeneration});
  rig.run();
  EXPECT_TRUE(rig.plane->streams.empty());
  EXPECT_EQ(rig.plane->floor, kShardGeneration);
  rig.receive();
  rig.move(2 + 3);
  ASSERT_EQ(rig.received.size(), 1u);
  EXPECT_TRUE(rig.received[0].files.ok()) << rig.received[0].files.status();
  EXPECT_EQ(rig.received[0].shard.steps_done, kShardSteps);
}

TEST(RemoteShardIo, TheThirdShardIsAnnouncedAndWaitsUntilOneHasGone) {
  RemoteShards rig;
  rig.spawn_worker(rig.workers.path());
  for (uint64_t steps = 1; steps <= 4; ++steps) rig.save(steps);
  ASSERT_EQ(rig.written.size(), 4u);
  for (const ShardWritten& each : rig.written) EXPECT_TRUE(each.is_sent) << each.steps_done;
  EXPECT_EQ(rig.plane->sent.size(), 6u);
  rig.plane->sent.erase(rig.plane->sent.begin(), rig.plane->sent.begin() + 2);
  rig.run();
  EXPECT_EQ(rig.plane->sent.size(), 4u) << "a layer of the first is still held";
  rig.plane->sent.pop_front();
  rig.run();
  ASSERT_EQ(rig.plane->sent.size(), 6u);
  EXPECT_EQ(rig.plane->sent.back().key.step, 3u);
  rig.plane->sent.clear();
  rig.run();
  ASSERT_EQ(rig.plane->sent.size(), 3u);
  EXPECT_EQ(rig.plane->sent.back().key.step, 4u);
}

TEST(RemoteShardIo, ShardsThatWereGivenUpDoNotBlockTheNext) {
  RemoteShards rig;
  rig.spawn_worker(rig.workers.path());
  for (const uint64_t given_up : {1, 2}) rig.save(given_up);
  rig.save();
  EXPECT_TRUE(rig.written.back().is_sent);
  rig.receive();
  rig.move(3 + 3);
  rig.move(3);
  ASSERT_EQ(rig.received.size(), 1u);
  EXPECT_EQ(rig.received[0].shard.steps_done, kShardSteps);
}

TEST(RemoteShardIo, AFullDiskFailsTheShard) {
  RemoteShards rig;
  rig.spawn_worker(rig.workers.path());
  rig.save();
  std::ofstream(rig.coordinators.file("checkpoint")) << "no folder";
  rig.receive();
  rig.move(3);
  ASSERT_EQ(rig.received.size(), 1u);
  EXPECT_FALSE(rig.received[0].files.ok());
}

}  // namespace
}  // namespace skein::actors
