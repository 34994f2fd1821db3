#include "plans/coordinator/change_gain.hpp"

#include <gtest/gtest.h>

#include "plans/plan/pipeline_plan.hpp"
#include "plans/profile/estimate.hpp"
#include "tests/plans/modes/pipeline_world.hpp"

namespace skein::plans {
namespace {

JobSpec job_of(uint32_t workers) { return pipeline_job(1, workers, "overlapped"); }

/// Workers 1 to `count`, each a pipeline replica of one stage.
Plan plan_of(uint32_t count) {
  std::vector<WorkerId> workers;
  for (uint32_t id = 1; id <= count; ++id) workers.push_back({id});
  return make_pipeline_plan(job_of(count), workers, 1).value();
}

/// The plan of two is in force, and the workers have these speeds, in FLOP/s.
ChangeQuestion question_of(const std::vector<double>& speeds) {
  ChangeQuestion question;
  question.request.job = job_of(2);
  question.request.current = plan_of(2);
  question.is_planned = true;
  for (const double speed : speeds) {
    MeasuredWorker worker;
    worker.id = {static_cast<uint32_t>(question.measured.size()) + 1};
    worker.host = "host";
    worker.memory_bytes = int64_t{1} << 40;
    const JobSpec& job = question.request.job;
    worker.profile = estimate_profile(job.model, job.training.seq_len, rows_to_measure(job),
                                      job.optimizer, speed, speed);
    question.measured.push_back(worker);
  }
  return question;
}

TEST(ChangeGain, AnotherPipelineReplicaIsWorthAChangeAndTheSamePlanIsNot) {
  const ChangeQuestion question = question_of({1e9, 1e9, 1e9});
  EXPECT_TRUE(is_worthwhile(question, plan_of(3)));
  EXPECT_FALSE(is_worthwhile(question, plan_of(2)));
}

/// It does one iteration of a hundred, and what it has is old.
TEST(ChangeGain, APipelineReplicaThatHardlyAddsAnythingIsNot) {
  EXPECT_FALSE(is_worthwhile(question_of({1e9, 1e9, 1e7}), plan_of(3)));
}

TEST(ChangeGain, NorIsOneThatMostlyStalls) {
  ChangeQuestion question = question_of({1e9, 1e9, 1e9});
  question.request.stalls.resize(32);
  for (size_t s = 0; s < 32; s += 3) question.request.stalls[s][{3}] = 100;
  EXPECT_FALSE(is_worthwhile(question, plan_of(3)));
}

/// Until all have measured their devices, more workers are taken for more progress.
TEST(ChangeGain, WhoHasNotMeasuredCounts) {
  EXPECT_TRUE(is_worthwhile(question_of({1e9, 1e9}), plan_of(3)));
}

}  // namespace
}  // namespace skein::plans
