// Models of transformers, as it computes them: weights that both sides make by the same formula,
// and what came out there, from tests/gpu/transformers.json. tests/oracle/transformers_models.py
// makes that file, and checks the rest against the library itself.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "gpu/checkpoint/model_config.hpp"
#include "gpu/checkpoint/safetensors.hpp"
#include "gpu/checkpoint/trainer_state.hpp"
#include "gpu/checkpoint/weights_folder.hpp"
#include "gpu/device.hpp"
#include "gpu/model/decoder.hpp"
#include "gpu/model/stage_model.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::gpu {
namespace {

constexpr double kTolerance = 1e-4;
constexpr int64_t kRows = 2;
constexpr int64_t kSeqLen = 40;

/// The top 24 bits of a hash of `name` and `index`: FNV-1a, then splitmix64's finish.
uint64_t hash_of(const std::string& name, uint64_t index) {
  uint64_t hash = 14695981039346656037U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  hash ^= (index + 1) * 0x9E3779B97F4A7C15U;
  hash = (hash ^ (hash >> 30U)) * 0xBF58476D1CE4E5B9U;
  hash = (hash ^ (hash >> 27U)) * 0x94D049BB133111EBU;
  return (hash ^ (hash >> 31U)) >> 40U;
}

/// Within a quarter of 0, norms' weights of 1.
std::vector<float> weights_of(const plans::ParameterSpec& spec) {
  const bool is_norm = spec.shape.size() == 1 && spec.name.ends_with(".weight");
  std::vector<float> values(static_cast<size_t>(plans::element_count(spec)));
  for (size_t i = 0; i < values.size(); ++i) {
    const double unit = static_cast<double>(hash_of(spec.name, i)) / (1 << 23) - 1;
    values[i] = static_cast<float>((is_norm ? 1 : 0) + unit / 4);
  }
  return values;
}

/// Token `position` of each row, one more than a row computes: the targets are one further.
int32_t token_of(int64_t row, int64_t position, int64_t vocab_size) {
  const auto index = static_cast<uint64_t>(row * (kSeqLen + 1) + position);
  return static_cast<int32_t>(hash_of("tokens", index) % static_cast<uint64_t>(vocab_size));
}

nlohmann::json reference() {
  std::ifstream file("tests/gpu/transformers.json");  // Tests run in the source folder.
  return nlohmann::json::parse(file);
}

struct Case {
  explicit Case(const nlohmann::json& json)
      : wanted(json),
        name(json["name"]),
        model(from_config(json["config"], name + "/config.json").value()),
        parameters(plans::range_parameters(model, {0, plans::layer_count(model)})) {}

  nlohmann::json wanted;
  std::string name;
  plans::ModelSpec model;
  std::vector<plans::ParameterSpec> parameters;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const nlohmann::json json = reference();
  for (const nlohmann::json& each : json["cases"]) all.emplace_back(each);
  return all;
}

/// The whole model with the formula's weights, and what it is given.
class Computed {
 public:
  explicit Computed(const Case& each) : case_(each), device_(make_host_device(2)) {
    StageModelOptions options;
    options.model = each.model;
    options.layers = {0, plans::layer_count(each.model)};
    options.rows = kRows;
    options.seq_len = kSeqLen;
    model_ = StageModel::create(options, *device_).value();
    for (size_t i = 0; i < each.parameters.size(); ++i) {
      EXPECT_TRUE(model_->write_state(i, StateKind::kWeight, weights_of(each.parameters[i])).ok());
    }
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t t = 0; t < kSeqLen; ++t) {
        tokens_.push_back(token_of(row, t, each.model.vocab_size));
        targets_.push_back(token_of(row, t + 1, each.model.vocab_size));
      }
    }
    input_.tokens = tokens_;
    input_.targets = targets_;
  }

  /// Behind a position of the first row, as text is drawn: the beginning at once, the last token
  /// with what is kept of the others.
  std::vector<float> logits(int64_t position) {
    auto decoder = Decoder::create(
        {case_.model, {0, plans::layer_count(case_.model)}, kSeqLen},
        [&](const std::string& name, std::span<float> out) { return read(name, out); }, *device_);
    EXPECT_TRUE(decoder.ok()) << decoder.status();
    std::vector<float> values(static_cast<size_t>(case_.model.vocab_size));
    const std::span<const int32_t> row = std::span(tokens_).first(kSeqLen);
    const auto last = static_cast<size_t>(position);
    for (const auto& part : {row.first(last), row.subspan(last, 1)}) {
      if (part.empty()) continue;
      const absl::Status status =
          device_->run({WorkKind::kOther, [&](Ops& ops) {
                          return (*decoder)->extend(ops, {part, {}}, values);
                        }});
      EXPECT_TRUE(status.ok()) << status;
    }
    return values;
  }

  /// The mean loss; the gradients are there afterwards.
  double step() {
    const double scale = 1.0 / static_cast<double>(kRows * kSeqLen);
    for (const auto& call : std::vector<std::function<absl::Status(Ops&)>>{
             [&](Ops& ops) { return model_->start_step(ops, scale); },
             [&](Ops& ops) { return model_->forward(ops, 0, input_, {}); },
             [&](Ops& ops) { return model_->backward(ops, 0, {}, {}); }}) {
      const absl::Status status = device_->run({WorkKind::kOther, call});
      EXPECT_TRUE(status.ok()) << status;
    }
    return model_->loss_sum() / static_cast<double>(model_->loss_tokens());
  }
  std::span<float> gradients() { return model_->stage_gradients(); }

 private:
  absl::Status read(const std::string& name, std::span<float> out) {
    for (size_t i = 0; i < case_.parameters.size(); ++i) {
      if (case_.parameters[i].name != name) continue;
      return model_->read_state(i, StateKind::kWeight, out);
    }
    return absl::NotFoundError(name);
  }

  const Case& case_;
  std::unique_ptr<Device> device_;  // First made, last destroyed.
  std::unique_ptr<StageModel> model_;
  std::vector<int32_t> tokens_, targets_;
  StageModel::Input input_;
};

double norm_of(std::span<const float> values) {
  double squares = 0;
  for (const float value : values) squares += double{value} * double{value};
  return std::sqrt(squares);
}

/// What the file has of a tensor's values: every `count / 3`-th.
std::vector<double> samples_of(std::span<const float> values) {
  std::vector<double> samples;
  const size_t step = std::max<size_t>(values.size() / 3, 1);
  for (size_t i = 0; i < values.size() && samples.size() < 3; i += step) {
    samples.push_back(double{values[i]});
  }
  return samples;
}

TEST(Transformers, ModelsHaveTheSameTensors) {
  for (const Case& each : cases()) {
    const nlohmann::json& gradients = each.wanted["gradients"];
    EXPECT_EQ(gradients.size(), each.parameters.size()) << each.name;
    for (const plans::ParameterSpec& spec : each.parameters) {
      ASSERT_TRUE(gradients.contains(spec.name)) << each.name << " " << spec.name;
      EXPECT_EQ(gradients[spec.name]["shape"], nlohmann::json(spec.shape)) << spec.name;
    }
  }
}

TEST(Transformers, GivesTheSameLogits) {
  for (const Case& each : cases()) {
    Computed computed(each);
    for (const nlohmann::json& wanted : each.wanted["logits"]) {
      const std::vector<float> logits = computed.logits(wanted["position"].get<int64_t>());
      EXPECT_NEAR(norm_of(logits), wanted["norm"].get<double>(), kTolerance) << each.name;
      const std::vector<double> samples = samples_of(logits);
      ASSERT_EQ(samples.size(), wanted["samples"].size());
      for (size_t i = 0; i < samples.size(); ++i) {
        EXPECT_NEAR(samples[i], wanted["samples"][i].get<double>(), kTolerance)
            << each.name << " behind " << wanted["position"];
      }
    }
  }
}

TEST(Transformers, GivesTheSameLossAndGradients) {
  for (const Case& each : cases()) {
    Computed computed(each);
    EXPECT_NEAR(computed.step(), each.wanted["loss"].get<double>(), kTolerance) << each.name;
    size_t begin = 0;
    for (const plans::ParameterSpec& spec : each.parameters) {
      const auto count = static_cast<size_t>(plans::element_count(spec));
      const auto gradient = computed.gradients().subspan(begin, count);
      begin += count;
      const nlohmann::json& wanted = each.wanted["gradients"][spec.name];
      // A tensor is judged by its own size; one that rounding alone makes is of no size.
      const double norm = wanted["norm"].get<double>();
      const double most = kTolerance * std::max(norm, 1e-3);
      EXPECT_NEAR(norm_of(gradient), norm, most) << each.name << " " << spec.name;
      const std::vector<double> samples = samples_of(gradient);
      ASSERT_EQ(samples.size(), wanted["samples"].size());
      for (size_t i = 0; i < samples.size(); ++i) {
        EXPECT_NEAR(samples[i], wanted["samples"][i].get<double>(), most)
            << each.name << " " << spec.name << " sample " << i;
      }
    }
  }
}

/// In and out again: the same bits, and a config.json that says the same.
TEST(Transformers, GetsBackWhatItGave) {
  for (const Case& each : cases()) {
    const tests::TemporaryFolder folder, run;
    std::ofstream(folder.file("config.json")) << each.wanted["config"];
    std::vector<std::vector<float>> memory;
    for (const plans::ParameterSpec& spec : each.parameters) memory.push_back(weights_of(spec));
    std::vector<TensorToWrite> written;
    for (size_t i = 0; i < memory.size(); ++i) {
      written.push_back({each.parameters[i].name, each.parameters[i].shape, memory[i]});
    }
    ASSERT_TRUE(write_safetensors(folder.file("model.safetensors"), written).ok());
    const auto weights = WeightsFolder::open(folder.path());
    ASSERT_TRUE(weights.ok()) << each.name << ": " << weights.status();
    plans::JobSpec job;
    job.model = (*weights)->model();
    const auto path = import_weights(**weights, job, trainer_state_after(job, 0), run.path());
    ASSERT_TRUE(path.ok()) << each.name << ": " << path.status();
    const auto again = WeightsFolder::open(*path);  // A checkpoint is such a folder, too.
    ASSERT_TRUE(again.ok()) << each.name << ": " << again.status();
    EXPECT_EQ((*again)->model(), each.model) << each.name;
    for (size_t i = 0; i < memory.size(); ++i) {
      std::vector<float> read(memory[i].size());
      ASSERT_TRUE((*again)->read(each.parameters[i].name, read).ok());
      EXPECT_EQ(read, memory[i]) << each.name << " " << each.parameters[i].name;
    }
    const nlohmann::json config = to_config(each.model);
    for (const auto& [key, value] : each.wanted["config"].items()) {
      if (key.ends_with("pdrop") || key == "sliding_window") continue;  // What is not looked at.
      if (config.contains(key)) {
        EXPECT_EQ(config[key], value) << each.name << " " << key;
      }
    }
  }
}

}  // namespace
}  // namespace skein::gpu
