// StageModel on the CUDA back end against the host's: the same code, so the same numbers, and
// gradients that the host has changed on the way to the update. See cuda_ops_test.cpp for the
// plugin.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "gpu/cuda/load_cuda.hpp"
#include "gpu/model/stage_model.hpp"
#include "plans/base/rng.hpp"
#include "tests/gpu/emulated_cuda/controls.hpp"

namespace skein::gpu {
namespace {

constexpr int64_t kRows = 2;
constexpr int64_t kSeqLen = 9;

/// "gpt2", "llama", or "grouped": a Llama whose heads share keys.
plans::ModelSpec tiny_model(const char* family) {
  plans::ModelSpec model;
  const bool is_grouped = std::string(family) == "grouped";
  model.name = is_grouped ? "llama" : family;
  plans::apply_family(model);
  model.vocab_size = 13;
  model.positions = 10;
  model.layers = 2;
  model.heads = 2;
  model.kv_heads = is_grouped ? 1 : 0;
  model.channels = 16;
  model.tied_head = true;
  model.init_std = 0.3;
  return model;
}

StageModelOptions options_for(plans::LayerRange layers, const char* family = "gpt2") {
  StageModelOptions options;
  options.model = tiny_model(family);
  options.layers = layers;
  options.rows = kRows;
  options.seq_len = kSeqLen;
  options.stash_count = 2;
  options.seed = 5;
  return options;
}

std::vector<int32_t> tokens_of(uint64_t stream) {
  plans::Rng rng(9, stream);
  std::vector<int32_t> tokens(kRows * kSeqLen);
  for (int32_t& token : tokens) token = static_cast<int32_t>(rng.below(13));
  return tokens;
}

absl::Status run(Device& device, std::function<absl::Status(Ops&)> body) {
  return device.run({WorkKind::kOther, std::move(body)});
}

/// What a few steps leave: losses, norms, and all weights and moments.
struct Trained {
  std::vector<double> losses, norms;
  std::vector<std::vector<float>> state;
};

/// Trains two stages on one device, each work by itself. `as_replicas`: gradients go by way of the
/// host, which doubles them, as an all-reduce of two equal replicas would. `on_device`: what a
/// stage gives to the other lies in the device's memory, in the type of its activations.
Trained train(Device& device, bool as_replicas, const char* family = "gpt2",
              bool on_device = false) {
  const int64_t cut = 2, end = plans::layer_count(tiny_model(family));
  auto first = StageModel::create(options_for({0, cut}, family), device).value();
  auto last = StageModel::create(options_for({cut, end}, family), device).value();
  std::vector<float> activations(static_cast<size_t>(first->activation_elements()), NAN);
  std::vector<float> gradient(activations.size(), NAN);
  const NumberType type = device.info().activations;
  const Buffer passed = device.allocate(float_bytes(first->activation_elements())).value();
  const Buffer passed_back = device.allocate(float_bytes(first->activation_elements())).value();
  const auto given = [&](const Buffer& memory, std::vector<float>& host) -> GivenActivations {
    if (on_device) return {memory.numbers(type), first->activation_elements()};
    return host;
  };
  const auto taken = [&](const Buffer& memory, std::vector<float>& host) -> TakenActivations {
    const GivenActivations same = given(memory, host);
    return {same.numbers, same.count};
  };
  const std::vector<int32_t> tokens = tokens_of(1), targets = tokens_of(2);
  Trained result;
  auto check = [&](std::function<absl::Status(Ops&)> body) {
    const absl::Status status = run(device, std::move(body));
    EXPECT_TRUE(status.ok()) << status;
  };
  for (int64_t step = 0; step < 3; ++step) {
    for (StageModel* model : {first.get(), last.get()}) {
      check([&](Ops& ops) { return model->start_step(ops, 1.0 / (2 * kRows * kSeqLen)); });
    }
    for (int32_t microbatch = 0; microbatch < 2; ++microbatch) {
      check([&](Ops& ops) {
        return first->forward(ops, microbatch, {tokens, {}, {}}, given(passed, activations));
      });
      check([&](Ops& ops) {
        return last->forward(ops, microbatch, {{}, targets, taken(passed, activations)}, {});
      });
      check([&](Ops& ops) {
        return last->backward(ops, microbatch, {}, given(passed_back, gradient));
      });
      check([&](Ops& ops) {
        return first->backward(ops, microbatch, taken(passed_back, gradient), {});
      });
    }
    result.losses.push_back(last->loss_sum());
    EXPECT_EQ(last->loss_tokens(), 2 * kRows * kSeqLen);
    for (StageModel* model : {first.get(), last.get()}) {
      if (as_replicas) {
        const plans::LayerRange layers =
            model == first.get() ? plans::LayerRange{0, cut} : plans::LayerRange{cut, end};
        check([&](Ops& ops) {
          return model->share_gradients(ops, {layers.begin + 1, layers.end});
        });
        check([&](Ops& ops) {
          return model->share_gradients(ops, {layers.begin, layers.begin + 1});
        });
        for (float& value : model->stage_gradients()) value *= 2;
        for (float& value : model->tied_gradients()) value *= 2;
      }
      double norm = -1;
      check([&](Ops& ops) { return model->gradient_norm_squared(ops, &norm); });
      result.norms.push_back(norm);
      check([&](Ops& ops) { return model->update(ops, {1e-2, 0.5, step}); });
    }
  }
  for (StageModel* model : {first.get(), last.get()}) {
    for (size_t i = 0; i < model->parameters().size(); ++i) {
      for (StateKind kind : {StateKind::kWeight, StateKind::kMomentFirst}) {
        result.state.emplace_back(plans::element_count(model->parameters()[i]), NAN);
        EXPECT_TRUE(model->read_state(i, kind, result.state.back()).ok());
      }
    }
  }
  return result;
}

void expect_near(const Trained& got, const Trained& wanted, double tolerance) {
  for (size_t i = 0; i < wanted.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], wanted.losses[i], tolerance * wanted.losses[i]);
  }
  // Those of both stages' first steps; then AdamW, which takes each gradient for its sign at first,
  // has made rounding larger: by up to 15 % of a norm with eight seeds.
  for (size_t i = 0; i < wanted.norms.size(); ++i) {
    const double factor = i < 2 ? 2 : 8;
    EXPECT_NEAR(got.norms[i], wanted.norms[i], factor * tolerance * wanted.norms[i]);
  }
  for (size_t i = 0; i < wanted.state.size(); ++i) {
    double difference = 0, size = 1e-6;
    for (size_t j = 0; j < wanted.state[i].size(); ++j) {
      difference += std::pow(double{got.state[i][j]} - double{wanted.state[i][j]}, 2);
      size += std::pow(double{wanted.state[i][j]}, 2);
    }
    EXPECT_LE(std::sqrt(difference / size), 10 * tolerance) << "state " << i;
  }
}

class CudaModel : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    CudaOptions options;
    options.precision = GetParam();
    absl::StatusOr<std::unique_ptr<Device>> device = load_cuda_device(options);
    if (!device.ok()) GTEST_SKIP() << device.status();
    cuda_ = *std::move(device);
  }
  double tolerance() const { return std::string(GetParam()) == "float32" ? 1e-4 : 3e-2; }

  std::unique_ptr<Device> cuda_;
};

TEST_P(CudaModel, TrainsAsTheHostDoes) {
  expect_near(train(*cuda_, false), train(*make_host_device(1), false), tolerance());
}

TEST_P(CudaModel, TrainsALlamaAsTheHostDoes) {
  expect_near(train(*cuda_, false, "llama"), train(*make_host_device(1), false, "llama"),
              tolerance());
}

TEST_P(CudaModel, TrainsWithHeadsThatShareKeysAsTheHostDoes) {
  expect_near(train(*cuda_, false, "grouped"), train(*make_host_device(1), false, "grouped"),
              tolerance());
}

TEST_P(CudaModel, TakesTheGradientsThatTheHostHasChanged) {
  expect_near(train(*cuda_, true), train(*make_host_device(1), true), tolerance());
}

TEST_P(CudaModel, GivesTheSameBitsTwice) {
  const Trained once = train(*cuda_, false), twice = train(*cuda_, false);
  EXPECT_EQ(once.losses, twice.losses);
  EXPECT_EQ(once.norms, twice.norms);
  EXPECT_EQ(once.state, twice.state);
}

/// Bfloat16 activations are what the device has: nothing is lost when they pass on as such.
TEST_P(CudaModel, GivesTheSameBitsWhereActivationsPassOnInTheTypeTheyHave) {
  const Trained by_host = train(*cuda_, false), by_device = train(*cuda_, false, "gpt2", true);
  EXPECT_EQ(by_device.losses, by_host.losses);
  EXPECT_EQ(by_device.norms, by_host.norms);
  EXPECT_EQ(by_device.state, by_host.state);
}

TEST_P(CudaModel, TakesAndReadsState) {
  auto model = StageModel::create(options_for({1, 3}), *cuda_).value();
  for (size_t i = 0; i < model->parameters().size(); ++i) {
    const auto count = static_cast<size_t>(plans::element_count(model->parameters()[i]));
    std::vector<float> values(count), back(count);
    for (size_t j = 0; j < count; ++j) values[j] = static_cast<float>(i * 1000 + j);
    ASSERT_TRUE(model->write_state(i, StateKind::kMomentSecond, values).ok());
    ASSERT_TRUE(model->read_state(i, StateKind::kMomentSecond, back).ok());
    EXPECT_EQ(back, values);
  }
}

/// A checkpoint has the masters. What products read of them is the same whether the optimizer has
/// written it or a load.
TEST_P(CudaModel, ComputesTheSameWithLoadedState) {
  const plans::LayerRange all{0, plans::layer_count(tiny_model("gpt2"))};
  const std::vector<int32_t> tokens = tokens_of(1), targets = tokens_of(2);
  for (const char* optimizer : {"adamw", "sgd"}) {
    StageModelOptions options = options_for(all);
    options.optimizer.name = optimizer;
    auto trained = StageModel::create(options, *cuda_).value();
    auto step = [&](StageModel& model) {
      double norm = 0;
      return run(*cuda_, [&](Ops& ops) {
        absl::Status status = model.start_step(ops, 1.0 / (kRows * kSeqLen));
        status.Update(model.forward(ops, 0, {tokens, targets, {}}, {}));
        status.Update(model.backward(ops, 0, {}, {}));
        status.Update(model.gradient_norm_squared(ops, &norm));
        status.Update(model.update(ops, {1e-2, 1.0, 0}));
        return status;
      });
    };
    auto loss_of = [&](StageModel& model) {
      model.reset_loss();
      EXPECT_TRUE(run(*cuda_, [&](Ops& ops) {
                    return model.evaluate(ops, {tokens, targets, {}}, {});
                  }).ok());
      return model.loss_sum();
    };
    const double before = loss_of(*trained);
    ASSERT_TRUE(step(*trained).ok());
    options.seed = 6;
    auto loaded = StageModel::create(options, *cuda_).value();
    const double other = loss_of(*loaded);
    for (size_t i = 0; i < trained->parameters().size(); ++i) {
      for (StateKind kind : kStateKinds) {
        std::vector<float> values(
            static_cast<size_t>(plans::element_count(trained->parameters()[i])));
        ASSERT_TRUE(trained->read_state(i, kind, values).ok());
        ASSERT_TRUE(loaded->write_state(i, kind, values).ok());
      }
    }
    const double after = loss_of(*trained);
    EXPECT_LT(after, before) << optimizer;
    EXPECT_NE(after, other);
    EXPECT_EQ(loss_of(*loaded), after) << optimizer;
    ASSERT_TRUE(step(*trained).ok() && step(*loaded).ok());
    EXPECT_EQ(loss_of(*loaded), loss_of(*trained)) << optimizer;
  }
}

TEST_P(CudaModel, MayOutliveItsDevice) {
  auto model = StageModel::create(options_for({1, 3}), *cuda_).value();
  cuda_.reset();
  model.reset();
}

TEST_P(CudaModel, CanBeSlowed) {
  auto slowed = make_slowed_device(std::move(cuda_), 0.5);
  expect_near(train(*slowed, true), train(*make_host_device(1), true), tolerance());
}

INSTANTIATE_TEST_SUITE_P(Precision, CudaModel, testing::Values("float32", "bfloat16"));

/// What only an emulated GPU can be made to do.
class EmulatedCuda : public testing::Test {
 protected:
  void SetUp() override {
    const char* plugin = std::getenv("SKEIN_CUDA_PLUGIN");
    void* library = plugin == nullptr ? nullptr : dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) {
      set_ = reinterpret_cast<Set*>(dlsym(library, "emulated_cuda_set"));
    }
    if (set_ == nullptr) GTEST_SKIP() << "needs the emulated GPU";
  }
  void TearDown() override {
    if (set_ == nullptr) return;
    const emulated::Settings ordinary;
    set_(emulated::Control::kMemoryBytes, ordinary.memory_bytes);
    set_(emulated::Control::kWaitsUntilLost, ordinary.waits_until_lost);
    set_(emulated::Control::kEpilogues, 1);
    set_(emulated::Control::kEvenStridesOnly, 0);
  }
  using Set = void(emulated::Control, int64_t);
  Set* set_ = nullptr;
};

TEST_F(EmulatedCuda, GivesTheSameWithoutFusedProducts) {
  const Trained fused = train(*load_cuda_device({}).value(), false);
  set_(emulated::Control::kEpilogues, 0);
  expect_near(train(*load_cuda_device({}).value(), false), fused, 3e-2);
}

TEST_F(EmulatedCuda, AnOddVocabularyNeedsNoProductOfAnOddStride) {
  ASSERT_NE(tiny_model("gpt2").vocab_size % 2, 0);
  for (const char* precision : {"bfloat16", "tf32"}) {
    CudaOptions options;
    options.precision = precision;
    const Trained any = train(*load_cuda_device(options).value(), false);
    set_(emulated::Control::kEvenStridesOnly, 1);
    const Trained even = train(*load_cuda_device(options).value(), false);
    EXPECT_EQ(even.losses, any.losses) << precision;
    set_(emulated::Control::kEvenStridesOnly, 0);
  }
}

TEST_F(EmulatedCuda, AStageThatDoesNotFitIsAnErrorWithSizes) {
  auto device = load_cuda_device({}).value();
  set_(emulated::Control::kMemoryBytes, 40 << 20);
  StageModelOptions options = options_for({0, 4});
  options.model.channels = 512;
  const absl::Status status = StageModel::create(options, *device).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(std::string(status.message()).find("bytes for the stage of layers 0..4"),
            std::string::npos)
      << status;
}

TEST_F(EmulatedCuda, ALostDeviceFailsThisWorkAndAllThatFollows) {
  auto device = load_cuda_device({}).value();
  set_(emulated::Control::kWaitsUntilLost, 1);
  auto nothing = [](Ops&) { return absl::OkStatus(); };
  EXPECT_TRUE(run(*device, nothing).ok());
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = run(*device, nothing);
    EXPECT_TRUE(absl::IsInternal(status)) << status << " is what ends a worker";
    EXPECT_NE(std::string(status.message()).find("the CUDA device is lost"), std::string::npos);
  }
  EXPECT_FALSE(device->allocate(100).ok());
}

}  // namespace
}  // namespace skein::gpu
