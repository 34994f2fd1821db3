#include "actors/worker/text_stage_io.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/send.hpp>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gpu/checkpoint/model_config.hpp"
#include "gpu/checkpoint/safetensors.hpp"
#include "gpu/model/decoder_pipeline.hpp"
#include "plans/base/rng.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::actors {
namespace {

using testing::HasSubstr;

constexpr int64_t kPositions = 8;
constexpr plans::WorkerId kSelf = {2};

plans::ModelSpec drawn_model() {
  plans::ModelSpec model;
  model.name = "llama";
  plans::apply_family(model);
  model.vocab_size = 7;
  model.positions = kPositions;
  model.layers = 3;
  model.heads = 2;
  model.channels = 8;
  model.init_std = 0.3;
  return model;
}

/// Keeps what is sent, and the stream that is opened.
class KeptPlane : public net::DataPlane, public net::TensorInbox {
 public:
  const std::string& address() const override { return address_; }
  net::TensorInbox& inbox() override { return *this; }
  void send(const std::string& address, Rows rows) override {
    sent.push_back({address, rows.key, {rows.payload.begin(), rows.payload.end()}});
  }
  void close_before(uint64_t) override {}
  void drop_link(const std::string&, double) override {}
  net::DataPlaneStatistics statistics() const override { return {}; }
  void open(StreamSpec stream) override { streams.push_back(std::move(stream)); }
  void close(uint64_t, uint32_t, net::schema::TensorKind) override {}

  struct Sent {
    std::string address;
    net::TensorKey key;
    std::vector<float> values;
  };
  std::vector<Sent> sent;
  std::vector<StreamSpec> streams;

 private:
  std::string address_ = "here:1";
};

/// A stage of worker 2 of a model whose folder is there.
class TextStageIoTest : public testing::Test {
 protected:
  TextStageIoTest() {
    write_model();
    config_.set("scheduler.policy", caf::atom("testing"));
    system_ = std::make_unique<caf::actor_system>(config_);
    stage_ = system_->spawn(text_stage_io);
    listener_ = system_->spawn([this]() -> TextListener::behavior_type {
      return {[this](const TextAnswer& answer) { answers_.push_back(answer); }};
    });
    source_ = gpu::ModelSource::open(folder_.file("model")).value();
    measurement_.request = {source_->folder(), source_->digest().value(), kPositions, kPositions};
    measurement_.model = source_->model();
    measurement_.device = device_;
  }
  ~TextStageIoTest() override {
    plane_->streams.clear();
    caf::anon_send_exit(stage_, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(listener_, caf::exit_reason::user_shutdown);
    run();
  }

  void write_model() {
    const plans::ModelSpec model = drawn_model();
    std::filesystem::create_directory(folder_.file("model"));
    std::ofstream(folder_.file("model/config.json")) << gpu::to_config(model).dump();
    std::vector<std::vector<float>> memory;
    std::vector<gpu::TensorToWrite> tensors;
    for (const auto& each : plans::range_parameters(model, {0, plans::layer_count(model)})) {
      std::vector<float>& values = memory.emplace_back(plans::element_count(each));
      const uint64_t stream = plans::random_stream(each.name.data(), each.name.size());
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(0.3 * plans::random_normal(5, stream, i));
      }
      tensors.push_back({each.name, each.shape, values});
    }
    ASSERT_TRUE(gpu::write_safetensors(folder_.file("model/model.safetensors"), tensors).ok());
  }
  void run() { dynamic_cast<caf::scheduler::test_coordinator&>(system_->scheduler()).run(); }
  void measure() {
    caf::anon_send(stage_, measurement_, listener_);
    run();
  }
  void assign(const plans::TextLayers& order) {
    caf::anon_send(stage_, TextAssignment{order, kSelf, "coordinator:1", plane_});
    run();
  }
  void step(const plans::TextStep& order) {
    caf::anon_send(stage_, order);
    run();
  }
  void row(uint64_t number, uint32_t position, const std::vector<float>& values) {
    auto memory = std::make_shared<std::vector<float>>(values);
    net::TensorHandle handle(new std::span<float>(*memory),
                             [memory](const std::span<float>* span) { delete span; });
    const net::TensorKey key = {plans::kTextGeneration, kSelf.value,
                                net::schema::TensorKind::ACTIVATION, number, position};
    ASSERT_EQ(plane_->streams.size(), 1U);
    plane_->streams.front().on_tensor(key, handle);
    run();
  }
  /// What a decoder of these layers makes of the input.
  std::vector<float> computed(const plans::LayerRange& layers, const gpu::Decoder::Input& input,
                              size_t outputs) {
    const auto read = [this](const std::string& name, std::span<float> out) {
      return source_->read(name, out);
    };
    auto decoder =
        gpu::Decoder::create({source_->model(), layers, kPositions}, read, *device_).value();
    std::vector<float> output(outputs);
    gpu::Work work;
    work.run = [&](gpu::Ops& ops) { return decoder->extend(ops, input, output); };
    EXPECT_TRUE(device_->run(std::move(work)).ok());
    return output;
  }
  std::string last_error() const { return std::string(answers_.back().status.message()); }

  tests::TemporaryFolder folder_;
  std::shared_ptr<gpu::Device> device_ = gpu::make_host_device(1);
  std::optional<gpu::ModelSource> source_;
  caf::actor_system_config config_;
  std::unique_ptr<caf::actor_system> system_;
  std::shared_ptr<KeptPlane> plane_ = std::make_shared<KeptPlane>();
  TextStageIo stage_;
  TextListener listener_;
  std::vector<TextAnswer> answers_;
  TextMeasurement measurement_;
};

TEST_F(TextStageIoTest, SaysWhatLayersWouldTake) {
  measure();
  ASSERT_EQ(answers_.size(), 1U);
  const auto& room = std::get<plans::TextRoom>(*answers_.front().body);
  EXPECT_EQ(room.room.layer_bytes.size(), 5U);
  EXPECT_GT(room.room.free_bytes, 0);
  EXPECT_GT(room.room.fixed_bytes, 0);
  const auto whole =
      gpu::Decoder::memory({measurement_.model, {0, 5}, kPositions}, kPositions, device_->info());
  const auto& bytes = room.room.layer_bytes;
  EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), -room.room.shared_bytes),
            whole.kept_bytes());
  EXPECT_GT(room.room.shared_bytes, 0) << "the two ends share the tied embedding";
  EXPECT_TRUE(room.is_host_memory);
  measurement_.request.positions = kPositions + 1;
  measure();
  EXPECT_THAT(last_error(), HasSubstr("9 positions"));
}

TEST_F(TextStageIoTest, SendsActivationsOfEachPositionToTheNextWorker) {
  measure();
  assign({{0, 2}, {}, {3}, "next:1", 5});
  EXPECT_TRUE(std::holds_alternative<plans::TextReady>(*answers_.back().body));
  EXPECT_TRUE(plane_->streams.empty()) << "tokens come with the step";
  const std::vector<int32_t> tokens = {1, 6, 3};
  step({1, 0, 3, tokens});
  ASSERT_EQ(plane_->sent.size(), 3U);
  const std::vector<float> wanted = computed({0, 2}, {tokens, {}}, 24);
  for (uint32_t position = 0; position < 3; ++position) {
    const KeptPlane::Sent& sent = plane_->sent[position];
    EXPECT_EQ(sent.address, "next:1");
    EXPECT_EQ(sent.key, (net::TensorKey{plans::kTextGeneration, 3,
                                        net::schema::TensorKind::ACTIVATION, 1, position}));
    EXPECT_EQ(sent.values,
              std::vector<float>(wanted.begin() + position * 8, wanted.begin() + position * 8 + 8));
  }
  step({1, 0, 3, tokens});
  EXPECT_EQ(plane_->sent.size(), 3U) << "a repeat is dropped";
  step({2, 3, 1, {2}});
  EXPECT_EQ(plane_->sent.size(), 4U);
  EXPECT_EQ(answers_.size(), 2U);
}

TEST_F(TextStageIoTest, SendsLogitsToTheCoordinatorWhicheverWayRowsCome) {
  measure();
  assign({{2, 5}, {1}, {}, "", 5});
  ASSERT_EQ(plane_->streams.size(), 1U);
  EXPECT_EQ(plane_->streams.front().sender, plans::WorkerId{1});
  EXPECT_EQ(plane_->streams.front().row_floats, 8U);
  std::vector<float> activations(24);
  for (size_t i = 0; i < 24; ++i) activations[i] = static_cast<float>(i % 7) * 0.2F - 0.5F;
  const auto of = [&](int64_t position) {
    return std::vector<float>(activations.begin() + position * 8,
                              activations.begin() + position * 8 + 8);
  };
  const std::vector<float> wanted = computed({2, 5}, {{}, activations}, 7);
  uint64_t number = 0;
  for (const std::vector<int>& order : std::vector<std::vector<int>>{
           {-1, 0, 1, 2}, {0, 1, 2, -1}, {2, -1, 0, 1}}) {  // -1: the step itself.
    ++number;
    for (const int each : order) {
      EXPECT_EQ(plane_->sent.size(), number - 1);
      if (each < 0) {
        step({number, 0, 3, {}});
      } else {
        row(number, static_cast<uint32_t>(each), of(each));
      }
    }
    ASSERT_EQ(plane_->sent.size(), number);
    EXPECT_EQ(plane_->sent.back().address, "coordinator:1");
    EXPECT_EQ(plane_->sent.back().key.receiver, 0U);
    EXPECT_EQ(plane_->sent.back().values, wanted);
  }
  row(1, 0, of(0));
  step({2, 0, 3, {}});
  EXPECT_EQ(plane_->sent.size(), 3U) << "late ones are dropped";
  EXPECT_EQ(answers_.size(), 2U);
}

TEST_F(TextStageIoTest, SaysWhyItCannotGoOn) {
  measurement_.request.digest += 1;
  measure();
  assign({{0, 5}, {}, {}, "", 5});
  EXPECT_THAT(last_error(), HasSubstr("is another model here"));
  measurement_.request.digest -= 1;
  measure();
  assign({{0, 5}, {}, {}, "", 5});
  EXPECT_TRUE(answers_.back().status.ok()) << answers_.back().status;
  step({1, 0, 1, {7}});
  EXPECT_THAT(last_error(), HasSubstr("none of the model's"));
  step({2, 4, 1, {1}});
  EXPECT_THAT(last_error(), HasSubstr("behind 4 positions, and 0 are here"));
  EXPECT_TRUE(plane_->sent.empty());
}

TEST_F(TextStageIoTest, SaysThatAFolderIsNotHere) {
  measurement_.request.folder = folder_.file("nowhere");
  measure();
  assign({{0, 5}, {}, {}, "", 5});
  EXPECT_THAT(last_error(), HasSubstr("nowhere"));
}

}  // namespace
}  // namespace skein::actors
