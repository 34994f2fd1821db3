#include "gpu/checkpoint/checkpoint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "gpu/files/durable_file.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::gpu {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

plans::ModelSpec small_model() {
  plans::ModelSpec model;
  model.vocab_size = 5;
  model.positions = 4;
  model.layers = 4;
  model.heads = 1;
  model.channels = 2;
  return model;
}

/// Value of an element of a state after a number of steps, different everywhere.
float value_of(const std::string& name, size_t element, uint64_t steps) {
  return static_cast<float>(std::hash<std::string>()(name) % 1000) + static_cast<float>(element) +
         0.25F * static_cast<float>(steps);
}

std::vector<float> values_of(const std::string& name, int64_t count, uint64_t steps) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(value_of(name, static_cast<size_t>(i), steps));
  return values;
}

/// Saves a whole checkpoint from stages cut at `cuts`.
absl::Status save(const std::string& run, std::vector<int64_t> cuts, uint64_t steps,
                  int64_t keep = 2) {
  const plans::ModelSpec model = small_model();
  cuts.insert(cuts.begin(), 0);
  cuts.push_back(plans::layer_count(model));
  std::vector<SavedFile> all;
  for (size_t s = 0; s + 1 < cuts.size(); ++s) {
    std::vector<std::vector<float>> memory;
    std::vector<SavedParameter> parameters;
    memory.reserve(1000);
    for (const auto& spec : plans::range_parameters(model, {cuts[s], cuts[s + 1]})) {
      auto make = [&](const std::string& suffix) {
        memory.push_back(values_of(spec.name + suffix, plans::element_count(spec), steps));
        return std::span<const float>(memory.back());
      };
      const auto weight = make("");
      const auto first = make(".exp_avg");
      parameters.push_back({spec, weight, first, make(".exp_avg_sq")});
    }
    auto files = write_shard(partial_checkpoint_path(run, steps), static_cast<int>(s),
                             static_cast<int>(cuts.size() - 1), "adamw", parameters);
    if (!files.ok()) return files.status();
    all.insert(all.end(), files->begin(), files->end());
  }
  TrainerState state;
  state.steps_done = steps;
  state.samples_done = 8 * steps;
  state.seq_len = 4;
  state.plan = "plan";
  return complete_checkpoint(run, model, state, all, keep).status();
}

void expect_whole(const std::string& path, uint64_t steps) {
  const auto reader = CheckpointReader::open(path, true);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->trainer_state().steps_done, steps);
  EXPECT_TRUE((*reader)->check_model(small_model()).ok());
  for (const auto& spec : plans::range_parameters(small_model(), {0, 6})) {
    for (const char* suffix : {"", ".exp_avg", ".exp_avg_sq"}) {
      std::vector<float> read(static_cast<size_t>(plans::element_count(spec)));
      ASSERT_TRUE((*reader)->read(spec.name + suffix, read).ok());
      EXPECT_EQ(read, values_of(spec.name + suffix, plans::element_count(spec), steps));
    }
  }
}

TEST(Checkpoint, ReadsTheSameFromAnyNumberOfStages) {
  for (const std::vector<int64_t>& cuts :
       std::vector<std::vector<int64_t>>{{}, {3}, {2, 4}, {1, 2, 5}}) {
    tests::TemporaryFolder run;
    ASSERT_TRUE(save(run.path(), cuts, 7).ok());
    expect_whole(run.path(), 7);
    expect_whole(run.file("checkpoint/latest"), 7);
  }
}

TEST(Checkpoint, KeepsTheNewestOnes) {
  tests::TemporaryFolder run;
  for (uint64_t steps = 1; steps <= 4; ++steps) ASSERT_TRUE(save(run.path(), {3}, steps).ok());
  EXPECT_FALSE(fs::exists(run.file("checkpoint/step-00000002")));
  EXPECT_TRUE(fs::exists(run.file("checkpoint/step-00000003")));
  expect_whole(run.path(), 4);
}

TEST(Checkpoint, AFailureAtAnyWriteLeavesTheOneBefore) {
  for (int64_t k = 1;; ++k) {
    tests::TemporaryFolder run;
    ASSERT_TRUE(save(run.path(), {3}, 1).ok());
    fail_file_operation(k);
    const absl::Status status = save(run.path(), {3}, 2);
    fail_file_operation(0);
    if (status.ok()) {
      expect_whole(run.path(), 2);
      EXPECT_GT(k, 20) << "few operations were counted";
      return;
    }
    const auto reader = CheckpointReader::open(run.path(), true);
    ASSERT_TRUE(reader.ok()) << "operation " << k << ": " << reader.status();
    // Once its folder is renamed the new one is complete, whether `latest` was moved or not.
    expect_whole(run.path(), (*reader)->trainer_state().steps_done);
    ASSERT_TRUE(save(run.path(), {3}, 2).ok()) << "it can be written again";
    expect_whole(run.path(), 2);
    ASSERT_LT(k, 1000);
  }
}

TEST(Checkpoint, FindsDamage) {
  tests::TemporaryFolder run;
  ASSERT_TRUE(save(run.path(), {3}, 1).ok());
  const std::string folder = run.file("checkpoint/step-00000001");
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename() == "COMPLETE") continue;
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string whole((std::istreambuf_iterator<char>(in)), {});
    auto put = [&](const std::string& text) {
      std::ofstream(entry.path(), std::ios::binary | std::ios::trunc) << text;
      return CheckpointReader::open(folder, true).status();
    };
    EXPECT_TRUE(absl::IsDataLoss(put(whole.substr(0, whole.size() - 1)))) << entry.path();
    std::string flipped = whole;
    flipped[flipped.size() - 3] ^= 1;
    const absl::Status status = put(flipped);
    EXPECT_TRUE(absl::IsDataLoss(status)) << entry.path() << " " << status;
    EXPECT_TRUE(put(whole).ok());
  }
}

TEST(Checkpoint, WithoutCompleteThereIsNone) {
  tests::TemporaryFolder run;
  EXPECT_TRUE(absl::IsNotFound(CheckpointReader::open(run.path(), true).status()));
  ASSERT_TRUE(save(run.path(), {3}, 1).ok());
  fs::remove(run.file("checkpoint/step-00000001/COMPLETE"));
  EXPECT_TRUE(absl::IsNotFound(CheckpointReader::open(run.path(), true).status()));
}

TEST(Checkpoint, NamesTheTensorThatHasAnotherShape) {
  tests::TemporaryFolder run;
  ASSERT_TRUE(save(run.path(), {3}, 1).ok());
  const auto reader = CheckpointReader::open(run.path(), true);
  plans::ModelSpec wider = small_model();
  wider.channels = 4;
  const absl::Status status = (*reader)->check_model(wider);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("wte.weight"), HasSubstr("[5, 2]"), HasSubstr("[5, 4]")));
}

TEST(Checkpoint, RefusesToCompleteWhatIsNotWhole) {
  tests::TemporaryFolder run;
  TrainerState state;
  EXPECT_FALSE(complete_checkpoint(run.path(), small_model(), state, {}, 2).ok());
  EXPECT_FALSE(complete_checkpoint(run.path(), small_model(), state, {{"../x", 1, 1, {}}}, 2).ok());
}

}  // namespace
}  // namespace skein::gpu
