#include "cli/verbs/eval_data.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "cli/run/run_folder.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::cli {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A run and one of its checkpoints.
class EvalDataTest : public testing::Test {
 protected:
  EvalDataTest() {
    job_.spec.dump_folder = folder_.path();
    job_.spec.data.dataset = "text";
  }
  void make() {
    run_ = make_run_folder(job_).value();
    checkpoint_ = run_.file("checkpoint/step-1");
    fs::create_directory(checkpoint_);
  }
  void make_mixture() {
    job_.spec.data.mixture = {"/a.txt", "/b.txt"};
    job_.spec.data.weights = {1, 2};
    make();
  }
  void make_pair() {
    job_.spec.data.path = "/train.txt";
    job_.spec.data.validation_path = "/held.txt";
    make();
  }
  std::string refusal(const Overrides& given) {
    const auto found = find_eval_data(checkpoint_, given);
    EXPECT_TRUE(absl::IsInvalidArgument(found.status())) << found.status();
    return std::string(found.status().message());
  }

  tests::TemporaryFolder folder_;
  LoadedJob job_;
  RunFolder run_;
  std::string checkpoint_;
};

TEST_F(EvalDataTest, IsTheRunsIfNothingIsGiven) {
  make_pair();
  const EvalData found = find_eval_data(checkpoint_, {}).value();
  EXPECT_EQ(found.spec, job_.spec.data);
  EXPECT_EQ(found.name, "/held.txt");
}

TEST_F(EvalDataTest, WhatIsIgnoredOfTheRunsJobIsSaid) {
  make_pair();
  std::string text = read_resolved_job(run_).value();
  text = absl::StrReplaceAll(text, {{"[debug]\n", "[debug]\ndeterministic = true\n"}});
  std::ofstream(run_.file("config.resolved.toml")) << text;
  std::vector<std::string> said;
  const auto say = [&said](const std::string& line) { said.push_back(line); };
  EXPECT_TRUE(find_eval_data(checkpoint_, {}, say).ok());
  EXPECT_THAT(said, ElementsAre(HasSubstr("debug.deterministic is no longer used")));
}

TEST_F(EvalDataTest, APathReplacesAMixture) {
  make_mixture();
  const EvalData found = find_eval_data(checkpoint_, {{"data.path", "c.txt"}}).value();
  EXPECT_EQ(found.spec.validation_path, "c.txt");
  EXPECT_THAT(found.spec.mixture, IsEmpty());
  EXPECT_THAT(found.spec.weights, IsEmpty());
  EXPECT_EQ(found.name, "c.txt");
}

TEST_F(EvalDataTest, AMixtureReplacesPathAndValidationPath) {
  make_pair();
  const EvalData found = find_eval_data(checkpoint_, {{"data.mixture", "c.txt,d.txt"}}).value();
  EXPECT_THAT(found.spec.mixture, ElementsAre("c.txt", "d.txt"));
  EXPECT_EQ(found.spec.path, "");
  EXPECT_EQ(found.spec.validation_path, "");
  EXPECT_EQ(found.name, "the part held out of c.txt, d.txt");
}

TEST_F(EvalDataTest, AValidationPathIsAllThatIsLookedAt) {
  make_mixture();
  const EvalData found = find_eval_data(checkpoint_, {{"data.validation_path", "c.txt"}}).value();
  EXPECT_EQ(found.spec.validation_path, "c.txt");
  EXPECT_EQ(found.spec.path, "c.txt");
}

TEST_F(EvalDataTest, TheBuiltInTextReplacesFiles) {
  make_pair();
  const EvalData found = find_eval_data(checkpoint_, {{"data.dataset", "kjv"}}).value();
  EXPECT_EQ(found.name, "the part held out of kjv");
}

TEST_F(EvalDataTest, AKeyThatIsNoSourceLeavesTheRunsSources) {
  make_mixture();
  const auto found = find_eval_data(checkpoint_, {{"data.validation_fraction", "0.3"}});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->spec.mixture, job_.spec.data.mixture);
  EXPECT_EQ(found->spec.validation_fraction, 0.3);
}

TEST_F(EvalDataTest, TwoSourcesAreRefused) {
  make_pair();
  EXPECT_THAT(refusal({{"data.path", "c"}, {"data.validation_path", "d"}}),
              AllOf(HasSubstr("--data.path"), HasSubstr("--data.validation_path")));
  EXPECT_THAT(refusal({{"data.mixture", "c"}, {"data.path", "d"}}), HasSubstr("--data.mixture"));
  EXPECT_THAT(refusal({{"data.dataset", "kjv"}, {"data.path", "d"}}), HasSubstr("data.dataset"));
}

TEST_F(EvalDataTest, ACheckpointIsOfItsRunHoweverItIsWritten) {
  make_pair();
  const std::string link = folder_.file("link");
  fs::create_directory_symlink(checkpoint_, link);
  for (const std::string& path : {checkpoint_ + "/", checkpoint_ + "/.", checkpoint_ + "//",
                                  run_.file("checkpoint/../checkpoint/step-1/"), link}) {
    const auto found = find_eval_data(path, {});
    ASSERT_TRUE(found.ok()) << path << ": " << found.status();
    EXPECT_EQ(found->name, "/held.txt");
  }
}

TEST_F(EvalDataTest, AModelOfNoRunNeedsASource) {
  checkpoint_ = folder_.path();
  EXPECT_THAT(refusal({}), HasSubstr("is of no run"));
  EXPECT_THAT(refusal({{"data.validation_fraction", "0.3"}}), HasSubstr("is of no run"));
  const Overrides given = {{"data.dataset", "text"}, {"data.path", "c.txt"}};
  EXPECT_EQ(find_eval_data(checkpoint_, given).value().name, "c.txt");
}

TEST_F(EvalDataTest, AJobThatCannotBeReadIsAnError) {
  make_pair();
  const std::string path = run_.file("config.resolved.toml");
  fs::resize_file(path, fs::file_size(path) - 5);
  const auto cut = find_eval_data(checkpoint_, {{"data.path", "c.txt"}});
  EXPECT_TRUE(absl::IsDataLoss(cut.status())) << cut.status();
  fs::remove(path);
  fs::create_directory(path);
  const auto unread = find_eval_data(checkpoint_, {});
  EXPECT_THAT(std::string(unread.status().message()), HasSubstr("config.resolved.toml"));
}

}  // namespace
}  // namespace skein::cli
