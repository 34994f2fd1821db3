#include "gpu/checkpoint/weights_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gpu/checkpoint/checkpoint_reader.hpp"
#include "gpu/checkpoint/model_config.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::gpu {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using tests::TemporaryFolder;

plans::ModelSpec small_model() {
  plans::ModelSpec model;
  model.vocab_size = 5;
  model.positions = 4;
  model.layers = 2;
  model.heads = 1;
  model.channels = 2;
  return model;
}

/// A folder as save_pretrained makes it of a GPT-2 with weights 0, 1, 2, ... in each tensor.
struct PretrainedFolder {
  PretrainedFolder() {
    config = R"({"model_type": "gpt2", "vocab_size": 5, "n_positions": 4, "n_embd": 2,
                 "n_layer": 2, "n_head": 1, "activation_function": "gelu_new",
                 "layer_norm_epsilon": 1e-5})";
    for (const auto& each : plans::range_parameters(small_model(), {0, 4})) {
      if (!each.tied_copy) tensors[each.name] = each.shape;
    }
  }
  void write_config() const { std::ofstream(folder.file("config.json")) << config; }
  void write_file(const std::string& name,
                  const std::map<std::string, std::vector<int64_t>>& held) const {
    std::vector<std::vector<float>> memory;
    std::vector<TensorToWrite> written;
    memory.reserve(held.size());
    for (const auto& [tensor, shape] : held) {
      int64_t count = 1;
      for (int64_t extent : shape) count *= extent;
      memory.emplace_back();
      for (int64_t i = 0; i < count; ++i) memory.back().push_back(static_cast<float>(i));
      written.push_back({tensor, shape, memory.back()});
    }
    ASSERT_TRUE(write_safetensors(folder.file(name), written).ok());
  }
  std::string path() const { return folder.path(); }
  absl::Status open() const { return WeightsFolder::open(path()).status(); }

  TemporaryFolder folder;
  std::string config;
  std::map<std::string, std::vector<int64_t>> tensors;
};

std::vector<float> counted(size_t count) {
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i));
  return values;
}

TEST(WeightsFolder, BecomesTheCheckpointOfStepZero) {
  PretrainedFolder from;
  from.write_config();
  from.write_file("model.safetensors", from.tensors);
  const auto weights = WeightsFolder::open(from.path());
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ((*weights)->model(), small_model());
  EXPECT_EQ((*weights)->positions(), small_model().positions);
  plans::JobSpec job;
  job.model = small_model();
  const TemporaryFolder run;
  TrainerState state = trainer_state_after(job, 0);
  state.data_digest = 20;
  const auto path = import_weights(**weights, job, state, run.path());
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_THAT(find_faults(*path), ::testing::IsEmpty());
  const auto reader = CheckpointReader::open(run.path());
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->trainer_state().steps_done, 0u);
  EXPECT_EQ((*reader)->trainer_state().data_digest, 20u);
  const std::string digest = (*reader)->trainer_state().from_digest;
  EXPECT_EQ(digest.size(), 64u);
  const TemporaryFolder later;
  const auto again = import_weights(**WeightsFolder::open(*path), job, state, later.path());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(read_trainer_state(*again)->from_digest, digest) << "in other files, the same weights";
  for (const auto& each : plans::range_parameters(small_model(), {0, 4})) {
    std::vector<float> read(static_cast<size_t>(plans::element_count(each)));
    ASSERT_TRUE((*reader)->read(each.name, read).ok());
    EXPECT_EQ(read, counted(read.size())) << each.name;
    ASSERT_TRUE((*reader)->read(each.name + ".exp_avg", read).ok());
    EXPECT_EQ(read, std::vector<float>(read.size())) << each.name;
  }
}

TEST(WeightsFolder, WeightsThatAreNoNumbersAreNamed) {
  PretrainedFolder from;
  from.write_config();
  from.write_file("model.safetensors", from.tensors);
  EXPECT_TRUE(WeightsFolder::open(from.path()).value()->check_finite().ok());
  std::fstream file(from.folder.file("model.safetensors"),
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-static_cast<int>(sizeof(float)), std::ios::end);
  const float bad = std::numeric_limits<float>::quiet_NaN();
  file.write(reinterpret_cast<const char*>(&bad), sizeof(bad));
  file.close();
  const absl::Status status = WeightsFolder::open(from.path()).value()->check_finite();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("has nan at"));
}

TEST(WeightsFolder, NamesMayLackThePrefixAndMasksAreNoWeights) {
  PretrainedFolder from;
  from.write_config();
  std::map<std::string, std::vector<int64_t>> body;
  for (const auto& [name, shape] : from.tensors) {
    body[std::string(absl::StripPrefix(name, "transformer."))] = shape;
  }
  body["h.0.attn.bias"] = {1, 1, 4, 4};
  body["lm_head.weight"] = {5, 2};  // The tied one, once more.
  from.write_file("model.safetensors", body);
  const auto weights = WeightsFolder::open(from.path());
  ASSERT_TRUE(weights.ok()) << weights.status();
  std::vector<float> read(10);
  ASSERT_TRUE((*weights)->read("transformer.wte.weight", read).ok());
  EXPECT_EQ(read, counted(10));
}

/// What its family has anyway is left out of config.json.
TEST(WeightsFolder, ALlamaHasItsOwnDefaults) {
  PretrainedFolder from;
  from.config = R"({"model_type": "llama", "vocab_size": 5, "max_position_embeddings": 4,
                    "hidden_size": 2, "intermediate_size": 3, "num_hidden_layers": 1,
                    "num_attention_heads": 1, "rms_norm_eps": 1e-6})";
  from.write_config();
  const auto model = read_model_config(from.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_FALSE(model->tied_head);
  EXPECT_EQ(model->rope_theta, 10000);
  from.tensors.clear();
  for (const auto& each : plans::range_parameters(*model, {0, 3})) {
    from.tensors[std::string(absl::StripPrefix(each.name, "model."))] = each.shape;
  }
  EXPECT_TRUE(from.tensors.contains("lm_head.weight"));
  from.write_file("model.safetensors", from.tensors);
  const auto weights = WeightsFolder::open(from.path());
  ASSERT_TRUE(weights.ok()) << weights.status();
  plans::JobSpec job;
  job.model = *model;
  job.optimizer.name = "sgd";
  const TemporaryFolder run;
  const auto path = import_weights(**weights, job, {}, run.path());
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_THAT(find_faults(*path), ::testing::IsEmpty());
}

TEST(WeightsFolder, AreForNoOtherModel) {
  PretrainedFolder from;
  from.write_config();
  from.write_file("model.safetensors", from.tensors);
  const auto weights = WeightsFolder::open(from.path());
  ASSERT_TRUE(weights.ok()) << weights.status();
  plans::ModelSpec model = small_model();
  model.init_std = 1;
  model.intermediate_size = 8;  // As it is without it.
  EXPECT_TRUE((*weights)->check_use(model).ok());
  for (auto change : {+[](plans::ModelSpec& other) { other.layers = 1; },
                      +[](plans::ModelSpec& other) { other.norm_epsilon = 1e-6; },
                      +[](plans::ModelSpec& other) { other.tied_head = false; }}) {
    model = small_model();
    change(model);
    EXPECT_FALSE((*weights)->check_use(model).ok());
    plans::JobSpec job;
    job.model = model;
    const TemporaryFolder run;
    EXPECT_FALSE(import_weights(**weights, job, {}, run.path()).ok());
  }
}

TEST(WeightsFolder, ACheckpointOfOursIsComparedWithWhatWasWritten) {
  PretrainedFolder from;
  from.write_config();
  from.write_file("model.safetensors", from.tensors);
  plans::JobSpec job;
  job.model = small_model();
  const TemporaryFolder run;
  const auto path = import_weights(**WeightsFolder::open(from.path()), job, {}, run.path());
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_TRUE(WeightsFolder::open(*path).ok());
  std::fstream file(*path + "/model-00001-of-00004.safetensors",
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('x');
  file.close();
  EXPECT_EQ(WeightsFolder::open(*path).status().code(), absl::StatusCode::kDataLoss);
}

TEST(WeightsFolder, OneFileGoesBeforeAnIndexThatIsLeftOver) {
  PretrainedFolder from;
  from.write_config();
  from.write_file("model.safetensors", from.tensors);
  std::ofstream(from.folder.file("model.safetensors.index.json")) << "{}";
  EXPECT_TRUE(from.open().ok()) << from.open();
}

TEST(WeightsFolder, FilesAreFoundByTheIndex) {
  PretrainedFolder from;
  from.write_config();
  std::map<std::string, std::vector<int64_t>> first(from.tensors.begin(),
                                                    std::next(from.tensors.begin(), 5));
  std::map<std::string, std::vector<int64_t>> second(std::next(from.tensors.begin(), 5),
                                                     from.tensors.end());
  from.write_file("a.safetensors", first);
  from.write_file("b.safetensors", second);
  const auto write_index = [&](const std::string& file_of_first) {
    std::string map;
    for (const auto& [file, held] : {std::pair(file_of_first, first), {"b.safetensors", second}}) {
      for (const auto& [name, shape] : held) {
        absl::StrAppend(&map, map.empty() ? "" : ",", "\"", name, "\":\"", file, "\"");
      }
    }
    std::ofstream(from.folder.file("model.safetensors.index.json"))
        << R"({"weight_map": {)" << map << "}}";
  };
  write_index("a.safetensors");
  EXPECT_TRUE(from.open().ok()) << from.open();
  write_index("b.safetensors");
  EXPECT_THAT(std::string(from.open().message()), HasSubstr("which does not have it"));
  write_index("missing.safetensors");
  EXPECT_EQ(from.open().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(from.open().message()), HasSubstr("missing.safetensors is not there"));
  write_index("../a.safetensors");
  EXPECT_EQ(from.open().code(), absl::StatusCode::kDataLoss);
}

/// A file of quantized weights is a proper one.
TEST(WeightsFolder, ATensorOfATypeThatIsNotReadIsNamed) {
  PretrainedFolder from;
  from.write_config();
  from.write_file("model.safetensors", from.tensors);
  std::fstream file(from.folder.file("model.safetensors"),
                    std::ios::in | std::ios::out | std::ios::binary);
  std::string head(4096, '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  file.clear();
  const size_t tensor = head.find("\"transformer.wte.weight\"");
  ASSERT_NE(tensor, std::string::npos);
  file.seekp(static_cast<std::streamoff>(head.find("F32", tensor)));
  file << "I32";
  file.close();
  const absl::Status status = from.open();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tensor transformer.wte.weight has no type that is read"));
}

TEST(WeightsFolder, WhatDoesNotFitIsNamed) {
  const auto refused = [](const char* what, auto change) {
    PretrainedFolder from;
    change(from);
    from.write_config();
    from.write_file("model.safetensors", from.tensors);
    EXPECT_THAT(std::string(from.open().message()), HasSubstr(what));
  };
  refused("has no tensor transformer.ln_f.bias [2]",
          [](auto& from) { from.tensors.erase("transformer.ln_f.bias"); });
  refused("transformer.wpe.weight has shape [3, 2], by config.json it is [4, 2]", [](auto& from) {
    from.tensors["transformer.wpe.weight"] = {3, 2};
  });
  refused("transformer.extra is none of the model",
          [](auto& from) { from.tensors["transformer.extra"] = {1}; });
  for (const char* scaling : {"scale_attn_weights\": false", "add_cross_attention\": true",
                              "scale_attn_by_inverse_layer_idx\": true"}) {
    std::string named = scaling;
    named.erase(named.find('"'), 1);
    refused(("(" + named + ")").c_str(),
            [scaling](auto& from) { from.config.insert(1, absl::StrCat("\"", scaling, ", ")); });
  }
  refused("(activation relu)",
          [](auto& from) { from.config.replace(from.config.find("gelu_new"), 8, "relu"); });
  refused("model_type mamba", [](auto& from) { from.config = R"({"model_type": "mamba"})"; });
  refused("lacks a proper \"n_embd\"", [](auto& from) {
    from.config = R"({"model_type": "gpt2", "activation_function": "gelu_new", "n_positions": 4})";
  });
  const PretrainedFolder nothing;
  EXPECT_EQ(nothing.open().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(nothing.open().message()), HasSubstr("config.json is not there"));
  nothing.write_config();
  EXPECT_THAT(std::string(nothing.open().message()), HasSubstr("model.safetensors is not there"));
  nothing.write_file("model.safetensors", nothing.tensors);
  fs::resize_file(nothing.folder.file("model.safetensors"), 200);
  EXPECT_EQ(nothing.open().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace skein::gpu
