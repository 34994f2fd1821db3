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
  explicit Reviewed(JobSpec reviewed = one_worker_job(), const std::vector<WorkerId>& hosts = {{1}},
                    bool is_planned = false)
      : job(std::move(reviewed)), candidates{job,     given,        is_planned,
                                             members, measurements, change} {
    for (uint32_t id = 1; id <= 3; ++id) {
      members.admit(PeerNumber{id}, {.host_name = "vm", .process_id = id}, false, 0);
      change.take_inventory(WorkerId{id}, {});
    }
    change.assign(make_layout_plan(job, {hosts}, 1).value(), members.all(), {});
    review.begin_generation(/*was_urgent=*/false);
  }

  PlanReview::Advice seek() { return review.seek_better({}, 1, 0, 0); }
  void measure_all() {
    for (const auto& [id, member] : members.all()) {
      measurements.request({{id, member}});
      MeasuredWorker measured;
      measured.memory_bytes = int64_t{1} << 40;
      measured.profile = estimate_profile(job.model, job.training.seq_len, rows_to_measure(job),
                                          job.optimizer, 1e9, 1e9);
      measurements.take(member, measured);
    }
  }

  JobSpec job;
  std::optional<Plan> given;
  Membership members{10, std::nullopt};
  Measurements measurements{job};
  PlanChange change{job, std::nullopt};
  PlanCandidates candidates;
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
  run.review.begin_generation(/*was_urgent=*/false);
  EXPECT_THAT(events(run.seek()), ElementsAre("worker.spare"));
}

TEST(PlanReview, AMitigationKeepsToTheWorkersThatAPlanMayHave) {
  for (const bool is_leaving : {false, true}) {
    Reviewed run;
    run.job.elastic.max_workers = 2;
    if (is_leaving) run.members.mark_leaving(WorkerId{1});
    const auto workers = run.review.workers_to_keep(0);
    EXPECT_EQ(workers.has_value(), !is_leaving) << "another plan is on its way";
    if (workers) {
      EXPECT_THAT(*workers, ElementsAre(WorkerId{1}, WorkerId{2}));
    }
  }
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

/// What is not worthwhile by what is predicted, with a rival.
ChangeAnswer much_the_same(const Reviewed& run) {
  ChangeAnswer answer{PlannedPipeline{*run.change.plan(), 0, "another", {}}, false};
  answer.candidate->plan.microbatch_rows += 1;
  answer.candidate->rivals = {*answer.candidate};
  answer.candidate->rivals.front().plan.microbatch_rows += 1;
  return answer;
}

/// What is predicted says less than what is measured; but only once, or plans would change without
/// end.
TEST(PlanReview, AfterALossWhatPromisesMuchTheSameIsTriedOnceBesideThePlanInForce) {
  JobSpec job = one_worker_job();
  job.tokens.trial_steps = 1;
  Reviewed run(job);
  const ChangeAnswer answer = much_the_same(run);
  const auto tried_after_two_steps = [&](double step_us) {
    EXPECT_EQ(run.review.take({answer}, 5, false).reason, "");
    const PlanReview::Commit commit{6, step_us, 0, {}, 1};
    EXPECT_EQ(run.review.try_another(commit).reason, "");
    return run.review.try_another(commit).reason;
  };
  EXPECT_EQ(tried_after_two_steps(1000), "") << "nobody was lost";
  const Plan in_force = *run.change.plan();
  run.review.begin_generation(/*was_urgent=*/true);
  EXPECT_EQ(tried_after_two_steps(1000), "another plan is tried");
  std::string reason;
  for (int64_t rows = 1; rows <= 2; ++rows) {
    const auto proposed = run.change.take_proposal({WorkerId{1}});
    ASSERT_TRUE(proposed);
    EXPECT_EQ(proposed->plan.microbatch_rows, in_force.microbatch_rows + rows);
    run.change.assign(proposed->plan, run.members.all(), {});
    run.review.on_chosen(*proposed);
    run.review.begin_generation(/*was_urgent=*/false);
    reason = tried_after_two_steps(2000);
  }
  EXPECT_EQ(reason, "the fastest plan that was tried");
  const auto last = run.change.take_proposal({WorkerId{1}});
  ASSERT_TRUE(last);
  EXPECT_EQ(last->plan.microbatch_rows, in_force.microbatch_rows) << "that was there before";
  run.change.assign(last->plan, run.members.all(), {});
  run.review.begin_generation(/*was_urgent=*/false);
  EXPECT_EQ(tried_after_two_steps(1000), "");
}

TEST(PlanReview, WhoHasBecomeSlowIsToldOfWherePlansAreTried) {
  JobSpec job = one_worker_job();
  job.tokens.trial_steps = 1;
  Reviewed run(job, {{1}}, /*is_planned=*/true);
  run.measure_all();
  run.review.begin_generation(/*was_urgent=*/true);
  TimingWatch::Observation seen;
  seen.due = {{{1}, 3, "its steps are long"}};
  run.review.look({6, 1000, 0, {}, 1}, seen, 0);
  ASSERT_TRUE(run.review.wants_better());
  run.seek();
  EXPECT_THAT(events(run.review.take({much_the_same(run)}, 5, false)),
              ::testing::Contains("straggler.no_mitigation"));
}

TEST(PlanReview, AfterALossThePlanInForceMayBeTheFirstToBeTried) {
  JobSpec job = one_worker_job();
  job.tokens.trial_steps = 1;
  Reviewed run(job);
  run.review.begin_generation(/*was_urgent=*/true);
  ChangeAnswer answer{PlannedPipeline{*run.change.plan(), 0, "the same", {}}, false};
  answer.candidate->plan.generation = 7;
  answer.candidate->rivals = {*answer.candidate};
  answer.candidate->rivals.front().plan.microbatch_rows += 1;
  EXPECT_EQ(run.review.take({answer}, 5, false).reason, "") << "there is nothing to change";
  const PlanReview::Commit commit{6, 1000, 0, {}, 1};
  EXPECT_EQ(run.review.try_another(commit).reason, "");
  EXPECT_EQ(run.review.try_another(commit).reason, "another plan is tried");
}

/// What was told would be told again, and applied to the measurements again.
TEST(PlanReview, UntilItIsKnownWhatIsExpectedNobodyHasBecomeSlow) {
  JobSpec job = one_worker_job();
  job.elastic.watch_speeds = true;
  job.training.micro_batch_size = job.training.global_batch_size = 3;
  job.parallelism.data_parallel_replicate_degree = 3;
  Reviewed run(job, {{1}, {2}, {3}});
  run.measure_all();
  const auto told = [&](uint64_t first, uint64_t busy_us) {
    size_t count = 0;
    for (uint64_t step = first; step < first + 60; ++step) {
      PlanReview::Commit commit{step, 1, 0, {}, 1};
      for (uint32_t replica = 0; replica < 3; ++replica) {
        commit.timings.step_reports[{replica}].busy_us = replica == 0 ? busy_us : 1000;
      }
      count += run.review.on_commit(commit).changes.size();
    }
    return count;
  };
  const CoordinatorDecisions asked = run.review.begin_generation(/*was_urgent=*/false);
  ASSERT_TRUE(std::holds_alternative<RequestPlan>(asked.at(0)));
  run.review.take(ExpectationAnswer{{{{1}, 1000}, {{2}, 1000}, {{3}, 1000}}});
  EXPECT_EQ(told(0, 1000) + told(60, 4000), 0u) << "there may be a newer one";
  EXPECT_TRUE(run.requests.on_ready(std::get<RequestPlan>(asked.at(0)).id).is_known);
  EXPECT_EQ(told(120, 1000), 0u);
  EXPECT_EQ(told(180, 4000), 1u);
}

/// What a reduction seems to take may be time in which another job computes.
TEST(PlanReview, WhileOtherJobsHaveTheDevicesNoOtherModeIsSought) {
  for (const double lent_share : {0.5, 0.0}) {
    JobSpec job = pipeline_job(1, 2, "auto");
    Reviewed run(job, {{1}, {2}});
    bool has_asked = false;
    for (uint64_t step = 0; step < 200 && !has_asked; ++step) {
      PlanReview::Commit commit{step, 2000, lent_share, {}, 1};
      for (uint32_t pipeline = 0; pipeline < 2; ++pipeline) {
        commit.timings.passes.push_back({pipeline, 1000, {}});
        commit.timings.step_reports[{pipeline}].step_us = 1000;
      }
      for (const CoordinatorDecision& each : run.review.look(commit, {}, step)) {
        has_asked = has_asked || std::holds_alternative<RequestPlan>(each);
      }
    }
    EXPECT_EQ(has_asked, lent_share == 0) << lent_share;
  }
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
