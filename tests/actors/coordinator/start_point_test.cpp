#include "actors/coordinator/start_point.hpp"

#include <gtest/gtest.h>

#include "actors/coordinator/journal.hpp"
#include "gpu/checkpoint/checkpoint.hpp"
#include "gpu/checkpoint/trainer_state.hpp"
#include "plans/coordinator/commit_log.hpp"
#include "plans/plan/layout_plan.hpp"
#include "tests/actors/small_job.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::actors {
namespace {

/// A checkpoint of the state after `steps` steps, all numbers of which are 0.
void write_start(const plans::JobSpec& job, const std::string& run_folder, uint64_t steps,
                 const std::string& plan) {
  std::vector<std::vector<float>> zeros;
  std::vector<gpu::SavedParameter> parameters;
  for (const auto& spec : plans::range_parameters(job.model, {0, plans::layer_count(job.model)})) {
    const auto& values = zeros.emplace_back(static_cast<size_t>(plans::element_count(spec)));
    parameters.push_back({spec, values, values, values});
  }
  const auto files = gpu::write_shard(gpu::partial_checkpoint_path(run_folder, steps, 1), 0, 1,
                                      job.optimizer.name, parameters);
  ASSERT_TRUE(files.ok()) << files.status();
  gpu::TrainerState state = gpu::trainer_state_after(job, steps);
  state.plan = plan;
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
    write_start(job, folder.path(), 4, is_named ? plans::to_text(plan) : "");
    std::string load_path = folder.path();
    const auto start = find_resumed(job, folder.path(), *journal, load_path);
    ASSERT_TRUE(start.ok()) << start.status();
    EXPECT_EQ(start->committed_steps, 4u);
    EXPECT_EQ(plans::generation_of(start->step_generations, 2), 1u);
    EXPECT_EQ(plans::generation_of(start->step_generations, 4), is_named ? 7u : 0u);
  }
}

}  // namespace
}  // namespace skein::actors
