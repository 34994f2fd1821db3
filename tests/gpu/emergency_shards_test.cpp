#include "gpu/checkpoint/emergency_shards.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "gpu/checkpoint/checkpoint_reader.hpp"
#include "gpu/files/durable_file.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/without_rights.hpp"

namespace skein::gpu {
namespace {

namespace fs = std::filesystem;

plans::JobSpec small_job() {
  plans::JobSpec job;
  job.model.vocab_size = 5;
  job.model.positions = 4;
  job.model.layers = 2;
  job.model.heads = 1;
  job.model.channels = 2;
  return job;
}
constexpr int kLayers = 4;  // Embedding, two blocks, head.

/// Writes some layers as a worker does, all numbers of which are `value`.
std::string leave(const std::string& run, uint64_t steps, uint64_t generation, uint32_t worker,
                  plans::LayerRange layers, float value, const std::string& of = "") {
  const plans::ModelSpec model = small_job().model;
  const std::string folder = emergency_path(run, steps, generation, worker);
  std::vector<SavedFile> files;
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    const auto specs = plans::layer_parameters(model, layer, {layer, layer + 1});
    std::vector<std::vector<float>> memory;
    std::vector<SavedParameter> parameters;
    memory.reserve(specs.size());
    for (const plans::ParameterSpec& spec : specs) {
      memory.emplace_back(static_cast<size_t>(plans::element_count(spec)), value);
      parameters.push_back({spec, memory.back(), memory.back(), memory.back()});
    }
    const auto written = write_shard(folder, static_cast<int>(layer), kLayers, "adamw", parameters);
    EXPECT_TRUE(written.ok()) << written.status();
    files.insert(files.end(), written->begin(), written->end());
  }
  TrainerState state;
  state.run = of;
  state.steps_done = steps;
  EXPECT_TRUE(finish_emergency_shards(folder, state, files).ok());
  return folder;
}

std::optional<double> any_loss(uint64_t, uint64_t) { return 2.5; }

/// The checkpoint that was made: its steps and a number of its embedding.
std::pair<uint64_t, float> read(const std::string& run) {
  const auto reader = CheckpointReader::open(run);
  if (!reader.ok()) return {0, 0};
  const auto spec = plans::layer_parameters(small_job().model, 0, {0, 1}).front();
  std::vector<float> values(static_cast<size_t>(plans::element_count(spec)));
  EXPECT_TRUE((*reader)->read(spec.name, values).ok());
  EXPECT_TRUE((*reader)->check_model(small_job().model).ok());
  EXPECT_EQ((*reader)->trainer_state().loss, 2.5);
  EXPECT_EQ((*reader)->trainer_state().positions, 3) << "the workers do not know it";
  EXPECT_EQ((*reader)->trainer_state().from_digest, "abc") << "nor that";
  return {(*reader)->trainer_state().steps_done, values.front()};
}

TEST(EmergencyShards, LayersOfSeveralWorkersMakeACheckpoint) {
  tests::TemporaryFolder run;
  leave(run.path(), 7, 3, 1, {0, 3}, 1);
  leave(run.path(), 7, 3, 2, {2, 4}, 1);
  const auto adopted = adopt_emergency_shards(run.path(), small_job(), any_loss, {"", 3, "abc"});
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  EXPECT_EQ(adopted->path, run.file("checkpoint/step-00000007"));
  EXPECT_EQ(adopted->steps_done, 7u);
  EXPECT_EQ(read(run.path()), std::pair(uint64_t{7}, 1.0F));
  EXPECT_FALSE(fs::exists(emergency_path(run.path(), 7, 3, 1))) << "it is of no use any more";
  const auto again = adopt_emergency_shards(run.path(), small_job(), any_loss, {"", 3, "abc"});
  EXPECT_TRUE(again.ok() && again->path.empty());
}

/// On another file system than the temporary folder of tests.
std::string folder_on_another_disk() {
  const fs::path here = fs::temp_directory_path();
  for (const char* each : {"/dev/shm", ".", "/var/tmp"}) {
    struct stat there {};
    struct stat other {};
    const bool are_there = stat(here.c_str(), &there) == 0 && stat(each, &other) == 0;
    if (!are_there || there.st_dev == other.st_dev) continue;
    std::string name = (fs::absolute(each) / "skein-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) return name;
  }
  return "";
}

TEST(EmergencyShards, WhatCanOnlyBeCopiedIsOnDiskBeforeItsCheckpointIsComplete) {
  tests::TemporaryFolder run;
  const std::string folder = leave(run.path(), 7, 3, 1, {0, 4}, 1);
  const std::string other = folder_on_another_disk();
  ASSERT_FALSE(other.empty()) << "only one file system here; Linux has /dev/shm";
  fs::copy(folder, other + "/left");
  fs::remove_all(folder);
  fs::create_directory_symlink(other + "/left", folder);
  int synced = 0;
  watch_file_operations([&](const std::string& path, const char* what) {
    if (std::string(what) == "sync" && path.find(".safetensors.") != std::string::npos &&
        path.find(".index.") == std::string::npos)
      ++synced;
  });
  const auto adopted = adopt_emergency_shards(run.path(), small_job(), any_loss, {"", 3, "abc"});
  watch_file_operations(nullptr);
  fs::remove_all(other);
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  EXPECT_EQ(synced, 2 * kLayers) << "weights and moments of each layer";
  EXPECT_EQ(read(run.path()), std::pair(uint64_t{7}, 1.0F));
}

TEST(EmergencyShards, TheNewestStateThatIsThereAsAWholeIsTaken) {
  tests::TemporaryFolder run;
  leave(run.path(), 7, 3, 1, {0, 4}, 1);
  leave(run.path(), 8, 3, 1, {0, 4}, 2);
  leave(run.path(), 9, 3, 1, {0, 3}, 3);  // Nobody has its last layer.
  ASSERT_TRUE(adopt_emergency_shards(run.path(), small_job(), any_loss, {"", 3, "abc"}).ok());
  EXPECT_EQ(read(run.path()), std::pair(uint64_t{8}, 2.0F));
}

/// Whatever fails behind that: there is nothing newer to make one of any more.
TEST(EmergencyShards, ACheckpointThatHasItsNameIsMade) {
  int64_t failed_later = 0;
  for (int64_t operation = 1;; ++operation) {
    tests::TemporaryFolder run;
    leave(run.path(), 7, 3, 1, {0, 4}, 1);
    leave(run.path(), 9, 3, 1, {0, 2}, 1);
    fail_file_operation(operation);
    const auto adopted = adopt_emergency_shards(run.path(), small_job(), any_loss, {"", 3, "abc"});
    fail_file_operation(0);
    const bool is_made = fs::exists(run.file("checkpoint/step-00000007/COMPLETE"));
    ASSERT_EQ(adopted.ok(), is_made) << operation << ": " << adopted.status();
    if (!is_made) continue;
    EXPECT_EQ(adopted->path, run.file("checkpoint/step-00000007"));
    EXPECT_EQ(adopted->steps_done, 7u);
    EXPECT_EQ(adopted->passed_over.size(), 1u) << "one lacks layers";
    if (!fs::exists(emergency_path(run.path(), 7, 3, 1))) break;  // Nothing has failed.
    ++failed_later;
  }
  EXPECT_GT(failed_later, 1);
}

TEST(EmergencyShards, WhatTheRunHasTakenBackIsNotTaken) {
  tests::TemporaryFolder run;
  leave(run.path(), 9, 3, 1, {0, 4}, 1);
  leave(run.path(), 6, 4, 2, {0, 4}, 2);
  const auto find_loss = [](uint64_t, uint64_t generation) -> std::optional<double> {
    return generation == 4 ? std::optional(2.5) : std::nullopt;
  };
  ASSERT_TRUE(adopt_emergency_shards(run.path(), small_job(), find_loss, {"", 3, "abc"}).ok());
  EXPECT_EQ(read(run.path()), std::pair(uint64_t{6}, 2.0F));
}

TEST(EmergencyShards, OfTwoCopiesTheOneThatIsWholeIsTaken) {
  tests::TemporaryFolder run;
  const std::string damaged = leave(run.path(), 7, 3, 1, {0, 4}, 1);
  leave(run.path(), 7, 3, 2, {0, 2}, 1);
  std::fstream file(damaged + "/model-00001-of-00004.safetensors",
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('x');
  file.close();
  ASSERT_TRUE(adopt_emergency_shards(run.path(), small_job(), any_loss, {"", 3, "abc"}).ok());
  EXPECT_EQ(read(run.path()), std::pair(uint64_t{7}, 1.0F));
}

TEST(EmergencyShards, WhatWorkersOfAnotherRunHaveLeftIsPassedOver) {
  tests::TemporaryFolder run;
  leave(run.path(), 7, 3, 1, {0, 4}, 1, "own");
  leave(run.path(), 8, 3, 1, {0, 2}, 2, "own");
  const std::string others = leave(run.path(), 8, 3, 2, {2, 4}, 2, "other");
  EXPECT_EQ(runs_of_checkpoints(run.path())->runs, (std::set<std::string>{"other", "own"}));
  const auto adopted = adopt_emergency_shards(run.path(), small_job(), any_loss, {"own", 3, "abc"});
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  EXPECT_EQ(adopted->passed_over.size(), 1u);
  EXPECT_EQ(read(run.path()), std::pair(uint64_t{7}, 1.0F));
  EXPECT_EQ(read_trainer_state(adopted->path)->run, "own");
  EXPECT_TRUE(fs::exists(others)) << "it is not ours to delete";
}

TEST(EmergencyShards, WhatWorkersOfAnotherRunHaveLeftStaysBesideNewerCheckpoints) {
  tests::TemporaryFolder run;
  leave(run.path(), 7, 3, 1, {0, 4}, 1, "own");
  const std::string own = leave(run.path(), 6, 3, 1, {0, 4}, 2, "own");
  const std::string others = leave(run.path(), 6, 3, 2, {0, 4}, 2, "other");
  const auto adopted = adopt_emergency_shards(run.path(), small_job(), any_loss, {"own", 3, "abc"});
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  EXPECT_EQ(adopted->steps_done, 7u);
  EXPECT_FALSE(fs::exists(own)) << "it is of no use any more";
  EXPECT_TRUE(fs::exists(others + "/HELD")) << "it is not ours to delete";
}

TEST(EmergencyShards, WhatDoesNotSayOfWhichRunItIsIsTaken) {
  tests::TemporaryFolder run;
  leave(run.path(), 7, 3, 1, {0, 4}, 1);
  const auto adopted = adopt_emergency_shards(run.path(), small_job(), any_loss, {"own", 3, "abc"});
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  ASSERT_EQ(adopted->steps_done, 7u);
  EXPECT_EQ(read_trainer_state(adopted->path)->run, "own") << "it is the run's own from now on";
}

TEST(EmergencyShards, AStateWithoutWhatItsTrainerSaidIsNotTaken) {
  tests::TemporaryFolder run;
  const std::string folder = leave(run.path(), 7, 3, 1, {0, 4}, 1);
  std::ofstream(folder + "/trainer_state.json", std::ios::app) << " ";
  const auto adopted = adopt_emergency_shards(run.path(), small_job(), any_loss, {"", 3, "abc"});
  EXPECT_TRUE(adopted.ok() && adopted->path.empty()) << adopted.status();
  EXPECT_EQ(adopted->passed_over.size(), 1u);
}

TEST(EmergencyShards, AnotherModelsShardIsPassedOver) {
  tests::TemporaryFolder run;
  const std::string folder = leave(run.path(), 7, 3, 1, {0, 4}, 1);
  plans::JobSpec other = small_job();
  other.model.channels = 4;
  const auto adopted = adopt_emergency_shards(run.path(), other, any_loss, {"", 3, "abc"});
  EXPECT_TRUE(adopted.ok() && adopted->path.empty()) << adopted.status();
  ASSERT_EQ(adopted->passed_over.size(), 1u);
  EXPECT_NE(adopted->passed_over[0].find("none of the model"), std::string::npos);
  EXPECT_TRUE(fs::exists(folder)) << "it stays";
}

/// A run in which who has no rights may write, and not look at `path`.
struct ClosedPath {
  ClosedPath(const tests::TemporaryFolder& run, std::string path)
      : path(std::move(path)), before(fs::status(this->path).permissions()) {
    fs::permissions(run.path(), fs::perms::all);
    fs::permissions(run.file("checkpoint"), fs::perms::all);
    fs::permissions(this->path, fs::perms::none);
  }
  ~ClosedPath() { fs::permissions(path, before); }
  ClosedPath(const ClosedPath&) = delete;
  ClosedPath& operator=(const ClosedPath&) = delete;

  const std::string path;
  const fs::perms before;
};

TEST(EmergencyShards, ANewerStateThatMayNotBeReadIsNotPassedOver) {
  tests::TemporaryFolder run;
  leave(run.path(), 7, 3, 1, {0, 4}, 1);
  const std::string left = leave(run.path(), 8, 3, 1, {0, 4}, 2);
  for (const char* file :
       {"", "/HELD", "/trainer_state.json", "/model-00002-of-00004.safetensors"}) {
    absl::StatusOr<AdoptedState> adopted;
    bool is_finished = false;
    bool is_being_left = true;
    {
      const ClosedPath closed(run, left + file);
      const tests::WithoutRights nobody;
      adopted = adopt_emergency_shards(run.path(), small_job(), any_loss, {"", 3, "abc"});
      is_finished = has_emergency_shards(left);
      is_being_left = is_state_being_left(run.path(), "");
    }
    EXPECT_TRUE(absl::IsUnavailable(adopted.status())) << file << ": " << adopted.status();
    EXPECT_THAT(std::string(adopted.status().message()),
                testing::AllOf(testing::HasSubstr("step 8"), testing::HasSubstr(left + file),
                               testing::HasSubstr("Permission denied")));
    EXPECT_TRUE(is_finished) << "nobody deletes it as half of a state";
    EXPECT_FALSE(is_being_left) << "nobody waits for it";
    EXPECT_TRUE(fs::exists(left + "/HELD"));
    EXPECT_FALSE(fs::exists(run.file("checkpoint/step-00000007"))) << "a step would be lost";
  }
  const auto adopted = adopt_emergency_shards(run.path(), small_job(), any_loss, {"", 3, "abc"});
  EXPECT_TRUE(adopted.ok() && adopted->steps_done == 8) << adopted.status();
}

TEST(EmergencyShards, WhatMayNotBeReadIsToldOfBesideWhatIsMissing) {
  tests::TemporaryFolder run;
  const std::string left = leave(run.path(), 8, 3, 1, {0, 2}, 2);
  const std::string other = leave(run.path(), 8, 3, 2, {2, 4}, 2);
  absl::StatusOr<AdoptedState> adopted;
  {
    const ClosedPath closed(run, left);
    const tests::WithoutRights nobody;
    adopted = adopt_emergency_shards(run.path(), small_job(), any_loss, {"", 3, "abc"});
  }
  EXPECT_TRUE(absl::IsUnavailable(adopted.status())) << adopted.status();
  EXPECT_THAT(std::string(adopted.status().message()),
              testing::AllOf(testing::HasSubstr(left + "/HELD: Permission denied"),
                             testing::HasSubstr(other + "/model-00001-of-00004.safetensors")));
  std::ofstream(left + "/HELD") << "no JSON";
  adopted = adopt_emergency_shards(run.path(), small_job(), any_loss, {"", 3, "abc"});
  ASSERT_TRUE(adopted.ok()) << "it can be read, and is damaged: " << adopted.status();
  EXPECT_THAT(adopted->passed_over,
              testing::ElementsAre(
                  testing::AllOf(testing::HasSubstr(left + "/HELD"),
                                 testing::HasSubstr(other + "/model-00001-of-00004.safetensors"))));
}

TEST(EmergencyShards, WhatMayNotBeReadKeepsNothingFromBeingTakenThatIsWholeWithoutIt) {
  tests::TemporaryFolder run;
  const std::string left = leave(run.path(), 8, 3, 1, {0, 2}, 2);
  leave(run.path(), 8, 3, 2, {0, 4}, 2);
  absl::StatusOr<AdoptedState> adopted;
  {
    const ClosedPath closed(run, left);
    const tests::WithoutRights nobody;
    adopted = adopt_emergency_shards(run.path(), small_job(), any_loss, {"", 3, "abc"});
  }
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  EXPECT_EQ(adopted->steps_done, 8u);
  EXPECT_TRUE(fs::exists(left + "/HELD"));
}

TEST(EmergencyShards, AStateIsBeingLeftWhileItsWorkerWritesAlsoForTheSecondTime) {
  tests::TemporaryFolder run;
  const auto is_being_left = [&] { return is_state_being_left(run.path(), ""); };
  const std::string folder = leave(run.path(), 7, 3, 1, {1, 4}, 1);
  leave(run.path(), 0, 4, 2, {0, 1}, 1);  // Newer by its generation, and of no use.
  EXPECT_FALSE(is_being_left()) << "all is written";
  const std::string shard = folder + "/model-00002-of-00004.safetensors";
  const fs::file_time_type held = fs::last_write_time(folder + "/HELD");
  const fs::file_time_type long_ago = held - std::chrono::hours(1);
  fs::last_write_time(shard, held);
  EXPECT_FALSE(is_being_left()) << "clocks do not tell it from HELD, which is written last";
  fs::last_write_time(shard, held + std::chrono::milliseconds(1));
  EXPECT_TRUE(is_being_left()) << "its worker adds what its device has held";
  for (const auto& file : fs::directory_iterator(folder)) fs::last_write_time(file, long_ago);
  fs::last_write_time(shard, long_ago + std::chrono::milliseconds(1));
  EXPECT_FALSE(is_being_left()) << "it has died over that";
  leave(run.path(), 7, 3, 1, {0, 4}, 1);
  EXPECT_FALSE(is_being_left()) << "all is written again";
  fs::remove(folder + "/HELD");
  EXPECT_TRUE(is_being_left()) << "it is not finished";
}

TEST(EmergencyShards, WhatADeviceStillHasIsBeingLeft) {
  tests::TemporaryFolder run;
  const auto is_being_left = [&] { return is_state_being_left(run.path(), ""); };
  const auto age = [](const std::string& path) {
    const auto held = fs::last_write_time(path);
    fs::last_write_time(path, held - std::chrono::hours(1));
  };
  const std::string folder = emergency_path(run.path(), 7, 3, 1);
  ASSERT_TRUE(announce_emergency_shards(folder).ok());
  EXPECT_TRUE(is_being_left()) << "nothing of it is there yet";
  age(folder + "/AWAITED");
  age(folder);
  EXPECT_FALSE(is_being_left()) << "its worker has died";
  leave(run.path(), 7, 3, 1, {1, 4}, 1);
  for (const auto& file : fs::directory_iterator(folder)) age(file.path());
  EXPECT_FALSE(is_being_left());
  ASSERT_TRUE(announce_emergency_shards(folder).ok());
  EXPECT_TRUE(is_being_left()) << "copies are written, and the device has more";
  leave(run.path(), 7, 3, 1, {0, 4}, 1);
  age(folder + "/AWAITED");
  EXPECT_FALSE(is_being_left());
  const auto adopted = adopt_emergency_shards(run.path(), small_job(), any_loss, {"", 3, "abc"});
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  EXPECT_EQ(adopted->steps_done, 7u);
}

TEST(EmergencyShards, WhatCannotBeAnnouncedSaysWhy) {
  tests::TemporaryFolder run;
  const std::string folder = emergency_path(run.path(), 7, 3, 1);
  const std::string awaited = folder + "/AWAITED";
  fs::create_directories(awaited);
  absl::Status status = announce_emergency_shards(folder);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(std::string(status.message()), "cannot write " + awaited + ": Is a directory");
  fs::remove_all(folder);
  std::ofstream(folder) << "x";
  status = announce_emergency_shards(folder);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(std::string(status.message()), "cannot make " + folder + ": Not a directory");
}

TEST(EmergencyShards, WhatIsUnfinishedOrNoneOfOursIsNotTaken) {
  tests::TemporaryFolder run;
  const std::string folder = leave(run.path(), 7, 3, 1, {0, 4}, 1);
  fs::remove(folder + "/HELD");
  fs::create_directories(run.file("checkpoint/step-7.g3.w1.tmp"));
  std::ofstream(run.file("checkpoint/step-7.g3.w1.tmp/HELD")) << "{}";
  fs::create_directories(emergency_path(run.path(), 8, 3, 1));
  std::ofstream(emergency_path(run.path(), 8, 3, 1) + "/HELD") << "no JSON";
  const auto adopted = adopt_emergency_shards(run.path(), small_job(), any_loss, {"", 3, "abc"});
  EXPECT_TRUE(adopted.ok() && adopted->path.empty()) << adopted.status();
}

}  // namespace
}  // namespace skein::gpu
