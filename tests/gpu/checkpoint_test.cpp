#include "gpu/checkpoint/checkpoint_reader.hpp"
#include "gpu/checkpoint/checkpoint_writer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "gpu/checkpoint/checkpoint_listing.hpp"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/checkpoint/crc32c.hpp"
#include "gpu/checkpoint/folder_name.hpp"
#include "gpu/checkpoint/model_config.hpp"
#include "gpu/files/durable_file.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/without_rights.hpp"

namespace skein::gpu {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kGeneration = 7;

plans::ModelSpec small_model(int64_t layers = 4) {
  plans::ModelSpec model;
  model.vocab_size = 5;
  model.positions = 4;
  model.layers = layers;
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

/// Saves the files of stages cut at `cuts`.
absl::StatusOr<std::vector<SavedFile>> save_shards(const std::string& run,
                                                   std::vector<int64_t> cuts, uint64_t steps,
                                                   uint64_t generation = kGeneration,
                                                   const plans::ModelSpec& model = small_model()) {
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
    auto files = write_shard(partial_checkpoint_path(run, steps, generation), static_cast<int>(s),
                             static_cast<int>(cuts.size() - 1), "adamw", parameters);
    if (!files.ok()) return files.status();
    all.insert(all.end(), files->begin(), files->end());
  }
  return all;
}

/// Few tensors: it is written and read once for each operation on a file.
plans::ModelSpec one_block() { return small_model(1); }

/// Saves a whole checkpoint from stages cut at `cuts`.
absl::Status save(const std::string& run, const std::vector<int64_t>& cuts, uint64_t steps,
                  int64_t keep = 2, const plans::ModelSpec& model = small_model(),
                  const std::string& of = "") {
  const auto files = save_shards(run, cuts, steps, kGeneration, model);
  if (!files.ok()) return files.status();
  TrainerState state;
  state.run = of;
  state.steps_done = steps;
  state.samples_done = 8 * steps;
  state.seq_len = 4;
  state.plan = "plan";
  return complete_checkpoint(run, kGeneration, model, state, *files, keep).status();
}

void expect_whole(const std::string& path, uint64_t steps,
                  const plans::ModelSpec& model = small_model()) {
  const auto reader = CheckpointReader::open(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->trainer_state().steps_done, steps);
  EXPECT_TRUE((*reader)->check_model(model).ok());
  for (const auto& spec : plans::range_parameters(model, {0, plans::layer_count(model)})) {
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

TEST(Checkpoint, AFolderWithANameOfItsOwnIsNeitherCountedNorDeleted) {
  tests::TemporaryFolder run;
  const std::string folder = run.file("checkpoint/step-00000002");
  std::vector<std::string> own;
  for (const char* end : {".damaged", "-copy", ".copy.tmp", "0"}) own.push_back(folder + end);
  ASSERT_TRUE(save(run.path(), {1}, 2, 1, one_block()).ok());
  for (const std::string& copy : own) fs::copy(folder, copy);
  fs::remove_all(folder);
  ASSERT_TRUE(save(run.path(), {1}, 2, 1, one_block()).ok()) << "training came there again";
  expect_whole(folder, 2, one_block());
  EXPECT_EQ(*complete_checkpoints(run.path()), std::vector{folder});
  ASSERT_TRUE(save(run.path(), {1}, 3, 2, one_block()).ok());
  expect_whole(folder, 2, one_block());
  ASSERT_TRUE(save(run.path(), {1}, 4, 1, one_block()).ok());
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_EQ(*complete_checkpoints(run.path()), std::vector{run.file("checkpoint/step-00000004")});
  delete_partial_checkpoints(run.path(), "", kGeneration, 9, {});
  for (const std::string& copy : own) expect_whole(copy, 2, one_block());
}

TEST(Checkpoint, TheNewestHasTheMostStepsHoweverManyDigitsTheyHave) {
  tests::TemporaryFolder run;
  for (const uint64_t steps : {99'999'999, 100'000'000, 100'000'001}) {
    ASSERT_TRUE(save(run.path(), {1}, steps, 2, one_block()).ok());
  }
  EXPECT_THAT(
      *complete_checkpoints(run.path()),
      ElementsAre(run.file("checkpoint/step-100000001"), run.file("checkpoint/step-100000000")));
}

TEST(FolderName, IsReadFromWhatItIsWrittenAs) {
  const std::vector<std::pair<FolderName, const char*>> names = {
      {{500, {}, {}, false}, "step-00000500"},
      {{500, {}, {}, true}, "step-00000500.deleted.tmp"},
      {{500, 7, {}, false}, "step-00000500.g00000007.tmp"},
      {{500, 7, {}, true}, "step-00000500.g00000007.tmp.deleted.tmp"},
      {{500, 7, 3, false}, "step-00000500.g00000007.w00003.tmp"},
      {{UINT64_MAX, UINT64_MAX, UINT32_MAX, true},
       "step-18446744073709551615.g18446744073709551615.w4294967295.tmp.deleted.tmp"}};
  for (const auto& [name, text] : names) {
    EXPECT_EQ(to_text(name), text);
    EXPECT_EQ(parse_folder_name(text), name) << text;
    for (const char* end : {" ", ".tmp", ".old", "0"}) {
      EXPECT_FALSE(parse_folder_name(std::string(text) + end).has_value()) << text << end;
    }
  }
  for (const char* text :
       {"", "latest", "step-", "step-7", "step- 0000007", "step-+0000007", "step--0000007",
        "step-00000500.g7.tmp", "step-00000500.g00000007", "step-00000500.g00000007.w3.tmp",
        "step-00000500.w00003.tmp", "step-00000500.tmp", "set-aside.step-00000500",
        "step-18446744073709551616"}) {
    EXPECT_FALSE(parse_folder_name(text).has_value()) << text;
  }
}

TEST(Checkpoint, ThoseOfAnotherRunAreNeitherCountedNorDeleted) {
  tests::TemporaryFolder run;
  for (const uint64_t steps : {1, 9}) {
    ASSERT_TRUE(save(run.path(), {1}, steps, 0, one_block(), "other").ok());
  }
  ASSERT_TRUE(save(run.path(), {1}, 2, 1, one_block(), "own").ok());
  ASSERT_TRUE(save(run.path(), {1}, 3, 1, one_block(), "own").ok());
  const auto own = own_checkpoints(run.path(), "own");
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->folders, std::vector{run.file("checkpoint/step-00000003")});
  EXPECT_EQ(own->passed_over.size(), 2u);
  EXPECT_EQ(durable_steps(run.path(), "own"), 3u);
  EXPECT_EQ(durable_steps(run.path(), "none"), 0u);
  EXPECT_EQ(own_checkpoints(run.path(), "")->folders.size(), 3u) << "whoever only reads takes any";
}

TEST(Checkpoint, OneOfAnotherRunMakesRoomForTheRunsOwnAndStays) {
  tests::TemporaryFolder run;
  std::vector<std::string> others;
  for (const std::string other : {"other", "third"}) {
    ASSERT_TRUE(save(run.path(), {1}, 2, 1, one_block(), other).ok());
    ASSERT_TRUE(save(run.path(), {1}, 2, 1, one_block(), "own").ok());
    const std::string aside = run.file("checkpoint/set-aside.step-00000002");
    others.push_back(others.empty() ? aside : aside + "-2");
    if (other == "other") fs::remove_all(run.file("checkpoint/step-00000002"));
  }
  ASSERT_TRUE(save(run.path(), {1}, 2, 1, one_block(), "own").ok()) << "its own goes";
  for (const std::string& each : others) expect_whole(each, 2, one_block());
  EXPECT_EQ(read_trainer_state(others.front())->run, "other");
  EXPECT_EQ(read_trainer_state(others.back())->run, "third");
  EXPECT_EQ(*complete_checkpoints(run.path()), std::vector{run.file("checkpoint/step-00000002")});
  EXPECT_EQ(read_trainer_state(run.file("checkpoint/latest"))->run, "own");
}

TEST(Checkpoint, OneOfWhichNobodyCanTellWhoseItIsIsNeitherCountedNorDeleted) {
  tests::TemporaryFolder run;
  for (const uint64_t steps : {1, 2}) {
    ASSERT_TRUE(save(run.path(), {1}, steps, 0, one_block()).ok());
  }
  const std::string unclear = run.file("checkpoint/step-00000002/");
  fs::rename(unclear + "trainer_state.json", unclear + "kept");
  fs::create_symlink("trainer_state.json", unclear + "trainer_state.json");  // It has no end.
  ASSERT_TRUE(save(run.path(), {1}, 3, 2, one_block()).ok());
  EXPECT_TRUE(fs::exists(run.file("checkpoint/step-00000001"))) << "two can be told";
  ASSERT_TRUE(save(run.path(), {1}, 4, 1, one_block()).ok());
  EXPECT_FALSE(fs::exists(run.file("checkpoint/step-00000003")));
  EXPECT_TRUE(fs::exists(unclear + "kept"));
  ASSERT_TRUE(save(run.path(), {1}, 2, 1, one_block()).ok()) << "of the same step";
  EXPECT_TRUE(fs::exists(run.file("checkpoint/set-aside.step-00000002/kept")));
  expect_whole(unclear, 2, one_block());
  fs::remove(unclear + "trainer_state.json");
  ASSERT_TRUE(save(run.path(), {1}, 2, 1, one_block()).ok()) << "damage is no reason to keep it";
  EXPECT_FALSE(fs::exists(run.file("checkpoint/set-aside.step-00000002-2")));
}

TEST(Checkpoint, WhatWasBeingDeletedWhenItsWriterDiedIsNoneAndGoesWithTheNextOne) {
  tests::TemporaryFolder run;
  ASSERT_TRUE(save(run.path(), {3}, 1).ok());
  const std::string deleted = run.file("checkpoint/step-00000001.deleted.tmp");
  fs::rename(run.file("checkpoint/step-00000001"), deleted);
  EXPECT_FALSE(CheckpointReader::open(run.path()).ok());
  ASSERT_TRUE(save(run.path(), {3}, 2).ok());
  EXPECT_FALSE(fs::exists(deleted));
  expect_whole(run.path(), 2);
}

TEST(Checkpoint, AFailureAtAnyWriteLeavesTheOneBefore) {
  for (int64_t k = 1;; ++k) {
    tests::TemporaryFolder run;
    ASSERT_TRUE(save(run.path(), {1}, 1, 2, one_block()).ok());
    fail_file_operation(k);
    const absl::Status status = save(run.path(), {1}, 2, 2, one_block());
    fail_file_operation(0);
    if (status.ok()) {
      expect_whole(run.path(), 2, one_block());
      EXPECT_GT(k, 20) << "few operations were counted";
      return;
    }
    const auto reader = CheckpointReader::open(run.path());
    ASSERT_TRUE(reader.ok()) << "operation " << k << ": " << reader.status();
    // Once its folder is renamed the new one is complete, whether `latest` was moved or not.
    expect_whole(run.path(), (*reader)->trainer_state().steps_done, one_block());
    ASSERT_TRUE(save(run.path(), {1}, 2, 2, one_block()).ok()) << "it can be written again";
    expect_whole(run.path(), 2, one_block());
    ASSERT_LT(k, 1000);
  }
}

/// Every checkpoint that says it is complete is whole, and the newest one has at least `steps`.
void expect_one_is_whole(const std::string& run, uint64_t steps, const std::string& where) {
  const auto folders = complete_checkpoints(run);
  ASSERT_TRUE(folders.ok()) << where << ": " << folders.status();
  for (const std::string& folder : *folders) {
    EXPECT_THAT(find_faults(folder), IsEmpty()) << where << ": " << folder;
  }
  EXPECT_GE(durable_steps(run, ""), steps) << where;
}

TEST(Checkpoint, ADeathBetweenAnyTwoOperationsLeavesOneThatIsWhole) {
  for (const uint64_t again : {2, 1}) {  // A later one, and one of the same step.
    tests::TemporaryFolder run;
    ASSERT_TRUE(save(run.path(), {1}, 1, 1, one_block()).ok());
    int operations = 0;
    watch_file_operations([&](const std::string& path, const char* what) {
      ++operations;
      expect_one_is_whole(run.path(), 1, std::string(what) + " " + path);
    });
    const absl::Status saved = save(run.path(), {1}, again, 1, one_block());
    watch_file_operations(nullptr);
    ASSERT_TRUE(saved.ok()) << saved;
    EXPECT_GT(operations, 20);
    expect_one_is_whole(run.path(), again, "the end");
    expect_whole(run.file("checkpoint/latest"), again, one_block());
  }
}

TEST(Checkpoint, GetsItsNameInOneOperation) {
  tests::TemporaryFolder run;
  int renames = 0;
  watch_file_operations([&](const std::string& path, const char* what) {
    if (std::string(what) == "rename" && path == run.file("checkpoint/step-00000001")) ++renames;
  });
  const absl::Status saved = save(run.path(), {3}, 1);
  watch_file_operations(nullptr);
  ASSERT_TRUE(saved.ok()) << saved;
  EXPECT_EQ(renames, 1);
}

TEST(Checkpoint, WhatADeathHasLeftHalfDeletedDoesNotKeepOneOfTheSameStepFromItsPlace) {
  tests::TemporaryFolder run;
  ASSERT_TRUE(save(run.path(), {3}, 1).ok());
  fs::create_directories(run.file("checkpoint/step-00000001.deleted.tmp"));
  std::ofstream(run.file("checkpoint/step-00000001.deleted.tmp/left")) << "half";
  ASSERT_TRUE(save(run.path(), {2}, 1).ok());
  expect_whole(run.path(), 1);
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
      return CheckpointReader::open(folder).status();
    };
    EXPECT_TRUE(absl::IsDataLoss(put(whole.substr(0, whole.size() - 1)))) << entry.path();
    EXPECT_FALSE(find_faults(folder).empty());
    std::string flipped = whole;
    flipped[flipped.size() - 3] ^= 1;
    const absl::Status status = put(flipped);
    const bool has_tensors = entry.path().extension() == ".safetensors";
    EXPECT_EQ(status.ok(), has_tensors) << "tensors are compared when they are read";
    EXPECT_THAT(find_faults(folder), ElementsAre(HasSubstr(entry.path().filename().string())));
    EXPECT_TRUE(put(whole).ok());
  }
  EXPECT_THAT(find_faults(folder), IsEmpty());
}

/// Changes the last byte of a shard, and returns the name of the tensor that it belongs to.
std::string damage(const std::string& path) {
  const auto file = SafetensorsFile::open(path);
  std::string last;
  for (const auto& [name, entry] : (*file)->tensors()) {
    if (entry.end == (*file)->tensors().rbegin()->second.end) last = name;
  }
  std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(-1, std::ios::end);
  stream.put('\x55');
  return last;
}

TEST(Checkpoint, NoTensorIsReadThatIsNotWhatWasWritten) {
  tests::TemporaryFolder run;
  ASSERT_TRUE(save(run.path(), {3}, 1).ok());
  const std::string folder = run.file("checkpoint/step-00000001");
  const std::string name = "optimizer-00002-of-00002.safetensors";
  const std::string damaged = damage(folder + "/" + name);
  const auto reader = CheckpointReader::open(folder);
  ASSERT_TRUE(reader.ok()) << reader.status();
  int damaged_count = 0;
  for (const auto& spec : plans::range_parameters(small_model(), {0, 6})) {
    for (const char* suffix : {"", ".exp_avg", ".exp_avg_sq"}) {
      std::vector<float> values(static_cast<size_t>(plans::element_count(spec)));
      const absl::Status status = (*reader)->read(spec.name + suffix, values);
      if (status.ok()) continue;
      ++damaged_count;
      EXPECT_TRUE(absl::IsDataLoss(status));
      EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(name), HasSubstr(damaged)));
    }
  }
  EXPECT_EQ(damaged_count, 1);
  EXPECT_THAT(find_faults(folder),
              ElementsAre(AllOf(HasSubstr(name), HasSubstr(damaged), HasSubstr("CRC-32C"))));
}

TEST(Checkpoint, WithoutDigestsOfTensorsItsFilesAreReadAsAWhole) {
  tests::TemporaryFolder run;
  ASSERT_TRUE(save(run.path(), {3}, 1).ok());
  const std::string folder = run.file("checkpoint/step-00000001");
  auto listing = read_listing(folder);
  for (auto& [name, file] : *listing) file.tensors.clear();
  std::ofstream(folder + "/COMPLETE") << to_json(*listing).dump();
  expect_whole(folder, 1);
  damage(folder + "/model-00001-of-00002.safetensors");
  EXPECT_TRUE(absl::IsDataLoss(CheckpointReader::open(folder).status()));
}

TEST(Checkpoint, IsNotCompleteWithoutWhatItsWritersHaveReported) {
  for (const std::string what : {"missing", "damaged", "cut off"}) {
    tests::TemporaryFolder run;
    ASSERT_TRUE(save(run.path(), {3}, 1, 1).ok());
    const auto files = save_shards(run.path(), {3}, 2);
    ASSERT_TRUE(files.ok());
    const std::string shard =
        partial_checkpoint_path(run.path(), 2, kGeneration) + "/model-00002-of-00002.safetensors";
    if (what == "missing") fs::remove(shard);
    if (what == "damaged") damage(shard);
    if (what == "cut off") fs::resize_file(shard, fs::file_size(shard) - 4);
    TrainerState state;
    state.steps_done = 2;
    const absl::Status status =
        complete_checkpoint(run.path(), kGeneration, small_model(), state, *files, 1).status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << what << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("model-00002-of-00002.safetensors"));
    expect_whole(run.path(), 1);
  }
}

TEST(Checkpoint, WhatNobodyWillCompleteIsDeleted) {
  tests::TemporaryFolder run;
  ASSERT_TRUE(save(run.path(), {3}, 1, 0).ok());
  const std::string emergency = run.path() + "/checkpoint/step-00000002.g00000001.w00002.tmp";
  fs::create_directories(emergency);
  const auto partial = [&](uint64_t steps_done, uint64_t generation) {
    return partial_checkpoint_path(run.path(), steps_done, generation);
  };
  for (const uint64_t generation : {kGeneration - 1, kGeneration, kGeneration + 1}) {
    for (const uint64_t steps_done : {2, 3, 4, 5}) {
      fs::create_directories(partial(steps_done, generation));
      std::ofstream(partial(steps_done, generation) + "/model") << "weights";
    }
  }
  delete_partial_checkpoints(run.path(), "own", kGeneration, 4, {3});
  for (const uint64_t steps_done : {2, 3, 4, 5}) {
    EXPECT_FALSE(fs::exists(partial(steps_done, kGeneration - 1))) << steps_done;
    EXPECT_TRUE(fs::exists(partial(steps_done, kGeneration + 1))) << steps_done;
    EXPECT_EQ(fs::exists(partial(steps_done, kGeneration)), steps_done % 2 == 1) << steps_done;
  }
  EXPECT_TRUE(fs::exists(emergency)) << "workers have left it";
  expect_whole(run.path(), 1);
  delete_partial_checkpoints(run.path() + "/nowhere", "own", kGeneration, 4, {});
}

TEST(Checkpoint, WhatAnotherRunHasNotCompletedOrNotDeletedStays) {
  tests::TemporaryFolder run;
  const std::string one = run.file("checkpoint/step-00000001");
  const std::string deleted = one + ".deleted.tmp";
  const std::vector<std::string> partial = {
      deleted, partial_checkpoint_path(run.path(), 1, kGeneration - 1),
      partial_checkpoint_path(run.path(), 2, kGeneration - 1)};
  ASSERT_TRUE(save(run.path(), {1}, 1, 1, one_block(), "other").ok());
  for (const std::string& copy : partial) fs::copy(one, copy);
  fs::remove_all(one);
  delete_partial_checkpoints(run.path(), "own", kGeneration, 4, {});
  for (const std::string& copy : partial) expect_whole(copy, 1, one_block());
  ASSERT_TRUE(save(run.path(), {1}, 1, 1, one_block(), "own").ok());
  ASSERT_TRUE(save(run.path(), {1}, 2, 1, one_block(), "own").ok()) << "the first is deleted";
  EXPECT_FALSE(fs::exists(one));
  EXPECT_FALSE(fs::exists(deleted)) << "it has made room";
  expect_whole(run.file("checkpoint/set-aside.step-00000001.deleted.tmp"), 1, one_block());
  delete_partial_checkpoints(run.path(), "other", kGeneration, 4, {});
  for (const std::string& copy : partial) EXPECT_FALSE(fs::exists(copy)) << "they are its own";
}

TEST(Checkpoint, AWriterOfAnEarlierGenerationTouchesNothingOfItsSuccessor) {
  tests::TemporaryFolder run;
  ASSERT_TRUE(save_shards(run.path(), {2}, 2, kGeneration - 1).ok());
  const auto files = save_shards(run.path(), {3}, 2);
  ASSERT_TRUE(files.ok());
  // It comes late, with other layers under the same names.
  ASSERT_TRUE(save_shards(run.path(), {2}, 2, kGeneration - 1).ok());
  TrainerState state;
  state.steps_done = 2;
  ASSERT_TRUE(complete_checkpoint(run.path(), kGeneration, small_model(), state, *files, 1).ok());
  EXPECT_THAT(find_faults(run.file("checkpoint/step-00000002")), IsEmpty());
  EXPECT_FALSE(fs::exists(partial_checkpoint_path(run.path(), 2, kGeneration - 1)))
      << "what it has left is of no use";
}

TEST(Checkpoint, LeavesNothingOfAnAttemptThatWasCutOff) {
  tests::TemporaryFolder run;
  const std::string partial = partial_checkpoint_path(run.path(), 2, kGeneration);
  fs::create_directories(partial);
  std::ofstream(partial + "/model-00001-of-00002.safetensors.123.tmp") << "half";
  ASSERT_TRUE(save(run.path(), {3}, 2).ok());
  for (const auto& entry : fs::directory_iterator(run.file("checkpoint/step-00000002"))) {
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
  }
}

TEST(Checkpoint, ItsShapesAreThoseOfItsConfig) {
  tests::TemporaryFolder run;
  ASSERT_TRUE(save(run.path(), {3}, 1).ok());
  const std::string folder = run.file("checkpoint/step-00000001");
  plans::ModelSpec wider = small_model();
  wider.positions = 5;
  const std::string config = to_config(wider).dump();
  std::ofstream(folder + "/config.json") << config;
  auto listing = read_listing(folder);
  (*listing)["config.json"] = {config.size(), crc32c(std::as_bytes(std::span(config))), {}};
  std::ofstream(folder + "/COMPLETE") << to_json(*listing).dump();
  const std::vector<std::string> faults = find_faults(folder);
  EXPECT_EQ(faults.size(), 3u) << "the weight and its two moments";
  EXPECT_THAT(faults,
              Each(AllOf(HasSubstr("wpe.weight"), HasSubstr("[4, 2]"), HasSubstr("[5, 2]"))));
}

TEST(Checkpoint, WithoutCompleteThereIsNone) {
  tests::TemporaryFolder run;
  EXPECT_TRUE(absl::IsNotFound(CheckpointReader::open(run.path()).status()));
  ASSERT_TRUE(save(run.path(), {3}, 1).ok());
  fs::remove(run.file("checkpoint/step-00000001/COMPLETE"));
  EXPECT_TRUE(absl::IsNotFound(CheckpointReader::open(run.path()).status()));
}

TEST(Checkpoint, WhatMayNotBeReadIsNotSaidToBeMissing) {
  tests::TemporaryFolder run;
  ASSERT_TRUE(save(run.path(), {3}, 1).ok());
  const std::string folder = run.file("checkpoint/step-00000001");
  fs::permissions(run.path(), fs::perms::all);
  for (const std::string& closed : {folder, run.file("checkpoint")}) {
    const fs::perms before = fs::status(closed).permissions();
    fs::permissions(closed, fs::perms::none);
    absl::Status run_seen, seen, config;
    {
      const tests::WithoutRights nobody;
      run_seen = CheckpointReader::open(run.path()).status();
      seen = CheckpointReader::open(folder).status();
      config = read_model_config(folder).status();
    }
    fs::permissions(closed, before);
    for (const absl::Status& status : {run_seen, seen, config}) {
      EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("Permission denied"));
    }
  }
  expect_whole(run.path(), 1);
}

TEST(Checkpoint, AFolderOfCheckpointsThatCannotBeReadIsNotSaidToBeMissing) {
  tests::TemporaryFolder run;
  ASSERT_TRUE(save(run.path(), {3}, 1).ok());
  const std::string folder = run.file("checkpoint");
  fs::rename(folder, run.file("elsewhere"));
  EXPECT_TRUE(absl::IsNotFound(complete_checkpoints(run.path()).status()));
  EXPECT_TRUE(runs_of_checkpoints(run.path()).ok());
  const auto expect_unavailable = [&](const char* reason) {
    for (const absl::Status& status :
         {complete_checkpoints(run.path()).status(), own_checkpoints(run.path(), "own").status(),
          runs_of_checkpoints(run.path()).status(), CheckpointReader::open(run.path()).status()}) {
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(folder), HasSubstr(reason)));
    }
    fs::remove(folder);
  };
  fs::create_symlink("checkpoint", folder);
  expect_unavailable("Too many levels of symbolic links");
  fs::create_symlink("not/mounted", folder);
  expect_unavailable("a link to not/mounted: No such file or directory");
  std::ofstream(folder) << "x";
  expect_unavailable("Not a directory");
  fs::create_symlink("elsewhere", folder);
  expect_whole(run.path(), 1);
}

/// A run with the checkpoints of steps 1 and 2; who has no rights may write one, and not read that
/// of step 2.
struct TwoOfWhichTheNewerIsClosed {
  TwoOfWhichTheNewerIsClosed() {
    for (const uint64_t steps : {1, 2}) {
      EXPECT_TRUE(save(run.path(), {1}, steps, 0, one_block()).ok());
    }
    before = fs::status(closed).permissions();
    fs::permissions(run.path(), fs::perms::all);
    fs::permissions(run.file("checkpoint"), fs::perms::all);
    fs::permissions(closed, fs::perms::none);
  }
  void open() const { fs::permissions(closed, before); }

  tests::TemporaryFolder run;
  const std::string closed = run.file("checkpoint/step-00000002");
  fs::perms before = fs::perms::none;
};

TEST(Checkpoint, ANewerOneThatMayNotBeReadIsToldOf) {
  TwoOfWhichTheNewerIsClosed two;
  absl::StatusOr<std::vector<std::string>> folders;
  absl::StatusOr<WholeCheckpoint> whole;
  absl::Status opened;
  {
    const tests::WithoutRights nobody;
    folders = complete_checkpoints(two.run.path());
    whole = newest_whole_checkpoint(two.run.path(), "own");
    opened = CheckpointReader::open(two.run.path()).status();
  }
  two.open();
  ASSERT_TRUE(folders.ok()) << folders.status();
  EXPECT_THAT(*folders, ElementsAre(two.closed, two.run.file("checkpoint/step-00000001")));
  ASSERT_TRUE(whole.ok()) << whole.status();
  ASSERT_TRUE(whole->reader);
  EXPECT_EQ(whole->reader->folder(), two.run.file("checkpoint/step-00000001"));
  EXPECT_THAT(whole->faults,
              ElementsAre(AllOf(HasSubstr(two.closed), HasSubstr("Permission denied"))));
  EXPECT_TRUE(absl::IsPermissionDenied(opened)) << opened;
}

TEST(Checkpoint, OneThatMayNotBeReadKeepsNoOtherFromBeingWritten) {
  TwoOfWhichTheNewerIsClosed two;
  absl::Status saved;
  {
    const tests::WithoutRights nobody;
    saved = save(two.run.path(), {1}, 3, 2, one_block());
  }
  two.open();
  EXPECT_TRUE(saved.ok()) << saved;
  for (const uint64_t steps : {1, 2, 3}) {
    expect_whole(two.run.file("checkpoint/" + to_text({steps})), steps, one_block());
  }
}

TEST(Checkpoint, NamesTheTensorThatHasAnotherShape) {
  tests::TemporaryFolder run;
  ASSERT_TRUE(save(run.path(), {3}, 1).ok());
  const auto reader = CheckpointReader::open(run.path());
  plans::ModelSpec wider = small_model();
  wider.channels = 4;
  const absl::Status status = (*reader)->check_model(wider);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("wte.weight"), HasSubstr("[5, 2]"), HasSubstr("[5, 4]")));
}

/// Every combination of the choices: of norms, MLPs and positions in the first 8, then with biases,
/// widths, and heads that share keys, with positions that are scaled.
std::vector<plans::ModelSpec> all_models() {
  std::vector<plans::ModelSpec> models;
  for (int bits = 0; bits < 128; ++bits) {
    plans::ModelSpec model = small_model();
    model.norm = (bits & 1) != 0 ? "rms_norm" : "layer_norm";
    model.mlp = (bits & 2) != 0 ? "swiglu" : "gelu";
    model.position_embedding_type = (bits & 4) != 0 ? "rotary" : "learned";
    model.has_bias = (bits & 8) == 0;
    model.intermediate_size = (bits & 16) != 0 ? 6 : 0;
    model.norm_epsilon = 1e-6;
    model.rope_theta = plans::has_rotary(model) ? 500.5 : 10000;
    if ((bits & 32) != 0) {
      model.heads = 4;
      model.kv_heads = 2;
      model.head_size = 6;
      model.rope_type = plans::has_rotary(model) ? "llama3" : "default";
      model.rope_factor = plans::has_rotary(model) ? 2.5 : 1;
      model.rope_high_freq_factor = plans::has_rotary(model) ? 6.5 : 4;
    }
    model.has_qkv_bias = (bits & 64) != 0 && !model.has_bias;
    models.push_back(model);
  }
  return models;
}

TEST(Checkpoint, AConfigTellsTheChoicesOfItsModel) {
  for (const plans::ModelSpec& model : all_models()) {
    const auto read = from_config(to_config(model), "config.json");
    ASSERT_TRUE(read.ok()) << read.status();
    plans::ModelSpec expected = model;
    expected.name = read->name;
    expected.intermediate_size = read->intermediate_size;  // Llama's always says it.
    EXPECT_EQ(plans::mlp_width(*read), plans::mlp_width(model));
    EXPECT_EQ(*read, expected);
  }
}

TEST(Checkpoint, IsOfNoModelWithOtherChoices) {
  const std::vector<plans::ModelSpec> models = all_models();
  for (size_t i = 0; i < 8; ++i) {
    tests::TemporaryFolder run;
    ASSERT_TRUE(save(run.path(), {}, 1, 2, models[i]).ok());
    const auto reader = CheckpointReader::open(run.path());
    ASSERT_TRUE(reader.ok()) << reader.status();
    for (size_t j = 0; j < 8; ++j) {
      EXPECT_EQ((*reader)->check_model(models[j]).ok(), i == j) << i << " as " << j;
    }
  }
}

TEST(Checkpoint, HasLlamasNamesAndConfig) {
  plans::ModelSpec model = small_model();
  model.name = "llama";
  plans::apply_family(model);
  tests::TemporaryFolder run;
  ASSERT_TRUE(save(run.path(), {3}, 1, 2, model).ok());
  const auto reader = CheckpointReader::open(run.path());
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (const char* name :
       {"model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
        "model.layers.3.self_attn.q_proj.weight", "model.layers.3.self_attn.k_proj.weight",
        "model.layers.3.self_attn.v_proj.weight", "model.layers.3.self_attn.o_proj.weight",
        "model.layers.1.post_attention_layernorm.weight", "model.layers.1.mlp.gate_proj.weight",
        "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.down_proj.weight",
        "model.norm.weight"}) {
    EXPECT_TRUE((*reader)->has(name)) << name;
  }
  EXPECT_EQ(plans::range_parameters(model, {0, 6}).size(), 1 + 4 * 9 + 1);
}

/// What config.json of a Llama says of things that we have not got.
TEST(Checkpoint, RefusesLlamasOfAnotherForm) {
  plans::ModelSpec model = small_model();
  model.name = "llama";
  plans::apply_family(model);
  nlohmann::json config = to_config(model);
  EXPECT_TRUE(from_config(config, "config.json").ok());
  config.erase("rope_theta");
  EXPECT_TRUE(from_config(config, "config.json").ok()) << "transformers 5 has it elsewhere";
  for (const char* place : {"rope_scaling", "rope_parameters"}) {
    nlohmann::json other = config;
    for (const char* key : {"rope_scaling", "rope_parameters"}) other.erase(key);
    other[place] = {{"rope_type", "default"}, {"rope_theta", 5000.0}};
    const auto read = from_config(other, "config.json");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->rope_theta, 5000) << place;
  }
  const std::vector<std::pair<const char*, nlohmann::json>> changes = {
      {"hidden_act", {{"hidden_act", "gelu"}}},
      {"no rope_type", {{"rope_scaling", {{"factor", 8}}}}},
      {"rope_type yarn", {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 8}}}}},
      {"rope_type dynamic", {{"rope_parameters", {{"rope_type", "dynamic"}}}}},
      {"rope_type longrope", {{"rope_scaling", {{"type", "longrope"}}}}},
      {"rope_type default, which", {{"rope_scaling", {{"rope_type", "default"}, {"factor", 8}}}}},
      {"rope_theta is 10000 in one", {{"rope_parameters", {{"rope_theta", 6.0}}}}},
      {"rope_theta is 10000 in one",
       {{"rope_scaling", {{"type", "default"}, {"rope_theta", 6.0}}}}},
      {"partial_rotary_factor", {{"rope_scaling", {{"partial_rotary_factor", 0.5}}}}},
      {"partial_rotary_factor", {{"rope_parameters", {{"partial_rotary_factor", 0.5}}}}},
      {"says otherwise", {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2}}}}},
      {"partial_rotary_factor", {{"partial_rotary_factor", 0.5}}},
      {"use_sliding_window", {{"use_sliding_window", true}}},
      {"sliding_attention", {{"layer_types", {"full_attention", "sliding_attention"}}}},
      {"biases in one", {{"attention_bias", true}}}};
  for (const auto& [what, change] : changes) {
    nlohmann::json changed = config;
    changed.update(change);
    changed["rope_theta"] = 10000.0;
    const absl::Status status = from_config(changed, "config.json").status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << change;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  }
  for (const auto& [what, change] : std::vector<std::pair<const char*, nlohmann::json>>{
           {"num_key_value_heads", {{"num_key_value_heads", 3}}},
           {"num_key_value_heads", {{"num_key_value_heads", 0}}},
           {"head_dim", {{"head_dim", 5}}},
           {"\"factor\"", {{"rope_scaling", {{"rope_type", "llama3"}}}}},
           {"high_freq_factor",
            {{"rope_scaling",
              {{"rope_type", "llama3"},
               {"factor", 8},
               {"low_freq_factor", 4},
               {"high_freq_factor", 1},
               {"original_max_position_embeddings", 8}}},
             {"rope_parameters", nullptr}}}}) {
    nlohmann::json changed = config;
    changed.update(change);
    const absl::Status status = from_config(changed, "config.json").status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << change;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  }
  for (const auto& [key, value] : config.items()) {
    for (const nlohmann::json& wrong :
         {nlohmann::json("x"), nlohmann::json(-1), nlohmann::json()}) {
      nlohmann::json changed = config;
      changed[key] = wrong;
      (void)from_config(changed, "config.json");  // An error or not, but no exception.
    }
  }
}

TEST(Checkpoint, WaitsForATextFileThatCannotBeRead) {
  tests::TemporaryFolder run;
  const std::string tokenizer = run.file("tokenizer/tokenizer.json");
  fs::create_directories(tokenizer);  // It is no file.
  const absl::Status status = save(run.path(), {1}, 1, 1, one_block());
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(tokenizer));
  EXPECT_FALSE(complete_checkpoints(run.path()).ok());
  fs::remove(tokenizer);
  ASSERT_TRUE(save(run.path(), {1}, 1, 1, one_block()).ok());
  expect_whole(run.path(), 1, one_block());
}

TEST(Checkpoint, RefusesToCompleteWhatIsNotWhole) {
  tests::TemporaryFolder run;
  TrainerState state;
  EXPECT_FALSE(complete_checkpoint(run.path(), kGeneration, small_model(), state, {}, 2).ok());
  EXPECT_FALSE(
      complete_checkpoint(run.path(), kGeneration, small_model(), state, {{"../x", 1, 1, {}}}, 2)
          .ok());
}

}  // namespace
}  // namespace skein::gpu
