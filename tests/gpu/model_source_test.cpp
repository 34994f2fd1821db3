#include "gpu/checkpoint/model_source.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "gpu/checkpoint/newest_checkpoint.hpp"
#include "tests/gpu/small_checkpoints.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::gpu {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

/// A run that saves a checkpoint and deletes the one before, as often as it is asked to.
class ModelSourceTest : public testing::Test {
 protected:
  ModelSourceTest() { save(); }
  void save() {
    ++steps_;
    const auto saved = save_small_checkpoint(run_.path(), steps_, static_cast<float>(steps_));
    ASSERT_TRUE(saved.ok()) << saved.status();
    newest_ = *saved;
  }
  std::string checkpoint(uint64_t steps) const {
    return run_.file("checkpoint/step-0000000" + std::to_string(steps));
  }

  tests::TemporaryFolder run_;
  uint64_t steps_ = 0;
  std::string newest_;
};

TEST_F(ModelSourceTest, BeginsAnewWhenTheRunDeletesWhatIsBeingRead) {
  std::vector<std::string> read;
  const auto read_beside = [&](const ModelSource& source) -> absl::Status {
    read.push_back(source.folder());
    if (read.size() > 1) return absl::OkStatus();
    save();
    return absl::NotFoundError("a file beside it is not there");
  };
  const auto source = ModelSource::open(run_.path(), read_beside);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_THAT(read, ElementsAre(checkpoint(1), checkpoint(2)));
  EXPECT_EQ(source->folder(), checkpoint(2));
  std::vector<float> weight(10);
  ASSERT_TRUE(source->read("transformer.wte.weight", weight).ok());
  EXPECT_EQ(weight, std::vector<float>(10, 2.0F));
}

/// What has been read so far is of a checkpoint whose tensors cannot be read any more.
TEST_F(ModelSourceTest, BeginsAnewAlsoWhereAllFilesBesideItCouldBeRead) {
  int calls = 0;
  const auto read_beside = [&](const ModelSource&) {
    if (++calls == 1) save();
    return absl::OkStatus();
  };
  const auto source = ModelSource::open(run_.path(), read_beside);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(source->folder(), checkpoint(2));
}

TEST_F(ModelSourceTest, AnErrorThatIsNoDeletionIsNotTriedAgain) {
  int calls = 0;
  const auto read_beside = [&](const ModelSource&) {
    ++calls;
    return absl::DataLossError("a file beside it is damaged");
  };
  const absl::Status status = ModelSource::open(run_.path(), read_beside).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("is damaged"));
  EXPECT_EQ(calls, 1);
}

TEST_F(ModelSourceTest, ARunThatDeletesEachOneIsGivenUp) {
  int calls = 0;
  const auto read_beside = [&](const ModelSource&) {
    ++calls;
    save();
    return absl::NotFoundError("a file beside it is not there");
  };
  const absl::Status status = ModelSource::open(run_.path(), read_beside).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_GT(calls, 1);
  EXPECT_LT(calls, 10);
}

/// A step on shorter samples makes the weights of others forget no positions.
TEST_F(ModelSourceTest, KnowsThePositionsOfTheWeightsThatTrainingBeganWith) {
  TrainerState state;
  state.seq_len = 2;
  ASSERT_TRUE(save_small_checkpoint(run_.path(), 2, 1, state).ok());
  EXPECT_EQ(ModelSource::open(run_.path())->positions(), 2);
  EXPECT_EQ(ModelSource::open(run_.path())->trained_seq_len(), 2);
  for (const int64_t known : {3, 4}) {  // Nobody may have trained the last of the four.
    state.positions = known;
    ASSERT_TRUE(save_small_checkpoint(run_.path(), static_cast<uint64_t>(known), 1, state).ok());
    EXPECT_EQ(ModelSource::open(run_.path())->positions(), known);
    EXPECT_EQ(ModelSource::open(run_.path())->trained_seq_len(), std::nullopt);
  }
}

/// What is read of a run that goes on is of one checkpoint.
TEST_F(ModelSourceTest, ALinkThatIsMovedMeanwhileIsNotFollowedTwice) {
  const std::string latest = run_.file("checkpoint/latest");
  const std::string first = fs::canonical(newest_).string();
  for (const std::string& path : {latest, run_.path()}) {
    std::vector<std::string> read;
    const absl::Status status = read_newest(path, [&](const std::string& folder) {
      read.push_back(folder);
      fs::remove(latest);
      fs::create_directory_symlink("elsewhere", latest);
      const absl::Status opened = WeightsFolder::open(folder).status();
      fs::remove(latest);
      fs::create_directory_symlink("step-00000001", latest);
      return opened;
    });
    EXPECT_TRUE(status.ok()) << path << ": " << status;
    ASSERT_THAT(read, testing::SizeIs(1));
    EXPECT_EQ(fs::canonical(read.front()).string(), first);
  }
  std::string read;
  const auto take = [&read](const std::string& folder) {
    read = folder;
    return absl::OkStatus();
  };
  EXPECT_TRUE(read_newest(run_.file("nowhere"), take).ok());
  EXPECT_EQ(read, run_.file("nowhere")) << "whoever reads it says what is wrong with it";
}

/// Two models that were trained on from the same one have files of the same names and sizes.
TEST_F(ModelSourceTest, TheDigestTellsTwoTrainingsOfOneModelApart) {
  const std::string model = newest_;
  fs::remove(model + "/COMPLETE");
  const auto digest = [&model] { return ModelSource::open(model)->digest().value(); };
  const uint64_t before = digest();
  EXPECT_EQ(digest(), before);
  const std::string path = model + "/model-00001-of-00001.safetensors";
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('\1');
  file.close();
  EXPECT_NE(digest(), before);
}

/// Not all of a large file is read.
TEST_F(ModelSourceTest, TheDigestSeesEachPartOfALargeFile) {
  fs::remove(newest_ + "/COMPLETE");
  const std::string path = newest_ + "/beside.safetensors";  // No part of the model.
  constexpr int64_t kBytes = 1 << 24;
  const auto digest_with = [&](int64_t begin, int64_t end) {
    std::string bytes(kBytes, '\0');
    for (int64_t at = begin; at < end; ++at) bytes[static_cast<size_t>(at)] = 'x';
    std::ofstream(path, std::ios::binary) << bytes;
    return ModelSource::open(newest_)->digest().value();
  };
  const uint64_t before = digest_with(0, 0);
  EXPECT_NE(digest_with(kBytes - 1, kBytes), before);
  EXPECT_NE(digest_with(0, 1), before);
  constexpr int64_t kPart = kBytes / 32;
  for (int64_t at = 0; at + kPart <= kBytes; at += kPart) {
    EXPECT_NE(digest_with(at, at + kPart), before) << at;
  }
}

/// They begin another run, which must not take for learned what nobody has trained.
TEST_F(ModelSourceTest, ACheckpointsWeightsKnowThePositionsThatItWasTrainedFor) {
  TrainerState state;
  state.seq_len = 2;
  const auto trained = save_small_checkpoint(run_.path(), 2, 1, state);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_EQ(WeightsFolder::open(*trained).value()->positions(), 2);
  state.positions = 3;
  const auto begun = save_small_checkpoint(run_.path(), 3, 1, state);
  ASSERT_TRUE(begun.ok()) << begun.status();
  EXPECT_EQ(WeightsFolder::open(*begun).value()->positions(), 3);
}

TEST(TrainerState, KnowsWhatWasLearnedBeforeAndSince) {
  TrainerState state;
  state.seq_len = 256;
  EXPECT_EQ(learned_positions(state), 0) << "no step has been made";
  state.steps_done = 1;
  EXPECT_EQ(learned_positions(state), 256);
  state.positions = 1024;
  EXPECT_EQ(learned_positions(state), 1024);
  state.steps_done = 0;
  EXPECT_EQ(learned_positions(state), 1024);
}

/// Whoever has mistyped a name is not told of files in it.
TEST_F(ModelSourceTest, SaysWhatIsWrongWithAFolderThatIsNone) {
  const auto said = [](const std::string& path) {
    const absl::Status status = ModelSource::open(path).status();
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("or a model's folder"));
    return std::string(status.message());
  };
  EXPECT_THAT(said(run_.file("nowhere")), HasSubstr("nowhere, which is not there; give"));
  EXPECT_THAT(said(newest_ + "/config.json"), HasSubstr("config.json, which is no folder; give"));
  fs::create_directories(run_.file("empty"));
  EXPECT_THAT(said(run_.file("empty")), HasSubstr("has a file COMPLETE"));
}

/// Nothing newer stands for a checkpoint that is named itself.
TEST_F(ModelSourceTest, ACheckpointThatIsNamedAndGoneIsAnError) {
  const std::string named = newest_;
  const auto read_beside = [&](const ModelSource&) {
    fs::remove_all(named);
    return absl::OkStatus();
  };
  EXPECT_FALSE(ModelSource::open(named, read_beside).ok());
}

}  // namespace
}  // namespace skein::gpu
