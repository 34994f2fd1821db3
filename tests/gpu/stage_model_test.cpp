#include "gpu/model/stage_model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "plans/base/rng.hpp"

namespace skein::gpu {
namespace {

constexpr int64_t kSeqLen = 7;
constexpr int32_t kVocabulary = 11;

plans::ModelSpec tiny_model(bool tied) {
  plans::ModelSpec model;
  model.vocab_size = kVocabulary;
  model.positions = 9;
  model.layers = 3;
  model.heads = 2;
  model.channels = 12;
  model.tied_head = tied;
  model.init_std = 0.3;  // Large, so that every part of the model matters.
  return model;
}

plans::ModelSpec tiny_llama(bool tied) {
  plans::ModelSpec model = tiny_model(tied);
  model.name = "llama";
  plans::apply_family(model);
  model.intermediate_size = 10;
  model.rope_theta = 50;
  return model;
}

/// Heads of a size of their own of which two share keys, and long waves that are scaled.
plans::ModelSpec tiny_grouped_llama() {
  plans::ModelSpec model = tiny_llama(false);
  model.heads = 4;
  model.kv_heads = 2;
  model.head_size = 4;
  model.rope_type = "llama3";
  model.rope_factor = 3;
  model.rope_high_freq_factor = 2;
  model.rope_original_positions = 20;
  return model;
}

/// Both families with tied and untied heads, each choice of Llama's by itself, biases where the
/// family has none, and heads that share keys.
std::vector<plans::ModelSpec> all_models() {
  std::vector<plans::ModelSpec> models = {tiny_model(true), tiny_model(false), tiny_llama(true),
                                          tiny_llama(false)};
  for (int choice = 0; choice < 4; ++choice) {
    plans::ModelSpec model = tiny_model(choice % 2 == 0);
    if (choice == 0) model.norm = "rms_norm";
    if (choice == 1) model.mlp = "swiglu";
    if (choice == 2) model.position_embedding_type = "rotary";
    if (choice == 3) model.has_bias = false;
    models.push_back(model);
  }
  models.push_back(tiny_llama(true));
  models.back().has_bias = true;
  models.push_back(tiny_grouped_llama());
  models.push_back(tiny_llama(true));
  models.back().has_qkv_bias = true;
  models.back().kv_heads = 1;
  models.push_back(tiny_model(true));
  models.back().kv_heads = 1;
  models.back().head_size = 5;
  return models;
}

std::string describe(const plans::ModelSpec& model) {
  return model.norm + " " + model.mlp + " " + model.position_embedding_type +
         (model.has_bias ? " biases" : "") + (model.has_qkv_bias ? " biases of q k v" : "") +
         (model.kv_heads > 0 ? " shared keys" : "") + (model.tied_head ? " tied" : "");
}

StageModelOptions options_for(plans::LayerRange layers, int64_t rows,
                              const plans::ModelSpec& model) {
  StageModelOptions options;
  options.model = model;
  options.layers = layers;
  options.rows = rows;
  options.seq_len = kSeqLen;
  options.stash_count = 2;
  options.seed = 5;
  return options;
}

std::vector<int32_t> random_tokens(int64_t count, uint64_t stream) {
  plans::Rng rng(9, stream);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>(rng.below(kVocabulary));
  return tokens;
}

/// A pipeline of stages on one device, run one after the other.
class Pipeline {
 public:
  Pipeline(std::vector<plans::LayerRange> cuts, int64_t rows, const plans::ModelSpec& model,
           bool recompute = false, int32_t threads = 1)
      : rows_(rows), device_(make_host_device(threads)) {
    for (const plans::LayerRange& layers : cuts) {
      StageModelOptions options = options_for(layers, rows, model);
      options.recompute = recompute;
      stages_.push_back(StageModel::create(options, *device_).value());
    }
  }

  enum class Backward { kWhole, kSplit };

  /// One step over `tokens` [rows, T] and `targets`; returns the loss sum.
  double step(const std::vector<int32_t>& tokens, const std::vector<int32_t>& targets,
              Backward kind = Backward::kWhole) {
    const auto elements = static_cast<size_t>(stages_[0]->activation_elements());
    const size_t count = stages_.size();
    // Poisoned: what is not overwritten shows.
    std::vector<std::vector<float>> activations(count, std::vector<float>(elements, NAN));
    std::vector<std::vector<float>> gradients(count, std::vector<float>(elements, NAN));
    run([&](Ops& ops) {
      for (size_t s = 0; s < count; ++s) {
        check(stages_[s]->start_step(ops, 1.0 / static_cast<double>(tokens.size())));
        StageModel::Input input;
        if (stages_[s]->has_embedding()) input.tokens = tokens;
        if (stages_[s]->has_head()) input.targets = targets;
        if (s > 0) input.activations = activations[s - 1];
        check(stages_[s]->forward(ops, 0, input, s + 1 < count ? activations[s] : none_));
      }
      for (size_t s = count; s-- > 0;) {
        const std::span<const float> in = s + 1 < count ? gradients[s] : none_;
        const std::span<float> out = s > 0 ? gradients[s - 1] : none_;
        if (kind == Backward::kWhole) {
          check(stages_[s]->backward(ops, 0, in, out));
        } else {
          check(stages_[s]->backward_input(ops, 0, in, out));
        }
      }
      for (size_t s = 0; s < count && kind == Backward::kSplit; ++s) {
        check(stages_[s]->backward_weight(ops, 0));
      }
    });
    return stages_.back()->loss_sum();
  }

  /// All gradients by name, the two uses of a tied embedding added up.
  std::map<std::string, std::vector<float>> gradients() {
    std::map<std::string, std::vector<float>> all;
    for (auto& stage : stages_) {
      const bool tied_first = stage->has_embedding() && !stage->tied_gradients().empty();
      std::vector<float> flat;
      auto append = [&](std::span<float> part) {
        flat.insert(flat.end(), part.begin(), part.end());
      };
      if (tied_first) append(stage->tied_gradients());
      append(stage->stage_gradients());
      if (!tied_first) append(stage->tied_gradients());
      size_t next = 0;
      for (const auto& spec : stage->parameters()) {
        std::vector<float>& sum = all[spec.name];
        const auto size = static_cast<size_t>(plans::element_count(spec));
        sum.resize(size, 0.0F);
        for (size_t i = 0; i < size; ++i) sum[i] += flat[next + i];
        next += size;
      }
    }
    return all;
  }

  StageModel& stage(size_t s) { return *stages_[s]; }
  void run(const std::function<void(Ops&)>& work) {
    const absl::Status status = device_->run({WorkKind::kOther, [&](Ops& ops) {
                                                work(ops);
                                                return absl::OkStatus();
                                              }});
    ASSERT_TRUE(status.ok()) << status;
  }

 private:
  static void check(const absl::Status& status) { ASSERT_TRUE(status.ok()) << status; }

  int64_t rows_;
  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<StageModel>> stages_;
  std::span<float> none_;
};

void expect_near(const std::map<std::string, std::vector<float>>& a,
                 const std::map<std::string, std::vector<float>>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, values] : a) {
    double distance = 0, norm = 1e-12;
    for (size_t i = 0; i < values.size(); ++i) {
      const double other = b.at(name)[i];
      distance += (values[i] - other) * (values[i] - other);
      norm += other * other;
    }
    EXPECT_LE(std::sqrt(distance / norm), tolerance) << name;
  }
}

const std::vector<int32_t> kTokens = random_tokens(3 * kSeqLen, 1);
const std::vector<int32_t> kTargets = random_tokens(3 * kSeqLen, 2);

TEST(StageModel, GradientsAreThoseOfFiniteDifferences) {
  for (const plans::ModelSpec& model : all_models()) {
    Pipeline whole({{0, 5}}, 3, model);
    whole.step(kTokens, kTargets);
    const auto gradients = whole.gradients();
    const auto& specs = whole.stage(0).parameters();
    const double scale = 1.0 / static_cast<double>(kTokens.size());
    plans::Rng rng(4);
    for (size_t p = 0; p < specs.size(); ++p) {
      const auto size = static_cast<size_t>(plans::element_count(specs[p]));
      std::vector<float> weights(size);
      ASSERT_TRUE(whole.stage(0).read_state(p, StateKind::kWeight, weights).ok());
      for (int probe = 0; probe < 4; ++probe) {
        const size_t i = rng.below(size);
        constexpr float kStep = 1e-2F;
        auto loss_at = [&](float offset) {
          std::vector<float> moved = weights;
          moved[i] += offset;
          EXPECT_TRUE(whole.stage(0).write_state(p, StateKind::kWeight, moved).ok());
          return whole.step(kTokens, kTargets) * scale;
        };
        // Five points: the error is of the fourth order, so a step beyond float32's noise will do.
        const double slope =
            (8 * (loss_at(kStep) - loss_at(-kStep)) - (loss_at(2 * kStep) - loss_at(-2 * kStep))) /
            (12 * kStep);
        EXPECT_NEAR(gradients.at(specs[p].name)[i], slope, 2e-4 + 0.01 * std::abs(slope))
            << describe(model) << ": " << specs[p].name << " " << i;
      }
      ASSERT_TRUE(whole.stage(0).write_state(p, StateKind::kWeight, weights).ok());
    }
  }
}

TEST(StageModel, AnyCutGivesTheSameBits) {
  for (const plans::ModelSpec& model : all_models()) {
    const std::string embedding = plans::layer_parameters(model, 0, {0, 1})[0].name;
    Pipeline whole({{0, 5}}, 3, model);
    const double loss = whole.step(kTokens, kTargets);
    for (int64_t cut = 1; cut < 5; ++cut) {
      Pipeline two({{0, cut}, {cut, 5}}, 3, model);
      EXPECT_EQ(two.step(kTokens, kTargets), loss);
      // The two uses of a tied embedding are added in another order.
      auto ours = two.gradients(), theirs = whole.gradients();
      expect_near(ours, theirs, 1e-6);
      ours.erase(embedding);
      theirs.erase(embedding);
      EXPECT_EQ(ours, theirs) << describe(model) << " cut at " << cut;
    }
  }
}

TEST(StageModel, SplitAndRecomputedBackwardsEqualTheWhole) {
  for (const plans::ModelSpec& model : all_models()) {
    Pipeline whole({{0, 2}, {2, 5}}, 3, model);
    whole.step(kTokens, kTargets);
    Pipeline split({{0, 2}, {2, 5}}, 3, model);
    split.step(kTokens, kTargets, Pipeline::Backward::kSplit);
    EXPECT_EQ(split.gradients(), whole.gradients()) << describe(model);
    Pipeline recomputed({{0, 2}, {2, 5}}, 3, model, true);
    recomputed.step(kTokens, kTargets);
    EXPECT_EQ(recomputed.gradients(), whole.gradients()) << describe(model);
    Pipeline both({{0, 2}, {2, 5}}, 3, model, true);
    both.step(kTokens, kTargets, Pipeline::Backward::kSplit);
    EXPECT_EQ(both.gradients(), whole.gradients()) << describe(model);
  }
}

/// A step of one micro-batch whose backward is run in parts of `layers` layers each.
std::map<std::string, std::vector<float>> gradients_in_parts(const plans::ModelSpec& spec,
                                                             bool recompute, bool split,
                                                             int64_t layers) {
  Pipeline model({{0, 5}}, 3, spec, recompute);
  StageModel& stage = model.stage(0);
  model.run([&](Ops& ops) {
    EXPECT_TRUE(stage.start_step(ops, 1.0 / static_cast<double>(kTokens.size())).ok());
    EXPECT_TRUE(stage.forward(ops, 0, {kTokens, kTargets, {}}, {}).ok());
    EXPECT_TRUE(!split || stage.backward_input(ops, 0, {}, {}).ok());
  });
  for (int64_t end = 5; end > 0; end -= layers) {
    const plans::LayerRange part{std::max<int64_t>(0, end - layers), end};
    model.run([&](Ops& ops) {
      EXPECT_TRUE((split ? stage.backward_weight_part(ops, 0, part)
                         : stage.backward_part(ops, 0, part, {}, {}))
                      .ok());
    });
  }
  return model.gradients();
}

TEST(StageModel, ABackwardInPartsGivesTheSameBits) {
  for (const plans::ModelSpec& model : all_models()) {
    Pipeline whole({{0, 5}}, 3, model);
    whole.step(kTokens, kTargets);
    const auto expected = whole.gradients();
    for (bool recompute : {false, true}) {
      for (bool split : {false, true}) {
        for (int64_t layers = 1; layers <= 5; ++layers) {
          EXPECT_EQ(gradients_in_parts(model, recompute, split, layers), expected)
              << describe(model) << " " << layers << (split ? " split" : "")
              << (recompute ? " recomputed" : "");
        }
      }
    }
  }
}

/// The gradients of layers before the part are still to come; those behind it stay as they are.
TEST(StageModel, APartCompletesTheGradientsOfItsLayers) {
  for (bool split : {false, true}) {
    Pipeline model({{0, 5}}, 3, tiny_model(false));
    StageModel& stage = model.stage(0);
    model.run([&](Ops& ops) {
      EXPECT_TRUE(stage.start_step(ops, 1).ok());
      EXPECT_TRUE(stage.forward(ops, 0, {kTokens, kTargets, {}}, {}).ok());
      EXPECT_TRUE(!split || stage.backward_input(ops, 0, {}, {}).ok());
    });
    const plans::ModelSpec spec = tiny_model(false);
    size_t complete = stage.stage_gradients().size();
    for (int64_t layer = 4; layer >= 0; --layer) {
      model.run([&](Ops& ops) {
        const plans::LayerRange part{layer, layer + 1};
        EXPECT_TRUE((split ? stage.backward_weight_part(ops, 0, part)
                           : stage.backward_part(ops, 0, part, {}, {}))
                        .ok());
        for (float value : stage.stage_gradients().subspan(complete)) EXPECT_EQ(value, 7);
      });
      for (const auto& parameter : plans::layer_parameters(spec, layer, {0, 5})) {
        complete -= static_cast<size_t>(plans::element_count(parameter));
      }
      for (float& value : stage.stage_gradients().subspan(complete)) value = 7;
    }
    EXPECT_EQ(complete, 0u);
  }
}

TEST(StageModel, ThreadsAgree) {
  Pipeline one({{0, 5}}, 3, tiny_model(true)), two({{0, 5}}, 3, tiny_model(true), false, 2);
  EXPECT_NEAR(one.step(kTokens, kTargets), two.step(kTokens, kTargets), 1e-4);
  expect_near(two.gradients(), one.gradients(), 1e-5);
}

TEST(StageModel, GradientsOfRowsAddUp) {
  Pipeline whole({{0, 5}}, 3, tiny_model(true));
  whole.step(kTokens, kTargets);
  std::map<std::string, std::vector<float>> sum;
  for (int64_t row = 0; row < 3; ++row) {
    Pipeline part({{0, 5}}, 1, tiny_model(true));
    auto slice = [&](const std::vector<int32_t>& all) {
      return std::vector<int32_t>(all.begin() + row * kSeqLen, all.begin() + (row + 1) * kSeqLen);
    };
    part.step(slice(kTokens), slice(kTargets));
    for (auto& [name, values] : part.gradients()) {
      sum[name].resize(values.size(), 0.0F);
      for (size_t i = 0; i < values.size(); ++i) sum[name][i] += values[i] / 3;
    }
  }
  expect_near(sum, whole.gradients(), 1e-5);
}

TEST(StageModel, TargetsOfMinusOneDoNotCount) {
  Pipeline model({{0, 5}}, 3, tiny_model(true));
  const double all = model.step(kTokens, kTargets);
  std::vector<int32_t> half = kTargets;
  for (size_t i = 0; i < half.size(); i += 2) half[i] = -1;
  EXPECT_LT(model.step(kTokens, half), all);
  EXPECT_EQ(model.stage(0).loss_tokens(), 10);
}

TEST(StageModel, EvaluationGivesTheLossOfTheForward) {
  Pipeline model({{0, 5}}, 3, tiny_model(true));
  const double loss = model.step(kTokens, kTargets);
  const auto gradients = model.gradients();
  model.stage(0).reset_loss();
  model.run([&](Ops& ops) {
    EXPECT_TRUE(model.stage(0).evaluate(ops, {kTokens, kTargets, {}}, {}).ok());
  });
  EXPECT_EQ(model.stage(0).loss_sum(), loss);
  EXPECT_EQ(model.gradients(), gradients) << "an evaluation touched gradients";
}

TEST(StageModel, AnUpdateLowersTheLoss) {
  for (const plans::ModelSpec& spec : all_models()) {
    Pipeline model({{0, 5}}, 3, spec);
    const double before = model.step(kTokens, kTargets);
    for (int64_t t = 0; t < 20; ++t) {
      model.run([&](Ops& ops) { EXPECT_TRUE(model.stage(0).update(ops, {1e-2, 1.0, t}).ok()); });
      model.step(kTokens, kTargets);
    }
    EXPECT_LT(model.stage(0).loss_sum(), 0.7 * before) << describe(spec);
  }
}

/// A stage in the middle, and gradients of micro-batches that pass it.
struct MiddleStage {
  explicit MiddleStage(bool recompute, int32_t old_versions) : device(make_host_device(1)) {
    StageModelOptions options = options_for({1, 4}, 3, tiny_model(false));
    options.stash_count = 3;
    options.old_versions = old_versions;
    options.recompute = recompute;
    model = StageModel::create(options, *device).value();
    for (int m = 0; m < 3; ++m) {
      plans::Rng rng(3, static_cast<uint64_t>(m));
      for (auto* values : {&inputs[m], &outputs[m]}) {
        values->resize(static_cast<size_t>(model->activation_elements()));
        for (float& each : *values) each = static_cast<float>(rng.uniform() - 0.5);
      }
    }
  }
  absl::Status run(const std::function<absl::Status(Ops&)>& work) {
    return device->run({WorkKind::kOther, work});
  }
  absl::Status forward(int m) {
    std::vector<float> out(inputs[m].size());
    return run([&](Ops& ops) {
      StageModel::Input input;
      input.activations = inputs[m];
      return model->forward(ops, m, input, out);
    });
  }
  /// The stage's gradient, of this micro-batch only.
  std::vector<float> backward(int m) {
    std::vector<float> in(inputs[m].size());
    EXPECT_TRUE(run([&](Ops& ops) { return model->start_gradients(ops); }).ok());
    EXPECT_TRUE(run([&](Ops& ops) { return model->backward(ops, m, outputs[m], in); }).ok());
    std::vector<float> all(model->stage_gradients().begin(), model->stage_gradients().end());
    all.insert(all.end(), in.begin(), in.end());
    return all;
  }
  absl::Status update() {
    return run([&](Ops& ops) { return model->update(ops, {.lr = 0.1, .step = 0}); });
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<StageModel> model;
  std::vector<float> inputs[3], outputs[3];
};

TEST(StageModel, ABackwardHasTheWeightsOfItsForwardWhateverWasUpdatedMeanwhile) {
  for (bool recompute : {false, true}) {
    MiddleStage stage(recompute, 2);
    std::vector<std::vector<float>> alone;  // Gradients with nothing in flight.
    {
      MiddleStage other(recompute, 0);
      ASSERT_TRUE(other.run([&](Ops& ops) { return other.model->start_step(ops, 1); }).ok());
      for (int m = 0; m < 3; ++m) {
        ASSERT_TRUE(other.forward(m).ok());
        alone.push_back(other.backward(m));
        const auto gradients = other.model->stage_gradients();
        std::fill(gradients.begin(), gradients.end(), 0.1F * static_cast<float>(m + 1));
        ASSERT_TRUE(other.update().ok());
      }
    }
    ASSERT_TRUE(stage.run([&](Ops& ops) { return stage.model->start_step(ops, 1); }).ok());
    for (int m = 0; m < 3; ++m) {
      ASSERT_TRUE(stage.forward(m).ok());
      if (m == 2) break;
      const auto gradients = stage.model->stage_gradients();
      std::fill(gradients.begin(), gradients.end(), 0.1F * static_cast<float>(m + 1));
      ASSERT_TRUE(stage.update().ok());
    }
    EXPECT_FALSE(stage.update().ok()) << "three versions are in use beside the newest";
    for (int m : {1, 0, 2}) EXPECT_EQ(stage.backward(m), alone[static_cast<size_t>(m)]) << m;
    EXPECT_TRUE(stage.update().ok());
  }
}

TEST(StageModel, RefusesWhatDoesNotFit) {
  auto device = make_host_device(1);
  auto refused = [&](auto change) {
    StageModelOptions options = options_for({0, 5}, 3, tiny_model(true));
    change(options);
    return !StageModel::create(options, *device).ok();
  };
  EXPECT_TRUE(refused([](StageModelOptions& o) { o.rows = 0; }));
  EXPECT_TRUE(refused([](StageModelOptions& o) { o.seq_len = 10; }));
  EXPECT_TRUE(refused([](StageModelOptions& o) { o.layers = {0, 6}; }));
  EXPECT_TRUE(refused([](StageModelOptions& o) { o.layers = {2, 2}; }));
  EXPECT_TRUE(refused([](StageModelOptions& o) { o.stash_count = 0; }));
  Pipeline model({{0, 5}}, 3, tiny_model(true));
  model.run([&](Ops& ops) {
    StageModel& stage = model.stage(0);
    EXPECT_FALSE(stage.backward(ops, 3, {}, {}).ok()) << "a backward without its forward";
    for (const plans::LayerRange& part : {plans::LayerRange{0, 6}, {-1, 2}, {2, 2}}) {
      EXPECT_FALSE(stage.backward_part(ops, 0, part, {}, {}).ok());
      EXPECT_FALSE(stage.backward_weight_part(ops, 0, part).ok());
    }
    EXPECT_FALSE(stage.forward(ops, 0, {}, {}).ok()) << "no tokens";
    EXPECT_TRUE(stage.start_step(ops, 1).ok());
    EXPECT_TRUE(stage.forward(ops, 0, {kTokens, kTargets, {}}, {}).ok());
    EXPECT_TRUE(stage.forward(ops, 1, {kTokens, kTargets, {}}, {}).ok());
    EXPECT_FALSE(stage.forward(ops, 2, {kTokens, kTargets, {}}, {}).ok()) << "two stashes only";
  });
}

/// A host device that says that its memory is out of the host's sight, and counts what is asked of
/// it that is not.
class FarDevice final : public Device {
 public:
  FarDevice() : inner_(make_host_device(1)), info_(inner_->info()) { info_.is_host_memory = false; }
  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<Buffer> allocate(int64_t bytes) override { return inner_->allocate(bytes); }
  absl::StatusOr<Buffer> allocate_host_visible(int64_t bytes) override {
    visible_bytes += bytes;
    return inner_->allocate_host_visible(bytes);
  }
  absl::Status run(Work work) override { return inner_->run(std::move(work)); }

  int64_t visible_bytes = 0;

 private:
  std::unique_ptr<Device> inner_;
  DeviceInfo info_;
};

TEST(StageModel, TakesPinnedMemoryForGradientsOnlyIfTheHostWantsThem) {
  FarDevice device;
  StageModelOptions options;
  options.model = tiny_model(true);
  options.layers = {0, plans::layer_count(options.model)};
  options.rows = 2;
  options.seq_len = kSeqLen;
  const auto model = StageModel::create(options, device).value();
  const std::vector<int32_t> tokens(2 * kSeqLen, 3);
  double norm = 0;
  const auto step = [&](bool shares) {
    return device.run({WorkKind::kOther, [&](Ops& ops) {
                         absl::Status status = model->start_step(ops, 1);
                         status.Update(model->forward(ops, 0, {tokens, tokens, {}}, {}));
                         status.Update(model->backward(ops, 0, {}, {}));
                         if (shares) status.Update(model->share_gradients(ops, options.layers));
                         status.Update(model->gradient_norm_squared(ops, &norm));
                         return status;
                       }});
  };
  ASSERT_TRUE(step(false).ok());
  EXPECT_EQ(device.visible_bytes, 0);
  ASSERT_TRUE(step(true).ok());
  const std::span<float> shown = model->stage_gradients();
  EXPECT_EQ(device.visible_bytes, static_cast<int64_t>(shown.size_bytes()));
  double squares = 0;
  for (float value : shown) squares += double{value} * double{value};
  EXPECT_NEAR(squares, norm, 1e-6 * norm);
}

/// Both stages of a model whose embedding is tied, on one device, as a worker has them that pulls
/// micro-batches of one row.
struct PullingWorker {
  static constexpr int kRows = 6;

  PullingWorker(Device& on, int64_t summands) : device(on) {
    for (const plans::LayerRange& layers : {plans::LayerRange{0, 3}, plans::LayerRange{3, 5}}) {
      StageModelOptions options = options_for(layers, 1, tiny_model(true));
      options.exact_summands = summands;
      stages.push_back(StageModel::create(options, device).value());
    }
  }
  void run(const std::function<absl::Status(Ops&)>& work) {
    const absl::Status status = device.run({WorkKind::kOther, work});
    EXPECT_TRUE(status.ok()) << status;
  }
  StageModel& first() { return *stages[0]; }
  StageModel& last() { return *stages[1]; }

  void begin() {
    run([&](Ops& ops) {
      absl::Status status = first().start_step(ops, 1.0 / (kRows * kSeqLen));
      status.Update(last().start_step(ops, 1.0 / (kRows * kSeqLen)));
      return status;
    });
  }
  void compute(int row) {
    const std::vector<int32_t> tokens = random_tokens(kSeqLen, static_cast<uint64_t>(row));
    const std::vector<int32_t> targets = random_tokens(kSeqLen, static_cast<uint64_t>(row) + 90);
    std::vector<float> between(static_cast<size_t>(first().activation_elements()));
    std::vector<float> back(between.size());
    run([&](Ops& ops) { return first().forward(ops, row, {tokens, {}, {}}, between); });
    run([&](Ops& ops) { return last().forward(ops, row, {{}, targets, between}, {}); });
    run([&](Ops& ops) { return last().backward(ops, row, {}, back); });
    run([&](Ops& ops) { return first().backward(ops, row, back, {}); });
  }
  void share() {
    run([&](Ops& ops) {
      first().add_tied_gradient(ops, last());
      absl::Status status = first().share_gradients(ops, {0, 3});
      status.Update(last().share_gradients(ops, {3, 5}, {true, false}));
      return status;
    });
  }
  std::vector<std::span<float>> shared() {
    return {first().stage_gradients(), first().tied_gradients(), last().stage_gradients()};
  }
  /// The sum of both norms, and then the weights.
  std::vector<double> update(bool last_is_late) {
    double norms[2] = {};
    run([&](Ops& ops) {
      absl::Status status;
      if (!last_is_late) status.Update(last().gradient_norm_squared(ops, &norms[1]));
      status.Update(first().gradient_norm_squared(ops, &norms[0]));
      first().give_tied_gradient(ops, last());
      if (last_is_late) status.Update(last().gradient_norm_squared(ops, &norms[1]));
      for (auto& stage : stages) status.Update(stage->update(ops, {.lr = 0.1, .step = 0}));
      return status;
    });
    std::vector<double> result = {norms[0] + norms[1]};
    for (auto& stage : stages) {
      for (size_t i = 0; i < stage->parameters().size(); ++i) {
        std::vector<float> weights(
            static_cast<size_t>(plans::element_count(stage->parameters()[i])));
        EXPECT_TRUE(stage->read_state(i, StateKind::kWeight, weights).ok());
        result.insert(result.end(), weights.begin(), weights.end());
      }
    }
    return result;
  }
  /// Alone.
  std::vector<double> step() {
    begin();
    for (int row = 0; row < kRows; ++row) compute(row);
    share();
    return update(false);
  }

  Device& device;
  std::vector<std::unique_ptr<StageModel>> stages;
};

/// What the host does for groups of float64.
void add_up(PullingWorker& a, PullingWorker& b) {
  for (size_t i = 0; i < a.shared().size(); ++i) {
    const std::span<float> one = a.shared()[i];
    const std::span<float> other = b.shared()[i];
    auto* sums = reinterpret_cast<double*>(one.data());
    const auto* more = reinterpret_cast<const double*>(other.data());
    for (size_t n = 0; n < one.size() / 2; ++n) sums[n] += more[n];
    std::copy(one.begin(), one.end(), other.begin());
  }
}

TEST(StageModel, ExactSumsHaveTheSameBitsWhoeverComputesWhatAndWhen) {
  const auto host = make_host_device(1);
  FarDevice far;
  const std::vector<double> alone = PullingWorker(*host, PullingWorker::kRows).step();
  const std::vector<double> rounded = PullingWorker(*host, 0).step();
  ASSERT_EQ(alone.size(), rounded.size());
  EXPECT_NEAR(alone.front(), rounded.front(), 1e-5 * rounded.front()) << "the norm";
  EXPECT_NE(alone, rounded) << "then floats would do";
  plans::Rng rng(2, 4);
  for (Device* device : {static_cast<Device*>(host.get()), static_cast<Device*>(&far)}) {
    for (int attempt = 0; attempt < 4; ++attempt) {
      PullingWorker one(*device, PullingWorker::kRows);
      PullingWorker other(*device, PullingWorker::kRows);
      one.begin();
      one.compute(3);  // By a step that is given up.
      one.begin();
      other.begin();
      std::vector<int> rows = {0, 1, 2, 3, 4, 5};
      for (size_t i = rows.size(); i-- > 1;) std::swap(rows[i], rows[rng.below(i + 1)]);
      for (int row : rows) (rng.below(2) == 0 ? one : other).compute(row);
      one.share();
      other.share();
      add_up(one, other);
      EXPECT_EQ(one.update(attempt % 2 == 0), alone);
      EXPECT_EQ(other.update(attempt % 2 != 0), alone);
    }
  }
}

/// A head has a part of its gradients in the forward; two such parts would be rounded together.
TEST(StageModel, ExactSumsRefuseWhatWouldAddUpFloats) {
  const auto device = make_host_device(1);
  PullingWorker worker(*device, PullingWorker::kRows);
  worker.begin();
  const std::vector<int32_t> tokens(kSeqLen, 3);
  std::vector<float> between(static_cast<size_t>(worker.first().activation_elements()));
  worker.run([&](Ops& ops) {
    for (int row : {0, 1}) {
      EXPECT_TRUE(worker.first().forward(ops, row, {tokens, {}, {}}, between).ok());
    }
    EXPECT_TRUE(worker.last().forward(ops, 0, {{}, tokens, between}, {}).ok());
    EXPECT_FALSE(worker.last().forward(ops, 1, {{}, tokens, between}, {}).ok());
    EXPECT_FALSE(worker.last().backward_input(ops, 0, {}, between).ok()) << "half a backward";
    return absl::OkStatus();
  });
}

TEST(StageModel, ExactSumsThatAGradientIsTooLargeForHaveNoNorm) {
  const auto device = make_host_device(1);
  PullingWorker worker(*device, int64_t{1} << 40);
  EXPECT_TRUE(std::isnan(worker.step().front()));
}

}  // namespace
}  // namespace skein::gpu
