#include "actors/coordinator/start_point.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "actors/coordinator/journal.hpp"
#include "gpu/checkpoint/checkpoint_writer.hpp"
#include "gpu/checkpoint/trainer_state.hpp"
#include "gpu/data/token_data.hpp"
#include "plans/coordinator/commit_log.hpp"
#include "plans/plan/layout_plan.hpp"
#include "tests/actors/small_job.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::actors {
namespace {

/// A checkpoint of that state, all numbers of which are 0.
void write_start(const plans::JobSpec& job, const std::string& run_folder,
                 const gpu::TrainerState& state) {
  std::vector<std::vector<float>> zeros;
  std::vector<gpu::SavedParameter> parameters;
  for (const auto& spec : plans::range_parameters(job.model, {0, plans::layer_count(job.model)})) {
    const auto& values = zeros.emplace_back(static_cast<size_t>(plans::element_count(spec)));
    parameters.push_back({spec, values, values, values});
  }
  const auto files = gpu::write_shard(gpu::partial_checkpoint_path(run_folder, state.steps_done, 1),
                                      0, 1, job.optimizer.name, parameters);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto path = gpu::complete_checkpoint(run_folder, 1, job.model, state, *files, 0);
  ASSERT_TRUE(path.ok()) << path.status();
}

/// What the journal has lost is of the plan that the checkpoint names, or of none that is known:
/// a worker of an earlier plan may hold other state of that step.
TEST(StartPoint, StepsThatOnlyTheCheckpointKnowsAreOfItsPlan) {
  const plans::JobSpec job = small_job(1, 1);
  for (const bool is_named : {true, false}) {
    tests::TemporaryFolder folder;
    const auto journal = Journal::open(folder.file("journal")).value();
    for (uint64_t step = 0; step < 2; ++step) {
      ASSERT_TRUE(journal->append({step, 1, journal->term(), step * 4, 4, 2.5, 0.5}).ok());
    }
    const plans::Plan plan = plans::make_layout_plan(job, {{1}}, 7).value();
    gpu::TrainerState state = gpu::trainer_state_after(job, 4);
    if (is_named) state.plan = plans::to_text(plan);
    write_start(job, folder.path(), state);
    std::string load_path = folder.path();
    const auto start = find_resumed(job, {folder.path(), "own"}, *journal, load_path);
    ASSERT_TRUE(start.ok()) << start.status();
    EXPECT_EQ(start->committed_steps, 4u);
    EXPECT_EQ(plans::generation_of(start->step_generations, 2), 1u);
    EXPECT_EQ(plans::generation_of(start->step_generations, 4), is_named ? 7u : 0u);
  }
}

/// One of the same shape may lie there, with more steps.
TEST(StartPoint, ACheckpointOfAnotherRunIsPassedOver) {
  plans::JobSpec job = small_job(1, 1);
  job.training.steps = 100;
  job.device.type = "sleep";                   // It reads no data.
  for (const std::string own : {"own", ""}) {  // An older release has not said whose it is.
    tests::TemporaryFolder folder;
    const auto journal = Journal::open(folder.file("journal")).value();
    gpu::TrainerState state = gpu::trainer_state_after(job, 6);
    state.run = "other";
    state.positions = 77;
    write_start(job, folder.path(), state);
    std::string load_path = folder.path();
    const RunPlace place{folder.path(), "own"};
    const absl::Status refused = find_resumed(job, place, *journal, load_path).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_NE(refused.message().find("step-00000006 is of run other"), std::string::npos);
    EXPECT_TRUE(find_start(job, load_path).ok()) << "a new run may begin with it";
    state = gpu::trainer_state_after(job, 4);
    state.run = own;
    write_start(job, folder.path(), state);
    const auto start = find_resumed(job, place, *journal, load_path);
    ASSERT_TRUE(start.ok()) << start.status();
    EXPECT_EQ(start->durable_step, 4u);
    EXPECT_EQ(start->positions, 0);
    EXPECT_EQ(start->passed_over.size(), 1u);
    const auto verified = verify_start(job, load_path, "own", UINT64_MAX, TrainingData());
    ASSERT_TRUE(verified.ok()) << verified.status();
    EXPECT_EQ(verified->durable_step, 4u);
    EXPECT_TRUE(verified->faults.empty());
  }
}

/// An older release had a digest of every token in its checkpoints, under another name.
TEST(StartPoint, TheDataOfAnOlderCheckpointAreKnownAgain) {
  plans::JobSpec job = small_job(1, 1);
  job.model.vocab_size = 256;
  tests::TemporaryFolder folder;
  job.data.dataset = "text";
  job.data.path = folder.file("text.txt");
  std::ofstream(job.data.path) << std::string(500, 'a') << std::string(500, 'b');
  const auto data =
      gpu::TokenData::open({job.data, job.training.seq_len, job.model.vocab_size, job.debug.seed});
  ASSERT_TRUE(data.ok()) << data.status();
  for (const bool is_other : {false, true}) {
    tests::TemporaryFolder run;
    gpu::TrainerState state = gpu::trainer_state_after(job, 4);
    state.data_bytes = (*data)->bytes();
    state.data_digest = (*data)->digest_of_tokens() + (is_other ? 1 : 0);
    state.has_digest_of_tokens = true;
    write_start(job, run.path(), state);
    EXPECT_EQ(verify_start(job, run.path(), "own", 5, std::nullopt).ok(), !is_other);
  }
}

/// Weights forget no positions when another run, or a later life of this one, goes on with them.
TEST(StartPoint, WhatTheFirstWeightsWereIsKept) {
  plans::JobSpec job = small_job(1, 1);
  job.training.steps = 100;
  job.device.type = "sleep";  // It reads no data.
  for (const auto& [before, begun] : {std::pair<int64_t, int64_t>{0, job.training.seq_len},
                                      {job.training.seq_len + 1, job.training.seq_len + 1}}) {
    tests::TemporaryFolder folder;
    gpu::TrainerState state = gpu::trainer_state_after(job, 4);
    state.positions = before;
    state.from_digest = before > 0 ? "abc" : "";
    write_start(job, folder.path(), state);
    const auto other = find_start(job, folder.path());
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_EQ(other->positions, begun);
    EXPECT_EQ(other->from_digest, state.from_digest);
    const auto journal = Journal::open(folder.file("journal")).value();
    std::string load_path = folder.path();
    const auto resumed = find_resumed(job, {folder.path(), "own"}, *journal, load_path);
    ASSERT_TRUE(resumed.ok()) << resumed.status();
    EXPECT_EQ(resumed->positions, before);
    EXPECT_EQ(resumed->from_digest, state.from_digest);
  }
  EXPECT_EQ(find_start(job, "")->positions, 0);
}

}  // namespace
}  // namespace skein::actors
