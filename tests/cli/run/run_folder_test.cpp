#include "cli/run/run_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/checkpoint/trainer_state.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::cli {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::HasSubstr;

class RunFolderTest : public testing::Test {
 protected:
  RunFolderTest() {
    job_.spec.name = "small";
    job_.spec.dump_folder = folder_.path();
  }
  RunFolder make() {
    const auto made = make_run_folder(job_);
    EXPECT_TRUE(made.ok()) << made.status();
    return *made;
  }
  /// A coordinator has begun here, and was killed before its first commit.
  RunFolder begin() {
    const RunFolder made = make();
    std::ofstream(made.file("journal.sqlite")) << "some";
    std::ofstream(made.file("metrics.jsonl"));
    return made;
  }
  /// A checkpoint, or what workers have left, that says of which run it is.
  static void write_state(const RunFolder& made, const std::string& name, const std::string& run) {
    gpu::TrainerState state;
    state.run = run;
    const std::string folder = made.file("checkpoint/" + name) + "/";
    const char* last = name.ends_with(".tmp") ? gpu::kHeldName : gpu::kCompleteName;
    fs::create_directories(folder);
    std::ofstream(folder + gpu::kStateName) << gpu::to_json(state);
    std::ofstream(folder + last) << "{}";
  }
  /// No id is made.
  static void expect_asked(const RunFolder& made, const std::string& why) {
    const auto unclear = take_run_id(made);
    EXPECT_EQ(unclear.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(unclear.status().message()), HasSubstr(why));
    EXPECT_FALSE(fs::exists(fs::symlink_status(made.file("run.id"))));
  }
  std::string latest() const {
    std::error_code error;
    return fs::read_symlink(folder_.file("latest"), error).string();
  }

  tests::TemporaryFolder folder_;
  LoadedJob job_;
};

TEST_F(RunFolderTest, WhoGoesOnNeedsNoOldLogs) {
  const RunFolder made = make();
  fs::remove_all(made.file("logs"));
  fs::remove_all(made.file("traces"));
  const auto opened = open_run_folder(made.path);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_FALSE(fs::exists(made.file("logs"))) << "whoever only looks changes nothing";
  ensure_subfolders(*opened);
  EXPECT_TRUE(fs::is_directory(made.file("logs")));
  EXPECT_TRUE(fs::is_directory(made.file("traces")));
}

TEST_F(RunFolderTest, ANewRunIsNotTheLatestBeforeItIsPointedAt) {
  const RunFolder first = make();
  EXPECT_EQ(latest(), "");
  EXPECT_TRUE(fs::exists(first.file("config.resolved.toml")));
  ASSERT_TRUE(point_latest_at(first).ok());
  EXPECT_EQ(latest(), first.job_id);
  const RunFolder second = make();
  EXPECT_NE(second.path, first.path);
  EXPECT_EQ(latest(), first.job_id);
  // A process that was killed while it did so is in nobody's way.
  fs::create_symlink("nowhere", folder_.file("latest." + second.job_id + ".tmp"));
  ASSERT_TRUE(point_latest_at(second).ok());
  EXPECT_EQ(latest(), second.job_id);
}

TEST_F(RunFolderTest, AResolvedJobThatHasBeenCutIsNotTakenForAWholeOne) {
  const RunFolder made = make();
  const auto whole = read_resolved_job(made);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const auto again = parse_job(*whole);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(to_toml(*again, nullptr), to_toml(job_.spec, nullptr));
  for (const size_t bytes : {whole->size() - 1, whole->rfind("\n[") + 1, size_t{0}}) {
    fs::resize_file(made.file("config.resolved.toml"), bytes);
    EXPECT_EQ(read_resolved_job(made).status().code(), absl::StatusCode::kDataLoss) << bytes;
  }
}

TEST_F(RunFolderTest, ARunHasOneIdThatIsMadeOnce) {
  const RunFolder first = make();
  const auto id = take_run_id(first);
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(id->substr(0, first.job_id.size() + 1), first.job_id + "-");
  EXPECT_EQ(*take_run_id(first), *id);
  RunFolder alike = make();
  alike.job_id = first.job_id;  // As on another machine, in the same second.
  EXPECT_NE(*take_run_id(alike), *id);
}

/// It is what workers that live know the run by, and its checkpoints.
TEST_F(RunFolderTest, AnIdThatIsLostIsThatOfTheCheckpoints) {
  const RunFolder made = make();
  write_state(made, "step-00000001", "small-1");
  write_state(made, "step-00000002", "small-1");
  const auto id = take_run_id(made);
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(*id, "small-1");
  write_state(made, "step-00000003", "other-2");
  EXPECT_EQ(*take_run_id(made), "small-1") << "the file says so";
  fs::remove(made.file("run.id"));
  expect_asked(made, "other-2, small-1");
  fs::rename(made.file("checkpoint/step-00000003"),
             made.file("checkpoint/set-aside.step-00000003"));
  EXPECT_EQ(*take_run_id(made), "small-1") << "the other was set aside";
  write_state(made, "step-00000003.old", "other-2");
  fs::remove(made.file("run.id"));
  EXPECT_EQ(*take_run_id(made), "small-1") << "a folder with a name of its own says nothing";
}

TEST_F(RunFolderTest, AnIdThatIsLostIsNoneThatMayHaveBeenCopiedThere) {
  const RunFolder only_left = make();
  write_state(only_left, "step-00000002.g00000001.w00003.tmp", "other-2");
  expect_asked(only_left, "(other-2)");
  const RunFolder unnamed = make();
  write_state(unnamed, "step-00000001", "");
  write_state(unnamed, "step-00000002", "other-2");
  expect_asked(unnamed, "(other-2)");
  const RunFolder older = make();
  write_state(older, "step-00000001", "");
  EXPECT_TRUE(take_run_id(older).ok()) << "an older release has written no ids";
}

TEST_F(RunFolderTest, AnIdThatIsLostIsNotReplacedBesideWhatCannotBeRead) {
  const RunFolder made = make();
  write_state(made, "step-00000001", "small-1");
  const std::string state = made.file("checkpoint/step-00000001/trainer_state.json");
  fs::remove(state);
  fs::create_symlink(state, state);  // Nobody finds its end.
  expect_asked(made, state);
}

TEST_F(RunFolderTest, AnIdThatIsDamagedIsNotReplaced) {
  const RunFolder made = make();
  std::ofstream(made.file("run.id")) << "\n";
  const auto id = take_run_id(made);
  EXPECT_EQ(id.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(id.status().message()), HasSubstr("run.id"));
}

TEST_F(RunFolderTest, AnIdThatCannotBeLookedAtIsNotLost) {
  const RunFolder made = make();
  const std::string path = made.file("run.id");
  fs::create_symlink(path, path);  // Nobody finds its end.
  const auto id = take_run_id(made);
  EXPECT_EQ(id.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(id.status().message()), HasSubstr("cannot look at " + path));
  EXPECT_TRUE(fs::is_symlink(path)) << "no new one has taken its place";
}

TEST_F(RunFolderTest, AFolderThatCannotBeMadeIsAnErrorThatSaysWhichKeyToSet) {
  job_.spec.dump_folder = "/proc/none";
  const auto made = make_run_folder(job_);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("/proc/none"));
  EXPECT_THAT(std::string(made.status().message()), EndsWith("set job.dump_folder"));
}

TEST_F(RunFolderTest, WhatIsSimulatedWithoutAJobHasNoConfig) {
  const auto made = make_bare_run_folder(folder_.path(), "vgg16");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(fs::exists(made->file("env.json")));
  EXPECT_FALSE(fs::exists(made->file("config.resolved.toml")));
  EXPECT_FALSE(open_run_folder(made->path).ok());
}

TEST_F(RunFolderTest, ARunThatHasBegunAndCommittedNothingIsFound) {
  EXPECT_EQ(find_begun_run(job_.spec), "");
  make();
  EXPECT_EQ(find_begun_run(job_.spec), "") << "its coordinator never began";
  begin();
  const RunFolder newest = begin();
  EXPECT_EQ(find_begun_run(job_.spec), newest.path);
}

TEST_F(RunFolderTest, ARunOfAnotherJobOrWithCommitsIsNotFound) {
  const RunFolder begun = begin();
  plans::JobSpec other = job_.spec;
  other.training.steps += 1;
  EXPECT_EQ(find_begun_run(other), "") << "the job has been changed since";
  other = job_.spec;
  other.name = "smaller";
  EXPECT_EQ(find_begun_run(other), "");
  std::ofstream(begun.file("metrics.jsonl")) << "{\"kind\":\"step\"}\n";
  EXPECT_EQ(find_begun_run(job_.spec), "");
  job_.spec.dump_folder = folder_.file("none");
  EXPECT_EQ(find_begun_run(job_.spec), "") << "no folder at all";
}

}  // namespace
}  // namespace skein::cli
