#include "plans/coordinator/plan_review.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "plans/plan/layout_plan.hpp"
#include "tests/plans/modes/pipeline_cluster.hpp"

namespace skein::plans {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

JobSpec one_worker_job() {
  JobSpec job = small_job();
  job.parallelism.pipeline_parallel_degree = job.parallelism.data_parallel_replicate_degree = 1;
  return job;
}

/// A layout of one worker, which is in force on the first one of three.
struct Reviewed {
  explicit Reviewed(JobSpec reviewed = one_worker_job()) : job(std::move(reviewed)) {
    for (uint32_t id = 1; id <= 3; ++id) {
      members.admit(PeerNumber{id}, {.host_name = "vm", .process_id = id}, false, 0);
      change.take_inventory(WorkerId{id}, {});
    }
    change.assign(make_layout_plan(job, {{1}}, 1).value(), members.all(), {});
    review.begin_generation();
  }

  PlanReview::Advice seek() { return review.seek_better({}, 1, 0, 0); }

  JobSpec job;
  std::optional<Plan> given;
  Membership members{10, std::nullopt};
  Measurements measurements{job};
  PlanChange change{job, std::nullopt};
  PlanCandidates candidates{job, given, /*is_planned=*/false, members, measurements, change};
  PlannerRequests requests;
  PlanReview review{candidates, std::nullopt, training_modes(), change, requests};
};

std::vector<std::string> events(const PlanReview::Advice& advice) {
  std::vector<std::string> names;
  for (const CoordinatorDecision& each : advice.decisions) {
    if (const auto* event = std::get_if<RunEvent>(&each)) names.push_back(event->name);
  }
  return names;
}

TEST(PlanReview, TellsOfSparesOncePerPlan) {
  Reviewed run;
  const PlanReview::Advice advice = run.seek();
  EXPECT_EQ(advice.reason, "");
  EXPECT_THAT(events(advice), ElementsAre("worker.spare"));
  EXPECT_THAT(events(run.seek()), IsEmpty());
  run.members.remove(WorkerId{3});
  EXPECT_THAT(events(run.seek()), ElementsAre("worker.spare")) << "they are others now";
  run.review.begin_generation();
  EXPECT_THAT(events(run.seek()), ElementsAre("worker.spare"));
}

TEST(PlanReview, AWorkerThatLeavesIsAReasonAndASpareIsNone) {
  Reviewed run;
  run.members.mark_leaving(WorkerId{2});
  EXPECT_FALSE(run.review.must_change());
  EXPECT_EQ(run.seek().reason, "");
  run.members.mark_leaving(WorkerId{1});
  EXPECT_TRUE(run.review.must_change());
  EXPECT_EQ(run.seek().reason, "a worker leaves");
}

TEST(PlanReview, AWorkerThatCannotBeReplacedStays) {
  Reviewed run;
  for (uint32_t id = 1; id <= 3; ++id) run.members.mark_leaving(WorkerId{id});
  const PlanReview::Advice advice = run.seek();
  EXPECT_THAT(events(advice), ElementsAre("worker.cannot_leave"));
  EXPECT_EQ(advice.reason, "");
}

TEST(PlanReview, AMitigationIsProposedInTheModeOfThePlanThatItChanges) {
  Reviewed run;
  Mitigation mitigation;
  mitigation.kind = Mitigation::Kind::kMoveLayers;
  mitigation.plan = *run.change.plan();
  mitigation.plan.mode = "another";
  mitigation.reason = "w1 is slow";
  const PlanReview::Advice advice = run.review.take({MitigationAnswer{mitigation}}, 5, false);
  EXPECT_EQ(advice.reason, "w1 is slow");
  const auto proposed = run.change.take_proposal({WorkerId{1}});
  ASSERT_TRUE(proposed);
  EXPECT_EQ(proposed->plan.mode, run.change.plan()->mode);
}

/// Where the plan is to be changed already, a better mode is looked for again under the next one.
TEST(PlanReview, AnAnswerAboutTheModeWaitsForNothing) {
  Reviewed run(pipeline_job(1, 1, "auto"));
  ModeAnswer answer{1, 2, 1, "like that"};
  EXPECT_THAT(events(run.review.take({answer}, 5, /*is_held=*/true)), IsEmpty());
  EXPECT_THAT(events(run.review.take({answer}, 5, /*is_held=*/false)), ElementsAre("sync.looked"));
}

}  // namespace
}  // namespace skein::plans
