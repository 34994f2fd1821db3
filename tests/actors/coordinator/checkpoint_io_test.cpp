#include "actors/coordinator/checkpoint_io.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/send.hpp>

#include "gpu/checkpoint/checkpoint_reader.hpp"
#include "gpu/checkpoint/checkpoint_writer.hpp"
#include "gpu/checkpoint/emergency_shards.hpp"
#include "gpu/checkpoint/trainer_state.hpp"
#include "gpu/files/durable_file.hpp"
#include "tests/actors/small_job.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::actors {
namespace {

constexpr uint64_t kLeftGeneration = 3;
constexpr uint64_t kLeftSteps = 4;

/// A run whose workers have left the state after step 4. The test plays the coordinator that looks
/// for it, in virtual time.
struct LeftState {
  LeftState() {
    config.set("scheduler.policy", caf::atom("testing"));
    system = std::make_unique<caf::actor_system>(config);
    io = system->spawn(checkpoint_io, job, RunPlace{folder.path(), "own"},
                       [this] { return later_life; });
    listener = system->spawn([this]() -> CheckpointListener::behavior_type {
      return {[](const CheckpointCompleted&) {}, [](const StartFound&) {},
              [this](const LeftStateFound& each) { found.push_back(each); }};
    });
    leave();
  }
  ~LeftState() {
    gpu::fail_file_operation(0);
    caf::anon_send_exit(io, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(listener, caf::exit_reason::user_shutdown);
    scheduler().run();
    scheduler().clock().cancel_all();
  }

  /// A worker writes all layers, all numbers of which are 0.
  void leave() const {
    const std::string left = gpu::emergency_path(folder.path(), kLeftSteps, kLeftGeneration, 1);
    const int64_t layers = plans::layer_count(job.model);
    std::vector<gpu::SavedFile> files;
    for (int64_t layer = 0; layer < layers; ++layer) {
      std::vector<std::vector<float>> zeros;
      std::vector<gpu::SavedParameter> parameters;
      for (const auto& spec : plans::layer_parameters(job.model, layer, {layer, layer + 1})) {
        zeros.emplace_back(static_cast<size_t>(plans::element_count(spec)));
        parameters.push_back({spec, zeros.back(), zeros.back(), zeros.back()});
      }
      const auto written = gpu::write_shard(left, static_cast<int>(layer), static_cast<int>(layers),
                                            job.optimizer.name, parameters);
      ASSERT_TRUE(written.ok()) << written.status();
      files.insert(files.end(), written->begin(), written->end());
    }
    gpu::TrainerState state = gpu::trainer_state_after(job, kLeftSteps);
    state.run = "own";
    ASSERT_TRUE(gpu::finish_emergency_shards(left, state, files).ok());
  }

  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system->scheduler());
  }
  void ask() {
    LeftStateRequest request;
    request.sought = {kLeftSteps, {{0, kLeftGeneration}}, 2.5};
    caf::anon_send(io, std::move(request), CheckpointListener(listener));
    scheduler().run();
  }
  void pass(std::chrono::milliseconds time) {
    scheduler().advance_time(time);
    scheduler().run();
  }

  plans::JobSpec job = small_job(2, 1);
  tests::TemporaryFolder folder;
  absl::Status later_life;
  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> system;
  CheckpointIo io;
  CheckpointListener listener;
  std::vector<LeftStateFound> found;
};

TEST(CheckpointIo, MakesACheckpointOfWhatWorkersHaveLeft) {
  LeftState left;
  left.ask();
  ASSERT_EQ(left.found.size(), 1u);
  EXPECT_TRUE(left.found[0].status.ok()) << left.found[0].status;
  EXPECT_FALSE(left.found[0].is_retried);
  EXPECT_EQ(left.found[0].adopted.steps_done, kLeftSteps);
}

TEST(CheckpointIo, SaysThatAWorkerIsStillWriting) {
  LeftState left;
  const std::string coming =
      gpu::emergency_path(left.folder.path(), kLeftSteps + 1, kLeftGeneration, 2);
  ASSERT_TRUE(gpu::announce_emergency_shards(coming).ok());
  left.ask();
  ASSERT_EQ(left.found.size(), 1u);
  EXPECT_TRUE(left.found[0].is_retried);
  EXPECT_TRUE(absl::IsUnavailable(left.found[0].status)) << left.found[0].status;
  std::filesystem::remove_all(coming);
  left.pass(std::chrono::milliseconds(200));
  ASSERT_EQ(left.found.size(), 2u);
  EXPECT_EQ(left.found[1].adopted.steps_done, kLeftSteps);
}

TEST(CheckpointIo, OnAFullDiskItTriesAgainTwiceASecond) {
  LeftState left;
  gpu::fail_file_operation(1);
  left.ask();
  left.pass(std::chrono::milliseconds(500));
  ASSERT_EQ(left.found.size(), 2u);
  for (const LeftStateFound& each : left.found) {
    EXPECT_TRUE(each.is_retried);
    EXPECT_TRUE(absl::IsResourceExhausted(each.status)) << each.status;
    EXPECT_EQ(each.adopted.path, "");
  }
  gpu::fail_file_operation(0);
  left.pass(std::chrono::milliseconds(500));
  ASSERT_EQ(left.found.size(), 3u);
  EXPECT_FALSE(left.found[2].is_retried);
  EXPECT_EQ(left.found[2].adopted.steps_done, kLeftSteps);
  left.pass(std::chrono::milliseconds(5000));
  EXPECT_EQ(left.found.size(), 3u) << "it has answered";
}

/// Also where the checkpoint has its name, and nothing newer is left for the next attempt.
TEST(CheckpointIo, WhereverTheDiskBecomesFullTheStateIsFoundInTheEnd) {
  int64_t in_vain = 0;
  for (int64_t operation = 1;; ++operation) {
    LeftState left;
    gpu::fail_file_operation(operation);
    left.ask();
    gpu::fail_file_operation(0);
    ASSERT_FALSE(left.found.empty());
    const bool is_retried = left.found.back().is_retried;
    if (is_retried) left.pass(std::chrono::milliseconds(500));
    ASSERT_EQ(left.found.size(), is_retried ? 2u : 1u) << operation;
    const LeftStateFound& last = left.found.back();
    ASSERT_TRUE(last.status.ok()) << last.status;
    ASSERT_EQ(last.adopted.steps_done, kLeftSteps) << operation;
    const auto reader = gpu::CheckpointReader::open(last.adopted.path);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ((*reader)->trainer_state().loss, 2.5);
    if (!is_retried && !gpu::has_emergency_shards(gpu::emergency_path(
                           left.folder.path(), kLeftSteps, kLeftGeneration, 1))) {
      break;  // Nothing failed: what it was made of is gone.
    }
    in_vain += is_retried ? 1 : 0;
  }
  EXPECT_GT(in_vain, 10);
}

TEST(CheckpointIo, OnceALaterLifeHasBegunItTriesNoMore) {
  LeftState left;
  gpu::fail_file_operation(1);
  left.later_life = absl::FailedPreconditionError("later");
  left.ask();
  gpu::fail_file_operation(0);
  left.pass(std::chrono::milliseconds(5000));
  ASSERT_EQ(left.found.size(), 1u);
  EXPECT_TRUE(left.found[0].is_retried);
}

}  // namespace
}  // namespace skein::actors
