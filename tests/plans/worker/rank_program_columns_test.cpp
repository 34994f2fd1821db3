// What a rank of a column of its own pace does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plans/worker/rank_program.hpp"

namespace skein::plans {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kFirstStep = 10;
constexpr SampleLease kLease{84, 4}, kNext{92, 4};

RankProgram::Options options_of(std::vector<int32_t> stages = {0}) {
  RankProgram::Options options;
  for (int32_t stage : stages) {
    options.actions.push_back({stage, ActionType::kForward});
    options.stages.push_back({.stage = stage, .is_first = true, .is_last = true, .leads = true});
  }
  for (int32_t stage : stages) options.actions.push_back({stage, ActionType::kBackward});
  options.first_step = kFirstStep;
  options.samples_per_step = 8;
  options.is_column = true;
  return options;
}

/// A program whose work ends at once, unless told otherwise.
struct Column {
  explicit Column(const RankProgram::Options& options = options_of()) : program(options) {
    take(program.on_start());
  }

  void take(const RankCommands& commands) {
    for (const RankCommand& command : commands) {
      if (std::holds_alternative<SendReady>(command)) ++readies;
      if (const auto* run = std::get_if<RunCombination>(&command)) combinations.push_back(*run);
      if (const auto* update = std::get_if<RunUpdate>(&command)) updates.push_back(update->commit);
      if (const auto* kept = std::get_if<KeepSnapshot>(&command)) kept_steps = kept->steps_done;
      if (const auto* saved = std::get_if<SaveState>(&command)) saved_steps = saved->steps_done;
      validated += std::holds_alternative<SendValidated>(command) ? 1 : 0;
      device += std::holds_alternative<RunAction>(command) ||
                std::holds_alternative<RunUpdate>(command) ||
                std::holds_alternative<RunValidation>(command);
    }
  }
  void end_work() {
    while (device > 0) end_one();
  }
  void end_one() {
    --device;
    take(program.on_work_done());
  }
  void lease(uint64_t step, SampleLease samples = kLease) { take(program.on_lease(step, samples)); }
  void commit(uint64_t step, std::optional<SampleLease> next = std::nullopt) {
    take(program.on_column_commit(step, 2, next));
  }
  void combine(uint64_t number, bool is_alone = false, int32_t stage = 0) {
    take(program.on_combine({stage, number, is_alone}));
  }
  void mean(uint64_t number, uint64_t steps_done, int32_t stage = 0) {
    take(program.on_combine({stage, number, false, true, true, steps_done}));
  }
  void combined(uint64_t number, bool ok = true, int32_t stage = 0) {
    take(program.on_combined(stage, number, ok));
  }
  /// Step 0 is computed, and waits for its commit.
  void compute() {
    lease(0);
    end_work();
  }

  RankProgram program;
  int device = 0, readies = 0, validated = 0;
  std::vector<RunCombination> combinations;
  std::vector<CommitOrder> updates;
  uint64_t kept_steps = 0, saved_steps = 0;
};

TEST(RankProgramColumns, AStepGoesFromLeaseToCommitToGroupToTheNextLease) {
  Column column;
  EXPECT_EQ(column.device, 0) << "nothing without samples";
  column.lease(0);
  EXPECT_EQ(column.program.samples(), kLease);
  column.end_work();
  EXPECT_EQ(column.readies, 1);
  EXPECT_TRUE(column.program.has_common_state());
  column.commit(0, kNext);
  EXPECT_FALSE(column.program.has_common_state()) << "the update is its own";
  ASSERT_EQ(column.updates.size(), 1u);
  EXPECT_EQ(column.updates[0].step, 10u) << "that of the job which its samples belong to";
  EXPECT_EQ(column.updates[0].gradient_norm, 2);
  column.end_work();
  EXPECT_EQ(column.program.activity(), "its group");
  column.combine(5);
  EXPECT_THAT(column.combinations, ElementsAre(RunCombination{0, 5, false}));
  EXPECT_EQ(column.program.step(), 0u);
  column.combined(5);
  EXPECT_EQ(column.program.step(), 1u);
  EXPECT_EQ(column.program.samples(), kNext);
  EXPECT_GT(column.device, 0);
  EXPECT_EQ(column.program.dropped(), 0u);
}

TEST(RankProgramColumns, AGroupThatIsToldWhileTheUpdateRunsWaitsForItsEnd) {
  Column column;
  column.compute();
  column.commit(0, kNext);
  column.combine(5);
  EXPECT_THAT(column.combinations, IsEmpty());
  column.end_one();
  EXPECT_EQ(column.combinations.size(), 1u);
}

TEST(RankProgramColumns, AGroupOfOneIsOverAtOnceAndADissolvedOneIsToo) {
  for (bool is_alone : {true, false}) {
    for (bool is_early : {true, false}) {
      Column column;
      column.compute();
      column.commit(0, kNext);
      if (is_early) column.combine(5, is_alone);
      column.end_one();
      if (!is_early) column.combine(5, is_alone);
      if (!is_alone) column.combined(5, false);
      EXPECT_EQ(column.combinations.size(), is_alone ? 0u : 1u);
      EXPECT_EQ(column.program.step(), 1u);
      EXPECT_EQ(column.program.samples(), kNext);
    }
  }
}

TEST(RankProgramColumns, GoesOnWhenTheGroupsOfAllItsStagesAreOver) {
  Column column(options_of({0, 2}));
  column.compute();
  EXPECT_EQ(column.readies, 2);
  column.commit(0, kNext);
  column.combine(5, false, 2);
  column.end_work();
  EXPECT_THAT(column.combinations, ElementsAre(RunCombination{2, 5, false}));
  column.combined(5, true, 2);
  EXPECT_EQ(column.program.step(), 0u);
  column.combine(6, true, 0);
  EXPECT_EQ(column.program.step(), 1u);
  EXPECT_GT(column.device, 0);
}

/// Computes without a next lease, and has the mean of a segment that ends at `steps`.
Column at_the_mean(uint64_t steps, const RankProgram::Options& options = options_of()) {
  Column column(options);
  column.compute();
  column.commit(0);
  column.end_work();
  EXPECT_EQ(column.program.activity(), "samples");
  column.mean(7, steps);
  EXPECT_EQ(column.combinations.back(), (RunCombination{0, 7, true}));
  column.combined(7);
  return column;
}

TEST(RankProgramColumns, TheCommonMeanIsTheStateOfTheJobsSteps) {
  Column column = at_the_mean(14);
  EXPECT_EQ(column.program.steps_done(), 14u);
  EXPECT_TRUE(column.program.has_common_state());
  EXPECT_EQ(column.program.activity(), "the commit");
  column.lease(1);
  EXPECT_EQ(column.device, 0) << "the commit comes first";
  EXPECT_EQ(column.program.dropped(), 1u);
  column.take(column.program.on_commit({.step = 12}));
  EXPECT_EQ(column.program.dropped(), 2u) << "of another step";
  column.take(column.program.on_commit({.step = 13, .snapshot = true}));
  EXPECT_EQ(column.kept_steps, 14u);
  column.lease(1);
  EXPECT_GT(column.device, 0);
  EXPECT_FALSE(column.program.finished());
}

TEST(RankProgramColumns, AMeanThatWasNotTakenIsNoState) {
  Column column(options_of({0, 1}));
  column.compute();
  column.commit(0);
  column.end_work();
  column.mean(7, 14, 0);
  column.mean(8, 14, 1);
  column.combined(7, true, 0);
  EXPECT_FALSE(column.program.has_common_state()) << "one stage is not all";
  column.combined(8, false, 1);
  EXPECT_FALSE(column.program.has_common_state());
  EXPECT_EQ(column.program.steps_done(), kFirstStep);
}

TEST(RankProgramColumns, TheMeanMayBeToldWhileTheLastUpdateRuns) {
  Column column;
  column.compute();
  column.commit(0);
  column.mean(7, 14);
  EXPECT_THAT(column.combinations, IsEmpty());
  column.end_one();
  ASSERT_EQ(column.combinations.size(), 1u);
  column.combined(7);
  EXPECT_EQ(column.program.steps_done(), 14u);
}

TEST(RankProgramColumns, APushThatClosesTheSegmentIsNotItsEnd) {
  for (bool ok : {true, false}) {
    Column column;
    column.compute();
    column.commit(0);
    column.end_work();
    column.take(column.program.on_combine({.number = 6, .is_closing = true}));
    EXPECT_THAT(column.combinations, ElementsAre(RunCombination{0, 6, false}));
    column.lease(1);
    EXPECT_EQ(column.program.dropped(), 1u) << "while it pushes";
    column.combined(6, ok);
    EXPECT_FALSE(column.program.has_common_state());
    column.mean(7, 14);
    column.combined(7);
    EXPECT_EQ(column.program.steps_done(), 14u);
  }
}

TEST(RankProgramColumns, WhoHadNoSamplesTakesTheMeanToo) {
  Column column;
  column.mean(1, 14);
  EXPECT_FALSE(column.program.has_common_state()) << "while it is taken";
  column.combined(1);
  EXPECT_EQ(column.program.steps_done(), 14u);
}

TEST(RankProgramColumns, WhoHasNoSamplesMayBeToldOfTheMeanWhileItValidates) {
  RankProgram::Options options = options_of();
  options.validation_batches = 1;
  Column column = at_the_mean(14, options);
  column.take(column.program.on_commit({.step = 13, .validate = true}));
  column.mean(9, 20);
  EXPECT_EQ(column.program.steps_done(), 14u);
  column.end_one();
  EXPECT_EQ(column.validated, 1);
  column.combined(9);
  EXPECT_EQ(column.program.steps_done(), 20u);
  EXPECT_EQ(column.program.dropped(), 0u);
}

TEST(RankProgramColumns, SamplesOfALostColumnMayComeAnyTimeBehindTheLastCommit) {
  for (int ended = 0; ended <= 1; ++ended) {
    Column column;
    column.compute();
    column.commit(0);
    if (ended > 0) column.end_one();
    column.lease(1, kNext);
    column.lease(1, kNext);
    column.end_work();
    EXPECT_EQ(column.readies, 2) << ended;
    EXPECT_EQ(column.program.samples(), kNext);
    EXPECT_EQ(column.program.dropped(), 1u) << "the repeat";
  }
}

TEST(RankProgramColumns, CarriesOutTheOrdersBehindTheMeanAndTakesALeaseMeanwhile) {
  RankProgram::Options options = options_of();
  options.validation_batches = 2;
  Column column = at_the_mean(14, options);
  column.take(column.program.on_commit({.step = 13, .validate = true, .checkpoint = true}));
  EXPECT_EQ(column.saved_steps, 14u);
  column.lease(1, kNext);
  EXPECT_EQ(column.device, 1) << "the validation goes first";
  column.end_one();
  column.end_one();
  EXPECT_EQ(column.validated, 1);
  EXPECT_EQ(column.program.samples(), kNext);
  column.end_work();
  EXPECT_EQ(column.readies, 2);
  EXPECT_EQ(column.program.dropped(), 0u);
}

TEST(RankProgramColumns, TheLastCommitEndsIt) {
  Column column = at_the_mean(14);
  column.take(column.program.on_commit({.step = 13, .last = true}));
  EXPECT_TRUE(column.program.finished());
  column.lease(1);
  column.mean(9, 20);
  EXPECT_EQ(column.program.dropped(), 2u);
}

TEST(RankProgramColumns, WhatThePlanBeforeHasLeftIsDoneBeforeTheFirstSamples) {
  RankProgram::Options options = options_of();
  options.validation_batches = 1;
  RankProgram program(options);
  const CommitOrder left{
      .step = kFirstStep - 1, .validate = true, .checkpoint = true, .snapshot = true};
  EXPECT_THAT(
      program.on_start(left),
      ElementsAre(RankCommand(KeepSnapshot{kFirstStep, 0}), RankCommand(SaveState{kFirstStep, 0}),
                  RankCommand(RunValidation{kFirstStep - 1, 0, 0, true})));
  EXPECT_THAT(program.on_lease(0, kLease), IsEmpty());
  const RankCommands then = program.on_work_done();
  ASSERT_FALSE(then.empty());
  EXPECT_EQ(then[0], RankCommand(SendValidated{kFirstStep - 1, 0}));
  EXPECT_TRUE(std::holds_alternative<RunAction>(then[1]));
}

/// Every word of a step again at every point of the next ones.
TEST(RankProgramColumns, RepeatsChangeNothing) {
  for (int point = 0; point < 7; ++point) {
    Column column;
    auto repeat_at = [&](int here) {
      if (here != point) return;
      const uint64_t step = column.program.step();
      const int device = column.device;
      if (here > 0) column.lease(0);
      if (here > 1) column.commit(0, kNext);
      if (here > 2) column.combine(5);
      if (here > 3) column.combined(5);
      EXPECT_EQ(column.program.step(), step) << here;
      EXPECT_EQ(column.device, device) << here;
    };
    repeat_at(0);
    column.compute();
    repeat_at(1);
    column.commit(0, kNext);
    repeat_at(2);
    column.end_one();
    column.combine(5);
    repeat_at(3);
    column.combined(5);
    repeat_at(4);
    column.end_work();
    column.commit(1, kLease);
    repeat_at(5);
    column.end_one();
    repeat_at(6);
    column.combine(6, true);
    column.end_work();
    EXPECT_EQ(column.readies, 3) << point;
    EXPECT_EQ(column.updates.size(), 2u);
    EXPECT_EQ(column.combinations.size(), 1u);
  }
}

TEST(RankProgramColumns, WordsForColumnsAreNoneForOthers) {
  RankProgram::Options options = options_of();
  options.is_column = false;
  RankProgram program(options);
  program.on_start();
  EXPECT_THAT(program.on_lease(kFirstStep, kLease), IsEmpty());
  EXPECT_THAT(program.on_column_commit(kFirstStep, 1, kNext), IsEmpty());
  EXPECT_THAT(program.on_combine({0, 1}), IsEmpty());
  EXPECT_THAT(program.on_combined(0, 1, true), IsEmpty());
  EXPECT_EQ(program.dropped(), 4u);
}

TEST(RankProgramColumns, AValidationInputIsKnownByTheJobsSteps) {
  RankProgram::Options options = options_of();
  options.stages[0].is_first = false;
  options.validation_batches = 1;
  RankProgram program(options);
  program.on_start();
  EXPECT_THAT(program.on_input({InputKind::kValidation, 8, 0, 0}), IsEmpty());
  EXPECT_EQ(program.dropped(), 1u) << "of a segment before";
  program.on_combine({0, 1, false, true, true, 14});
  EXPECT_THAT(program.on_input({InputKind::kValidation, 13, 0, 0}), IsEmpty());
  EXPECT_EQ(program.dropped(), 1u) << "a neighbour was first";
  program.on_combined(0, 1, true);
  EXPECT_THAT(program.on_commit({.step = 13, .validate = true}),
              ElementsAre(RankCommand(RunValidation{13, 0, 0, true})));
}

}  // namespace
}  // namespace skein::plans
