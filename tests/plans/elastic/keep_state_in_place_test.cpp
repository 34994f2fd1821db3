#include "plans/elastic/keep_state_in_place.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "plans/plan/layout_plan.hpp"
#include "small_plans.hpp"

namespace skein::plans {
namespace {

Plan exchanged(Plan plan, const std::map<WorkerId, WorkerId>& taker_of) {
  for (StagePlan& stage : plan.stages) {
    for (ReplicaPlan& replica : stage.replicas) replica.worker = taker_of.at(replica.worker);
  }
  return plan;
}

std::vector<WorkerId> workers_of(const Plan& plan) {
  std::set<WorkerId> workers;
  for (const StagePlan& stage : plan.stages) {
    for (const ReplicaPlan& replica : stage.replicas) workers.insert(replica.worker);
  }
  return {workers.begin(), workers.end()};
}

/// Fewest elements that any exchange of workers moves.
int64_t fewest_moved(const Plan& plan, const Plan& current, std::vector<WorkerId> workers,
                     const ModelSpec& model) {
  const std::vector<WorkerId> slots = workers_of(plan);
  int64_t fewest = std::numeric_limits<int64_t>::max();
  do {
    std::map<WorkerId, WorkerId> taker_of;
    for (size_t s = 0; s < slots.size(); ++s) taker_of[slots[s]] = workers[s];
    fewest = std::min(fewest, moved_elements(exchanged(plan, taker_of), current, model));
  } while (std::next_permutation(workers.begin(), workers.end()));
  return fewest;
}

/// Calls `check(plan, current, workers, model)` for layouts on 1 to 5 workers, before and after
/// losses, with and without a worker that has joined.
template <class Check>
void for_all_changes(int64_t blocks, const Check& check) {
  for (const JobSpec& job : small_jobs(blocks)) {
    for (uint32_t count = 1; count <= 5; ++count) {
      const auto current = make_layout_plan(job, first_ids(count), 1);
      if (!current.ok()) continue;
      for (const std::vector<WorkerId>& lost : losses_of(first_ids(count))) {
        for (uint32_t joined = 0; joined < 2; ++joined) {
          std::vector<WorkerId> workers = without(first_ids(count), lost);
          for (uint32_t n = 1; n <= joined; ++n) workers.push_back({count + n});
          const auto plan = make_layout_plan(job, workers, 2);
          if (plan.ok()) check(*plan, *current, workers, job.model);
        }
      }
    }
  }
}

TEST(KeepStateInPlace, MovesAsLittleAsTheBestOfAllExchanges) {
  int changes = 0;
  for (int64_t blocks = 2; blocks <= 6; blocks += 2) {
    for_all_changes(blocks, [&](const Plan& plan, const Plan& current,
                                const std::vector<WorkerId>& workers, const ModelSpec& model) {
      const Plan kept = keep_state_in_place(plan, current, workers, model);
      const int64_t moved = moved_elements(kept, current, model);
      EXPECT_EQ(moved, fewest_moved(plan, current, workers, model)) << to_text(kept);
      EXPECT_LE(moved, moved_elements(plan, current, model));
      ++changes;
    });
  }
  EXPECT_GT(changes, 1000);
}

TEST(KeepStateInPlace, ChangesNothingButTheWorkers) {
  for_all_changes(3, [](const Plan& plan, const Plan& current, const std::vector<WorkerId>& workers,
                        const ModelSpec& model) {
    Plan kept = keep_state_in_place(plan, current, workers, model);
    EXPECT_TRUE(validate(kept, model).ok()) << validate(kept, model);
    EXPECT_TRUE(uses_only(kept, workers));
    EXPECT_EQ(kept, keep_state_in_place(plan, current, workers, model));
    std::map<WorkerId, WorkerId> back;
    for (size_t s = 0; s < plan.stages.size(); ++s) {
      for (size_t r = 0; r < plan.stages[s].replicas.size(); ++r) {
        back[kept.stages[s].replicas[r].worker] = plan.stages[s].replicas[r].worker;
      }
    }
    EXPECT_EQ(exchanged(kept, back), plan);
  });
}

TEST(KeepStateInPlace, LeavesThePlanInForceAsItIs) {
  for (const JobSpec& job : small_jobs(4)) {
    const auto plan = make_layout_plan(job, first_ids(6), 1);
    if (!plan.ok()) continue;
    EXPECT_EQ(keep_state_in_place(*plan, *plan, first_ids(6), job.model), *plan);
  }
}

TEST(KeepStateInPlace, GivesTheSlotsOfTheLostToTheNewByAscendingId) {
  JobSpec job = small_job(4, true);
  for (int64_t pipelines : {1, 2}) {
    job.parallelism.data_parallel_replicate_degree = pipelines;
    const auto current = make_layout_plan(job, first_ids(4), 1);
    const auto plan = make_layout_plan(job, ids({2, 4, 7, 9}), 1);
    ASSERT_TRUE(current.ok() && plan.ok());
    const Plan wanted = exchanged(*current, {{WorkerId{1}, WorkerId{7}},
                                             {WorkerId{2}, WorkerId{2}},
                                             {WorkerId{3}, WorkerId{9}},
                                             {WorkerId{4}, WorkerId{4}}});
    EXPECT_EQ(keep_state_in_place(*plan, *current, ids({2, 4, 7, 9}), job.model), wanted);
  }
}

TEST(KeepStateInPlace, PrefersASpareThatHoldsTheStageToAnEmptyOne) {
  JobSpec job = small_job(4, false);
  const auto current = make_layout_plan(job, first_ids(4), 1);
  job.parallelism.pipeline_parallel_degree = 1;
  const auto plan = make_layout_plan(job, ids({3}), 2);
  ASSERT_TRUE(current.ok() && plan.ok());
  const Plan kept = keep_state_in_place(*plan, *current, ids({3, 5}), job.model);
  EXPECT_EQ(workers_of(kept), ids({3}));
  EXPECT_EQ(workers_of(keep_state_in_place(*plan, *current, ids({5, 6}), job.model)), ids({5}));
}

}  // namespace
}  // namespace skein::plans
