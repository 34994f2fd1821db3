#include "actors/coordinator/layer_source_io.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <filesystem>
#include <fstream>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/send.hpp>

#include "actors/worker/layer_state.hpp"
#include "gpu/checkpoint/trainer_state.hpp"
#include "tests/actors/small_job.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::actors {
namespace {

constexpr uint64_t kServedGeneration = 4;
constexpr uint64_t kServedSteps = 3;

/// Keeps what is sent until the test takes it.
class KeepingPlane : public net::DataPlane, public net::TensorInbox {
 public:
  const std::string& address() const override { return address_; }
  net::TensorInbox& inbox() override { return *this; }
  void send(const std::string& address, Rows rows) override {
    to = address;
    sent.push_back(std::move(rows));
  }
  net::DataPlaneStatistics statistics() const override { return {}; }
  void open(StreamSpec) override {}
  void close(uint64_t, uint32_t, net::schema::TensorKind) override {}
  void close_before(uint64_t) override {}
  void drop_link(const std::string&, double) override {}

  std::string to;
  std::vector<Rows> sent;

 private:
  std::string address_ = "127.0.0.1:1";
};

struct LayerSource {
  explicit LayerSource(const std::string& optimizer = "adamw") {
    config.set("scheduler.policy", caf::atom("testing"));
    system = std::make_unique<caf::actor_system>(config);
    job.optimizer.name = optimizer;
    job.model.tied_head = true;
    io = system->spawn(layer_source_io, LayerSourceIoConfig{job, plane});
    listener = system->spawn([this]() -> LayersListener::behavior_type {
      return {[this](const LayersUnreadable& told) { unreadable.push_back(told); }};
    });
    write_checkpoint();
  }
  ~LayerSource() {
    caf::anon_send_exit(io, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(listener, caf::exit_reason::user_shutdown);
    run();
    plane->sent.clear();
  }

  void run() { dynamic_cast<caf::scheduler::test_coordinator&>(system->scheduler()).run(); }
  int64_t layer_count() const { return plans::layer_count(job.model); }

  /// One stage has all layers, and no number is there twice.
  void write_checkpoint() {
    const auto specs = plans::range_parameters(job.model, {0, layer_count()});
    std::vector<gpu::SavedParameter> parameters;
    for (const plans::ParameterSpec& spec : specs) {
      auto& values = numbers.emplace_back(static_cast<size_t>(plans::element_count(spec)));
      for (float& value : values) value = next += 0.5f;
      parameters.push_back({spec, values, values, values});
    }
    auto files = gpu::write_shard(gpu::partial_checkpoint_path(folder.path(), kServedSteps, 1), 0,
                                  1, job.optimizer.name, parameters);
    ASSERT_TRUE(files.ok()) << files.status();
    const auto path = gpu::complete_checkpoint(
        folder.path(), 1, job.model, gpu::trainer_state_after(job, kServedSteps), *files, 0);
    ASSERT_TRUE(path.ok()) << path.status();
    checkpoint = *path;
  }
  void ask(std::vector<int64_t> layers, uint32_t worker = 2) {
    LayersRequest request;
    request.order = {kServedGeneration, {worker}, std::move(layers), kServedSteps};
    request.load_path = checkpoint;
    request.address = "127.0.0.1:9";
    caf::anon_send(io, std::move(request), LayersListener(listener));
    run();
  }
  /// What is under way arrives: the next one may follow.
  net::DataPlane::Rows take() {
    net::DataPlane::Rows rows = plane->sent.front();
    plane->sent.erase(plane->sent.begin());
    kept.emplace_back(rows.payload.begin(), rows.payload.end());
    rows.payload = kept.back();
    rows.owner.reset();
    run();
    return rows;
  }

  plans::JobSpec job = small_job(2, 1);
  tests::TemporaryFolder folder;
  std::string checkpoint;
  std::vector<std::vector<float>> numbers;
  float next = 0;
  std::deque<std::vector<float>> kept;
  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> system;
  std::shared_ptr<KeepingPlane> plane = std::make_shared<KeepingPlane>();
  LayerSourceIo io;
  LayersListener listener;
  std::vector<LayersUnreadable> unreadable;
};

TEST(LayerSourceIo, SendsTheLayersOfACheckpointOneByOne) {
  for (const std::string optimizer : {"adamw", "sgd"}) {
    LayerSource source(optimizer);
    const auto reader = gpu::CheckpointReader::open(source.checkpoint).value();
    source.ask({1, 3});
    for (const int64_t layer : {1, 3}) {
      ASSERT_EQ(source.plane->sent.size(), 1u) << "one is under way";
      const net::DataPlane::Rows rows = source.take();
      EXPECT_EQ(rows.key.generation, kServedGeneration);
      EXPECT_EQ(rows.key.receiver, static_cast<uint32_t>(layer));
      EXPECT_EQ(rows.key.kind, net::schema::TensorKind::STATE);
      EXPECT_EQ(rows.key.step, kServedSteps);
      ASSERT_TRUE(check_layer_state(source.job.model, layer, rows.payload).ok());
      for (const gpu::SavedParameter& each :
           saved_parameters(source.job.model, layer, rows.payload)) {
        std::vector<float> expected(each.weight.size());
        ASSERT_TRUE(reader->read(each.spec.name, expected).ok());
        const auto is = [&](std::span<const float> values) {
          return std::equal(values.begin(), values.end(), expected.begin(), expected.end());
        };
        EXPECT_TRUE(is(each.weight)) << each.spec.name;
        EXPECT_TRUE(is(each.moment_first)) << each.spec.name;
        EXPECT_EQ(is(each.moment_second), optimizer == "adamw") << each.spec.name;
      }
    }
    EXPECT_TRUE(source.plane->sent.empty());
    EXPECT_EQ(source.plane->to, "127.0.0.1:9");
    EXPECT_TRUE(source.unreadable.empty());
  }
}

TEST(LayerSourceIo, NoWorkerWaitsForAnother) {
  LayerSource source;
  source.ask({0, 1}, 2);
  source.ask({2, 3}, 3);
  EXPECT_EQ(source.plane->sent.size(), 2u);
}

TEST(LayerSourceIo, AfterTheEndOfThePlanNothingIsSent) {
  LayerSource source;
  source.ask({0, 1, 2});
  caf::anon_send(source.io, plans::EndTransfers{kServedGeneration + 1});
  source.run();
  source.take();
  EXPECT_TRUE(source.plane->sent.empty());
}

TEST(LayerSourceIo, ADamagedTensorIsToldAndNotSent) {
  LayerSource source;
  for (const auto& entry : std::filesystem::directory_iterator(source.checkpoint)) {
    if (!entry.path().filename().string().starts_with("model-")) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-4, std::ios::end);
    file.put('?');
  }
  source.ask({0, 1, 2, 3});
  while (!source.plane->sent.empty()) source.take();
  ASSERT_EQ(source.unreadable.size(), 1u);
  EXPECT_EQ(source.unreadable[0].worker, plans::WorkerId{2});
  EXPECT_TRUE(absl::IsDataLoss(source.unreadable[0].why)) << source.unreadable[0].why;
}

TEST(LayerSourceIo, ACheckpointThatIsNotThereIsTold) {
  LayerSource source;
  source.checkpoint += "-gone";
  source.ask({0});
  ASSERT_EQ(source.unreadable.size(), 1u);
  EXPECT_EQ(source.unreadable[0].generation, kServedGeneration);
}

}  // namespace
}  // namespace skein::actors
