#include "gpu/model/decoder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gpu/model/decoder_pipeline.hpp"
#include "gpu/model/stage_model.hpp"
#include "plans/base/rng.hpp"

namespace skein::gpu {
namespace {

using testing::HasSubstr;

constexpr int64_t kLength = 9;
constexpr int32_t kVocabulary = 11;

/// "gpt2", "llama", or "grouped": a Llama whose four heads of ten channels share two of keys.
plans::ModelSpec model_of(const std::string& family, bool tied) {
  plans::ModelSpec model;
  model.name = family == "gpt2" ? "gpt2" : "llama";
  if (family != "gpt2") plans::apply_family(model);
  model.vocab_size = kVocabulary;
  model.positions = kLength;
  model.layers = 3;
  model.heads = 2;
  model.channels = 12;
  model.tied_head = tied;
  model.init_std = 0.3;  // Large, so that every part of the model matters.
  if (family == "grouped") {
    model.heads = 4;
    model.kv_heads = 2;
    model.head_size = 10;
  }
  return model;
}

/// A host device that counts what it gives out and has no memory for one of the requests.
class CountingDevice final : public Device {
 public:
  explicit CountingDevice(int64_t fails_at) : fails_at_(fails_at) {}

  const DeviceInfo& info() const override { return host_->info(); }
  absl::StatusOr<Buffer> allocate(int64_t bytes) override {
    if (requests_++ == fails_at_) return absl::ResourceExhaustedError("no memory");
    bytes_ += bytes;
    return host_->allocate(bytes);
  }
  absl::Status run(Work work) override { return host_->run(std::move(work)); }

  int64_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<Device> host_ = make_host_device(1);
  int64_t fails_at_;
  int64_t requests_ = 0, bytes_ = 0;
};

/// Weights for a decoder and a model that is trained, which are the same.
class DecoderTest : public testing::Test {
 protected:
  void make(const plans::ModelSpec& model) {
    StageModelOptions options;
    options.model = model;
    options.layers = {0, plans::layer_count(model)};
    options.rows = 1;
    options.seq_len = kLength;
    options.seed = 5;
    trained_ = StageModel::create(options, *device_).value();
    decoder_ = Decoder::create(whole(model), reader(), *device_).value();
    for (int32_t& token : tokens_) token = static_cast<int32_t>(rng_.below(kVocabulary));
  }
  static Decoder::Options whole(const plans::ModelSpec& model) {
    return {model, {0, plans::layer_count(model)}, kLength};
  }
  ReadWeight reader() {
    return [this](const std::string& name, std::span<float> out) {
      const auto& all = trained_->parameters();
      size_t index = 0;
      while (all[index].name != name) ++index;
      return trained_->read_state(index, StateKind::kWeight, out);
    };
  }
  /// The loss of target `next` behind position `position`, by the model that is trained.
  double trained_loss(int64_t position, int32_t next) {
    std::vector<int32_t> targets(kLength, -1);
    targets[static_cast<size_t>(position)] = next;
    trained_->reset_loss();
    Work work;
    work.run = [&](Ops& ops) {
      StageModel::Input input;
      input.tokens = tokens_;
      input.targets = targets;
      return trained_->evaluate(ops, input, {});
    };
    EXPECT_TRUE(device_->run(std::move(work)).ok());
    return trained_->loss_sum();
  }
  absl::Status extend(int64_t count, std::vector<float>& logits) {
    Work work;
    const auto begin = static_cast<size_t>(decoder_->length());
    const auto added = std::span<const int32_t>(tokens_).subspan(begin, static_cast<size_t>(count));
    work.run = [&](Ops& ops) { return decoder_->extend(ops, {added, {}}, logits); };
    return device_->run(std::move(work));
  }
  void expect_trained_losses(const std::vector<float>& logits) {
    double sum = 0;
    for (float logit : logits) sum += std::exp(logit);
    for (int32_t next = 0; next < kVocabulary; ++next) {
      const double loss = std::log(sum) - logits[static_cast<size_t>(next)];
      EXPECT_NEAR(loss, trained_loss(decoder_->length() - 1, next), 1e-4) << decoder_->length();
    }
  }

  std::unique_ptr<Device> device_ = make_host_device(2);
  std::unique_ptr<StageModel> trained_;
  std::unique_ptr<Decoder> decoder_;
  plans::Rng rng_{9, 1};
  std::vector<int32_t> tokens_ = std::vector<int32_t>(kLength);
};

TEST_F(DecoderTest, GivesTheTrainedModelsProbabilitiesHoweverTheSequenceIsCut) {
  const std::vector<std::vector<int64_t>> cuts = {
      {9}, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {4, 1, 1, 3}, {2, 5, 2}};
  for (const char* family : {"gpt2", "llama", "grouped"}) {
    for (const bool tied : {true, false}) {
      make(model_of(family, tied));
      for (const auto& cut : cuts) {
        decoder_->clear();
        std::vector<float> logits(kVocabulary);
        for (const int64_t count : cut) {
          ASSERT_TRUE(extend(count, logits).ok());
          expect_trained_losses(logits);
        }
      }
    }
  }
}

TEST_F(DecoderTest, RefusesMoreTokensThanItHasPositionsAndKeepsItsSequence) {
  make(model_of("llama", false));
  std::vector<float> logits(kVocabulary);
  ASSERT_TRUE(extend(8, logits).ok());
  const std::vector<int32_t> two = {1, 2};
  Work work;
  work.run = [&](Ops& ops) { return decoder_->extend(ops, {two, {}}, logits); };
  EXPECT_THAT(std::string(device_->run(std::move(work)).message()), HasSubstr("behind 8 of 9"));
  ASSERT_TRUE(extend(1, logits).ok());
  expect_trained_losses(logits);
}

TEST_F(DecoderTest, AllocatesWhatItSaysItWill) {
  for (const char* family : {"gpt2", "llama", "grouped"}) {
    const plans::ModelSpec model = model_of(family, family[0] == 'l');
    make(model);
    for (const plans::LayerRange layers : {plans::LayerRange{0, 5}, {0, 1}, {1, 3}, {2, 5}}) {
      for (const int64_t added : {int64_t{1}, kLength}) {
        const Decoder::Options options = {model, layers, kLength};
        CountingDevice device(-1);
        decoder_ = Decoder::create(options, reader(), device).value();
        const std::vector<float> activations(static_cast<size_t>(added * model.channels));
        std::vector<float> output(layers.end == 5 ? size_t{kVocabulary} : activations.size());
        Decoder::Input input;
        if (layers.begin == 0) {
          input.tokens = std::span<const int32_t>(tokens_).first(static_cast<size_t>(added));
        } else {
          input.activations = activations;
        }
        Work work;
        work.run = [&](Ops& ops) { return decoder_->extend(ops, input, output); };
        ASSERT_TRUE(device.run(std::move(work)).ok());
        EXPECT_EQ(device.bytes(), Decoder::memory(options, added, device.info()).total_bytes())
            << family;
        decoder_.reset();
      }
    }
  }
}

TEST_F(DecoderTest, SaysSoWhicheverMemoryIsMissing) {
  make(model_of("llama", false));
  int64_t failures = 0;
  for (bool is_done = false; !is_done; ++failures) {
    CountingDevice device(failures);
    auto made = Decoder::create(whole(model_of("llama", false)), reader(), device);
    absl::Status status = made.status();
    if (made.ok()) {
      std::vector<float> logits(kVocabulary);
      Work work;
      work.run = [&](Ops& ops) { return (*made)->extend(ops, {tokens_, {}}, logits); };
      status = device.run(std::move(work));
    }
    is_done = status.ok();
    EXPECT_TRUE(is_done || absl::IsResourceExhausted(status)) << status;
  }
  EXPECT_GT(failures, 6);
}

TEST_F(DecoderTest, RefusesWhatItCannotCompute) {
  make(model_of("gpt2", true));
  const auto sleeper = make_sleep_device({});
  const auto refused = [&](Decoder::Options options, Device& device) {
    return std::string(Decoder::create(options, reader(), device).status().message());
  };
  Decoder::Options options = whole(model_of("gpt2", true));
  EXPECT_THAT(refused(options, *sleeper), HasSubstr("computes nothing"));
  for (const plans::LayerRange layers : {plans::LayerRange{0, 6}, {2, 2}, {-1, 3}}) {
    EXPECT_THAT(refused({options.model, layers, kLength}, *device_),
                HasSubstr("of a model with 5"));
  }
  options.positions = kLength + 1;
  EXPECT_THAT(refused(options, *device_), HasSubstr("10 positions"));
}

class DecoderPipelineTest : public DecoderTest {
 protected:
  /// Logits behind each of the cuts of the sequence, by a model that is cut before these layers.
  std::vector<std::vector<float>> logits_of(const plans::ModelSpec& model,
                                            const std::vector<int64_t>& begins) {
    std::vector<DecoderPipeline::Part> parts;
    for (size_t i = 0; i < begins.size(); ++i) {
      const int64_t end = i + 1 < begins.size() ? begins[i + 1] : plans::layer_count(model);
      parts.push_back({i % 2 == 0 ? device_.get() : other_.get(), {begins[i], end}});
    }
    pipeline_ = DecoderPipeline::create(model, kLength, parts, reader()).value();
    std::vector<std::vector<float>> all;
    for (const size_t count : {3, 1, 4, 1}) {
      const auto begin = static_cast<size_t>(pipeline_->length());
      std::vector<float>& logits = all.emplace_back(kVocabulary);
      const absl::Status status =
          pipeline_->extend(std::span<const int32_t>(tokens_).subspan(begin, count), logits);
      EXPECT_TRUE(status.ok()) << status;
    }
    return all;
  }

  std::unique_ptr<Device> other_ = make_host_device(1);
  std::unique_ptr<DecoderPipeline> pipeline_;
};

TEST_F(DecoderPipelineTest, GivesTheSameBitsWhereverTheModelIsCut) {
  for (const char* family : {"gpt2", "llama", "grouped"}) {
    for (const bool tied : {true, false}) {
      const plans::ModelSpec model = model_of(family, tied);
      make(model);
      const auto whole = logits_of(model, {0});
      for (const auto& begins :
           std::vector<std::vector<int64_t>>{{0, 2}, {0, 1, 4}, {0, 1, 2, 3, 4}}) {
        EXPECT_EQ(logits_of(model, begins), whole) << family << begins.size();
      }
      decoder_->clear();
      std::vector<float> logits(kVocabulary);
      ASSERT_TRUE(extend(3, logits).ok());
      EXPECT_EQ(logits, whole.front());
    }
  }
}

TEST_F(DecoderPipelineTest, BeginsAnewAfterAnError) {
  const plans::ModelSpec model = model_of("llama", true);
  make(model);
  const auto all = logits_of(model, {0, 2});
  std::vector<float> logits(kVocabulary);
  const absl::Status status = pipeline_->extend(tokens_, logits);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cpu x2: 9 tokens behind 9 of 9"));
  EXPECT_EQ(pipeline_->length(), 0);
  ASSERT_TRUE(pipeline_->extend(std::span<const int32_t>(tokens_).first(3), logits).ok());
  EXPECT_EQ(logits, all.front());
}

TEST_F(DecoderPipelineTest, RefusesPartsThatAreNotTheModel) {
  const plans::ModelSpec model = model_of("gpt2", true);
  make(model);
  const auto refused = [&](std::vector<plans::LayerRange> ranges) {
    std::vector<DecoderPipeline::Part> parts;
    for (const auto& layers : ranges) parts.push_back({device_.get(), layers});
    return std::string(DecoderPipeline::create(model, kLength, parts, reader()).status().message());
  };
  EXPECT_THAT(refused({}), HasSubstr("layer 0"));
  EXPECT_THAT(refused({{0, 2}, {3, 5}}), HasSubstr("layer 2"));
  EXPECT_THAT(refused({{0, 4}}), HasSubstr("layer 4"));
}

TEST(ContextBegin, MovesOnByHalfAWindowWhenItIsFull) {
  for (int64_t window : {1, 2, 5, 8}) {
    int64_t moves = 0;
    for (int64_t count = 1; count < 40; ++count) {
      const int64_t begin = context_begin(count, window);
      EXPECT_LE(count - begin, window);
      EXPECT_GE(count - begin, std::min(count, window - std::max<int64_t>(window / 2, 1) + 1));
      if (begin != context_begin(count - 1, window)) ++moves;
    }
    EXPECT_LE(moves, 39 / std::max<int64_t>(window / 2, 1)) << window;
  }
}

}  // namespace
}  // namespace skein::gpu
