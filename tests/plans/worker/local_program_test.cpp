#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plans/worker/local_program.hpp"
#include "tests/plans/worker/watched_program.hpp"

namespace skein::plans {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Program = Watched<LocalProgram>;

constexpr uint64_t kFirstStep = 10;
constexpr SampleClaim kClaim{84, 4}, kNext{92, 4};

ProgramOptions options_of(std::vector<int32_t> stages = {0}) {
  ProgramOptions options;
  for (int32_t stage : stages) {
    options.actions.push_back({stage, ActionType::kForward});
    options.stages.push_back({.stage = stage, .is_first = true, .is_last = true, .leads = true});
  }
  for (int32_t stage : stages) options.actions.push_back({stage, ActionType::kBackward});
  options.first_step = kFirstStep;
  options.samples_per_step = 8;
  return options;
}

/// A program whose work ends at once, unless told otherwise.
struct Replica {
  explicit Replica(const ProgramOptions& options = options_of()) : program(options) {
    take(program.on_start());
  }

  void take(const ProgramCommands& commands) {
    for (const ProgramCommand& command : commands) {
      if (std::holds_alternative<SendReady>(command)) ++readies;
      if (const auto* run = std::get_if<RunAverage>(&command)) averages.push_back(*run);
      if (const auto* update = std::get_if<RunUpdate>(&command)) updates.push_back(*update);
      if (const auto* kept = std::get_if<KeepSnapshot>(&command)) kept_steps = kept->steps_done;
      if (const auto* saved = std::get_if<SaveState>(&command)) saved_steps = saved->steps_done;
      rounds += std::holds_alternative<BeginRound>(command) ? 1 : 0;
      validated += std::holds_alternative<SendValidated>(command) ? 1 : 0;
      device += std::holds_alternative<RunAction>(command) ||
                std::holds_alternative<RunUpdate>(command) ||
                std::holds_alternative<RunValidation>(command);
    }
  }
  SampleClaim samples() const {
    return {program->first_sample(program->step(), 0, {0, 2}),
            program->sample_count(program->step())};
  }
  void end_work() {
    while (device > 0) end_one();
  }
  void end_one() {
    --device;
    take(program.on_work_done());
  }
  void claim(uint64_t step, SampleClaim samples = kClaim) {
    take(program.on_claim({step, samples}));
  }
  void commit(uint64_t step, std::optional<SampleClaim> next = std::nullopt) {
    take(program.on_update({step, 2, next}));
  }
  void average(uint64_t number, bool is_alone = false, int32_t stage = 0) {
    take(program.on_average({stage, number, is_alone}));
  }
  void global(uint64_t number, uint64_t steps_done, int32_t stage = 0) {
    take(program.on_average({stage, number, false, true, true, steps_done}));
  }
  void averaged(uint64_t number, bool ok = true, int32_t stage = 0) {
    take(program.on_averaged(stage, number, ok));
  }
  /// Step 0 is computed, and waits for its commit.
  void compute() {
    claim(0);
    end_work();
  }

  Program program;
  int device = 0, readies = 0, validated = 0, rounds = 0;
  std::vector<RunAverage> averages;
  std::vector<RunUpdate> updates;
  uint64_t kept_steps = 0, saved_steps = 0;
};

TEST(LocalProgram, AStepGoesFromClaimToUpdateToGroupToTheNextClaim) {
  Replica replica;
  EXPECT_EQ(replica.device, 0) << "nothing without samples";
  replica.claim(0);
  EXPECT_EQ(replica.samples(), kClaim);
  replica.end_work();
  EXPECT_EQ(replica.readies, 1);
  EXPECT_TRUE(replica.program->has_global_state());
  replica.commit(0, kNext);
  EXPECT_FALSE(replica.program->has_global_state()) << "the update is its own";
  ASSERT_EQ(replica.updates.size(), 1u);
  EXPECT_EQ(replica.updates[0].job_step, 10u) << "that of the job which its samples belong to";
  EXPECT_EQ(replica.updates[0].gradient_norm, 2);
  replica.end_work();
  EXPECT_EQ(replica.program->activity(), "its group");
  replica.average(5);
  EXPECT_THAT(replica.averages, ElementsAre(RunAverage{0, 5, false}));
  EXPECT_EQ(replica.program->step(), 0u);
  replica.averaged(5);
  EXPECT_EQ(replica.program->step(), 1u);
  EXPECT_EQ(replica.samples(), kNext);
  EXPECT_GT(replica.device, 0);
  EXPECT_EQ(replica.program.dropped(), 0u);
}

/// The ends of a pipeline of two stages, whose head uses the embedding.
TEST(LocalProgram, TheEndsOfAPipelineGiveEachOtherTheirPartOfATiedEmbedding) {
  for (const bool is_first : {true, false}) {
    const int32_t stage = is_first ? 0 : 1;
    ProgramOptions options = options_of({stage});
    options.stages[0].is_first = is_first;
    options.stages[0].is_last = !is_first;
    options.stages[0].has_tied_end = true;
    Replica replica(options);
    const auto arrives = [&](InputKind kind, uint64_t step) {
      replica.take(replica.program.on_input({kind, step, stage, 0}));
    };
    for (uint64_t step = 0; step < 3; ++step) {
      if (step == 0) replica.claim(0);
      if (is_first) {
        EXPECT_EQ(replica.device, 1) << "the forward waits for nobody";
        replica.end_work();
        arrives(InputKind::kGradient, step);
        EXPECT_EQ(replica.device, 0) << "the gradient of the other use is missing";
        arrives(InputKind::kTiedGradient, step);
      } else {
        arrives(InputKind::kActivation, step);
        EXPECT_EQ(replica.device, 0) << "the weights are missing";
        arrives(InputKind::kTiedWeights, step);
      }
      arrives(is_first ? InputKind::kTiedGradient : InputKind::kTiedWeights, step);  // A repeat.
      replica.end_work();
      EXPECT_EQ(replica.readies, static_cast<int>(step) + 1);
      replica.commit(step, kNext);
      replica.end_work();
      replica.average(step + 1, /*is_alone=*/true, stage);
    }
  }
}

TEST(LocalProgram, AGroupThatIsToldWhileTheUpdateRunsWaitsForItsEnd) {
  Replica replica;
  replica.compute();
  replica.commit(0, kNext);
  replica.average(5);
  EXPECT_THAT(replica.averages, IsEmpty());
  replica.end_one();
  EXPECT_EQ(replica.averages.size(), 1u);
}

TEST(LocalProgram, AGroupOfOneIsOverAtOnceAndAnAbortedOneIsToo) {
  for (bool is_alone : {true, false}) {
    for (bool is_early : {true, false}) {
      Replica replica;
      replica.compute();
      replica.commit(0, kNext);
      if (is_early) replica.average(5, is_alone);
      replica.end_one();
      if (!is_early) replica.average(5, is_alone);
      if (!is_alone) replica.averaged(5, false);
      EXPECT_EQ(replica.averages.size(), is_alone ? 0u : 1u);
      EXPECT_EQ(replica.program->step(), 1u);
      EXPECT_EQ(replica.samples(), kNext);
    }
  }
}

TEST(LocalProgram, GoesOnWhenTheGroupsOfAllItsStagesAreOver) {
  Replica replica(options_of({0, 2}));
  replica.compute();
  EXPECT_EQ(replica.readies, 2);
  replica.commit(0, kNext);
  replica.average(5, false, 2);
  replica.end_work();
  EXPECT_THAT(replica.averages, ElementsAre(RunAverage{2, 5, false}));
  replica.averaged(5, true, 2);
  EXPECT_EQ(replica.program->step(), 0u);
  replica.average(6, true, 0);
  EXPECT_EQ(replica.program->step(), 1u);
  EXPECT_GT(replica.device, 0);
}

/// Computes without a next claim, and has the global average of a round that ends at `steps`.
Replica at_the_global_average(uint64_t steps, const ProgramOptions& options = options_of()) {
  Replica replica(options);
  replica.compute();
  replica.commit(0);
  replica.end_work();
  EXPECT_EQ(replica.program->activity(), "samples");
  replica.global(7, steps);
  EXPECT_EQ(replica.averages.back(), (RunAverage{0, 7, true}));
  replica.averaged(7);
  return replica;
}

TEST(LocalProgram, TheGlobalAverageIsTheStateOfTheJobsSteps) {
  Replica replica = at_the_global_average(14);
  EXPECT_EQ(replica.program->steps_done(), 14u);
  EXPECT_TRUE(replica.program->has_global_state());
  EXPECT_EQ(replica.program->activity(), "the commit");
  replica.claim(1);
  EXPECT_EQ(replica.device, 0) << "the commit comes first";
  EXPECT_EQ(replica.program.dropped(), 1u);
  replica.take(replica.program.on_commit({.step = 12}));
  EXPECT_EQ(replica.program.dropped(), 2u) << "of another step";
  replica.take(replica.program.on_commit({.step = 13, .snapshot = true}));
  EXPECT_EQ(replica.kept_steps, 14u);
  replica.claim(1);
  EXPECT_GT(replica.device, 0);
  EXPECT_FALSE(replica.program->is_finished());
}

TEST(LocalProgram, AnAverageThatWasNotTakenIsNoState) {
  Replica replica(options_of({0, 1}));
  replica.compute();
  replica.commit(0);
  replica.end_work();
  replica.global(7, 14, 0);
  replica.global(8, 14, 1);
  replica.averaged(7, true, 0);
  EXPECT_FALSE(replica.program->has_global_state()) << "one stage is not all";
  replica.averaged(8, false, 1);
  EXPECT_FALSE(replica.program->has_global_state());
  EXPECT_EQ(replica.program->steps_done(), kFirstStep);
}

TEST(LocalProgram, TheAverageMayBeToldWhileTheLastUpdateRuns) {
  Replica replica;
  replica.compute();
  replica.commit(0);
  replica.global(7, 14);
  EXPECT_THAT(replica.averages, IsEmpty());
  replica.end_one();
  ASSERT_EQ(replica.averages.size(), 1u);
  replica.averaged(7);
  EXPECT_EQ(replica.program->steps_done(), 14u);
}

TEST(LocalProgram, APushThatClosesTheRoundIsNotItsEnd) {
  for (bool ok : {true, false}) {
    Replica replica;
    replica.compute();
    replica.commit(0);
    replica.end_work();
    replica.take(replica.program.on_average({.number = 6, .is_closing = true}));
    EXPECT_THAT(replica.averages, ElementsAre(RunAverage{0, 6, false}));
    replica.claim(1);
    EXPECT_EQ(replica.program.dropped(), 1u) << "while it pushes";
    replica.averaged(6, ok);
    EXPECT_FALSE(replica.program->has_global_state());
    replica.global(7, 14);
    replica.averaged(7);
    EXPECT_EQ(replica.program->steps_done(), 14u);
  }
}

TEST(LocalProgram, WhoHadNoSamplesTakesTheAverageToo) {
  Replica replica;
  replica.global(1, 14);
  EXPECT_FALSE(replica.program->has_global_state()) << "while it is taken";
  replica.averaged(1);
  EXPECT_EQ(replica.program->steps_done(), 14u);
}

TEST(LocalProgram, WhoHasNoSamplesMayBeToldOfTheAverageWhileItValidates) {
  ProgramOptions options = options_of();
  options.validation_batches = 1;
  Replica replica = at_the_global_average(14, options);
  replica.take(replica.program.on_commit({.step = 13, .validate = true}));
  replica.global(9, 20);
  EXPECT_EQ(replica.program->steps_done(), 14u);
  replica.end_one();
  EXPECT_EQ(replica.validated, 1);
  replica.averaged(9);
  EXPECT_EQ(replica.program->steps_done(), 20u);
  EXPECT_EQ(replica.program.dropped(), 0u);
}

TEST(LocalProgram, SamplesOfALostReplicaMayComeAnyTimeBehindTheLastCommit) {
  for (int ended = 0; ended <= 1; ++ended) {
    Replica replica;
    replica.compute();
    replica.commit(0);
    if (ended > 0) replica.end_one();
    replica.claim(1, kNext);
    replica.claim(1, kNext);
    replica.end_work();
    EXPECT_EQ(replica.readies, 2) << ended;
    EXPECT_EQ(replica.samples(), kNext);
    EXPECT_EQ(replica.program.dropped(), 1u) << "the repeat";
  }
}

TEST(LocalProgram, CarriesOutTheOrdersBehindTheAverageAndTakesAClaimMeanwhile) {
  ProgramOptions options = options_of();
  options.validation_batches = 2;
  Replica replica = at_the_global_average(14, options);
  replica.take(replica.program.on_commit({.step = 13, .validate = true, .checkpoint = true}));
  EXPECT_EQ(replica.saved_steps, 14u);
  replica.claim(1, kNext);
  EXPECT_EQ(replica.device, 1) << "the validation goes first";
  replica.end_one();
  replica.end_one();
  EXPECT_EQ(replica.validated, 1);
  EXPECT_EQ(replica.samples(), kNext);
  replica.end_work();
  EXPECT_EQ(replica.readies, 2);
  EXPECT_EQ(replica.program.dropped(), 0u);
}

TEST(LocalProgram, TheLastCommitEndsIt) {
  Replica replica = at_the_global_average(14);
  replica.take(replica.program.on_commit({.step = 13, .last = true}));
  EXPECT_TRUE(replica.program->is_finished());
  replica.claim(1);
  replica.global(9, 20);
  EXPECT_EQ(replica.program.dropped(), 2u);
}

TEST(LocalProgram, WhatThePlanBeforeHasLeftIsDoneBeforeTheFirstSamples) {
  ProgramOptions options = options_of();
  options.validation_batches = 1;
  Program program(options);
  const CommitOrder left{
      .step = kFirstStep - 1, .validate = true, .checkpoint = true, .snapshot = true};
  EXPECT_THAT(program.on_start(left),
              ElementsAre(ProgramCommand(BeginRound{}), ProgramCommand(KeepSnapshot{kFirstStep, 0}),
                          ProgramCommand(SaveState{kFirstStep, 0}),
                          ProgramCommand(RunValidation{kFirstStep - 1, 0, 0, true})));
  EXPECT_THAT(program.on_claim({0, kClaim}), IsEmpty());
  const ProgramCommands then = program.on_work_done();
  ASSERT_FALSE(then.empty());
  EXPECT_EQ(then[0], ProgramCommand(SendValidated{kFirstStep - 1, 0}));
  EXPECT_TRUE(std::holds_alternative<RunAction>(then[1]));
}

/// Every word of a step again at every point of the next ones.
TEST(LocalProgram, RepeatsChangeNothing) {
  for (int point = 0; point < 7; ++point) {
    Replica replica;
    auto repeat_at = [&](int here) {
      if (here != point) return;
      const uint64_t step = replica.program->step();
      const int device = replica.device;
      if (here > 0) replica.claim(0);
      if (here > 1) replica.commit(0, kNext);
      if (here > 2) replica.average(5);
      if (here > 3) replica.averaged(5);
      EXPECT_EQ(replica.program->step(), step) << here;
      EXPECT_EQ(replica.device, device) << here;
    };
    repeat_at(0);
    replica.compute();
    repeat_at(1);
    replica.commit(0, kNext);
    repeat_at(2);
    replica.end_one();
    replica.average(5);
    repeat_at(3);
    replica.averaged(5);
    repeat_at(4);
    replica.end_work();
    replica.commit(1, kClaim);
    repeat_at(5);
    replica.end_one();
    repeat_at(6);
    replica.average(6, true);
    replica.end_work();
    EXPECT_EQ(replica.readies, 3) << point;
    EXPECT_EQ(replica.updates.size(), 2u);
    EXPECT_EQ(replica.averages.size(), 1u);
  }
}

TEST(LocalProgram, SaysWhyItDropsAnEvent) {
  Replica replica;
  replica.take(replica.program.on_start());
  EXPECT_EQ(replica.program.dropped(DropReason::kRepeated), 1u);
  replica.claim(1);
  EXPECT_EQ(replica.program.dropped(DropReason::kStale), 1u) << "another step";
  replica.commit(0);
  EXPECT_EQ(replica.program.dropped(DropReason::kUnexpected), 1u) << "nothing was computed";
  replica.take(replica.program.on_commit({.step = kFirstStep}));
  EXPECT_EQ(replica.program.dropped(DropReason::kUnexpected), 2u) << "there was no average";
  replica.averaged(3);
  EXPECT_EQ(replica.program.dropped(DropReason::kStale), 2u);
  EXPECT_EQ(replica.program.dropped(), 5u);
}

TEST(LocalProgram, ARoundBeginsWithTheStartAndWithEveryCommitButTheLast) {
  for (bool last : {false, true}) {
    Replica replica = at_the_global_average(14);
    EXPECT_EQ(replica.rounds, 1);
    replica.take(replica.program.on_commit({.step = 13, .last = last}));
    EXPECT_EQ(replica.rounds, last ? 1 : 2);
  }
}

TEST(LocalProgram, AReplicaReadsAllRowsOfItsClaim) {
  Replica replica;
  replica.claim(0);
  EXPECT_EQ(replica.program->first_sample(0, 0, {2, 2}), kClaim.first);
  EXPECT_EQ(replica.program->first_sample(0, 1, {2, 2}), kClaim.first + 2);
}

TEST(LocalProgram, AValidationInputIsKnownByTheJobsSteps) {
  ProgramOptions options = options_of();
  options.stages[0].is_first = false;
  options.validation_batches = 1;
  Program program(options);
  program.on_start();
  EXPECT_THAT(program.on_input({InputKind::kValidation, 8, 0, 0}), IsEmpty());
  EXPECT_EQ(program.dropped(), 1u) << "of a round before";
  program.on_average({0, 1, false, true, true, 14});
  EXPECT_THAT(program.on_input({InputKind::kValidation, 13, 0, 0}), IsEmpty());
  EXPECT_EQ(program.dropped(), 1u) << "a neighbour was first";
  program.on_averaged(0, 1, true);
  EXPECT_THAT(
      program.on_commit({.step = 13, .validate = true}),
      ElementsAre(ProgramCommand(BeginRound{}), ProgramCommand(RunValidation{13, 0, 0, true})));
}

}  // namespace
}  // namespace skein::plans
