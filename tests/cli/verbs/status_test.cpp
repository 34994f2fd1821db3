#include "cli/verbs/status.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cli/run/run_folder.hpp"
#include "gpu/checkpoint/emergency_shards.hpp"
#include "tests/gpu/small_checkpoints.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::cli {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A run that nobody runs any more.
class EndedRunTest : public testing::Test {
 protected:
  EndedRunTest() {
    LoadedJob job;
    job.spec.name = "small";
    job.spec.dump_folder = parent_.path();
    const auto made = make_run_folder(job);
    EXPECT_TRUE(made.ok()) << made.status();
    folder_ = *made;
    std::ofstream(folder_.file("run.id")) << "own\n";
  }
  void save(uint64_t steps, const std::string& run) {
    gpu::TrainerState state;
    state.run = run;
    const auto saved = gpu::save_small_checkpoint(folder_.path, steps, 0.5F, state);
    EXPECT_TRUE(saved.ok()) << saved.status();
  }
  void leave(uint64_t steps, uint32_t worker, const std::string& run) {
    gpu::TrainerState state;
    state.run = run;
    const std::string folder = gpu::emergency_path(folder_.path, steps, 1, worker);
    fs::create_directories(folder);
    EXPECT_TRUE(gpu::finish_emergency_shards(folder, state, {}).ok());
  }
  /// As the run's coordinator does for each step.
  void commit(int64_t step) {
    std::ofstream(folder_.file("metrics.jsonl"), std::ios::app)
        << R"({"kind": "step", "step": )" << step << R"(, "loss": 2.5})"
        << "\n";
  }
  void commit_all() { commit(plans::JobSpec{}.training.steps); }
  std::string said(bool as_json = false) const {
    testing::internal::CaptureStdout();
    const absl::Status status = print_status({folder_.path}, as_json);
    std::string text = testing::internal::GetCapturedStdout();
    EXPECT_TRUE(status.ok()) << status;
    return text;
  }

  tests::TemporaryFolder parent_;
  RunFolder folder_;
};

TEST_F(EndedRunTest, GoesOnFromItsOwnStateAndNotFromAnothers) {
  EXPECT_THAT(said(), HasSubstr("goes on from the beginning, as it has no checkpoint"));
  save(9, "other");
  EXPECT_THAT(said(), AllOf(HasSubstr("goes on once"), HasSubstr("is of run other")));
  save(4, "own");
  leave(8, 1, "other");
  EXPECT_THAT(said(), HasSubstr("goes on from step-00000004 "));
  leave(6, 2, "own");
  EXPECT_THAT(said(), HasSubstr("goes on from step 6 if what"));
}

TEST_F(EndedRunTest, WhatCannotBeReadIsNotSaidToBeMissing) {
  save(4, "own");
  const std::string complete = folder_.file("checkpoint/step-00000004/COMPLETE");
  fs::remove(complete);
  fs::create_symlink(complete, complete);  // Nobody finds its end.
  EXPECT_THAT(said(), AllOf(HasSubstr("cannot look at " + complete), Not(HasSubstr("beginning"))));
}

TEST_F(EndedRunTest, WhereTheRunsIdCannotBeReadNoCheckpointIsTakenForItsOwn) {
  save(9, "other");
  const std::string id = folder_.file("run.id");
  fs::remove(id);
  EXPECT_THAT(said(), HasSubstr("goes on from step-00000009")) << "it may have the id";
  leave(12, 1, "own");
  EXPECT_THAT(said(), AllOf(HasSubstr("once this is put right: " + id + " is lost"),
                            HasSubstr("(other, own)"), Not(HasSubstr("step-00000009"))))
      << "whoever resumes is refused";
  EXPECT_FALSE(fs::exists(id)) << "whoever looks writes nothing";
  fs::remove_all(gpu::emergency_path(folder_.path, 12, 1, 1));
  fs::create_symlink(id, id);  // Nobody finds its end.
  EXPECT_THAT(said(), AllOf(HasSubstr("once this is put right: cannot look at " + id),
                            Not(HasSubstr("step-00000009"))));
  fs::remove(id);
  std::ofstream(id) << "\n";
  EXPECT_THAT(said(), AllOf(HasSubstr("once this is put right: " + id + " has no id"),
                            Not(HasSubstr("step-00000009"))));
}

TEST_F(EndedRunTest, IsNotAtItsBeginningIfItsStepsCannotBeRead) {
  EXPECT_THAT(said(), HasSubstr("has ended, at step 0/1000"));
  commit(7);
  EXPECT_THAT(said(), HasSubstr("has ended, at step 7/1000, loss 2.5000; skein train --resume"));
  const std::string metrics = folder_.file("metrics.jsonl");
  fs::remove(metrics);
  fs::create_symlink(metrics, metrics);  // Nobody finds its end.
  testing::internal::CaptureStdout();
  const absl::Status status = print_status({folder_.path}, /*as_json=*/false);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(std::string(status.message()),
            "cannot read " + metrics + ": Too many levels of symbolic links");
}

TEST_F(EndedRunTest, IsNotDoneBeforeItsLastStepIsSaved) {
  commit_all();
  EXPECT_THAT(said(), AllOf(HasSubstr("at step 1000/1000, loss 2.5000; its last step is in no "
                                      "checkpoint; skein train --resume " +
                                      folder_.path),
                            HasSubstr("goes on from the beginning, as it has no checkpoint")));
  save(990, "own");
  EXPECT_THAT(said(), AllOf(HasSubstr("in no checkpoint"), HasSubstr("from step-00000990 ")));
  EXPECT_THAT(said(/*as_json=*/true), HasSubstr(R"("state": "ended")"));
  leave(1000, 1, "own");
  EXPECT_THAT(said(), HasSubstr("goes on from step 1000 if what"));
  save(1000, "own");
  EXPECT_THAT(said(), testing::EndsWith("at step 1000/1000, loss 2.5000\n"));
  EXPECT_THAT(said(/*as_json=*/true), HasSubstr(R"("state": "done")"));
}

TEST_F(EndedRunTest, MayNotBeSavedIfItsCheckpointCannotBeRead) {
  commit_all();
  save(1000, "own");
  const std::string complete = folder_.file("checkpoint/step-00001000/COMPLETE");
  fs::remove(complete);
  fs::create_symlink(complete, complete);  // Nobody finds its end.
  EXPECT_THAT(said(), HasSubstr("; its last step may not be saved: cannot look at " + complete));
}

}  // namespace
}  // namespace skein::cli
