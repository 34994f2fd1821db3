#include "plans/replica_program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace skein::plans {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int32_t kMicrobatches = 3;

ReplicaProgram::Options middle_stage() {
  ReplicaProgram::Options options;
  options.actions = schedule_actions(ScheduleKind::k1F1B, 1, 3, kMicrobatches);
  return options;
}

ReplicaProgram::Options only_stage() {
  ReplicaProgram::Options options;
  options.actions = schedule_actions(ScheduleKind::k1F1B, 0, 1, kMicrobatches);
  options.is_first = options.is_last = options.leads = true;
  return options;
}

/// Answers every command that occupies the device, and collects all of them.
ReplicaCommands run_to_quiet(ReplicaProgram& program, ReplicaCommands commands) {
  ReplicaCommands all;
  while (!commands.empty()) {
    bool busy = false;
    for (const ReplicaCommand& command : commands) {
      all.push_back(command);
      busy |= std::holds_alternative<RunAction>(command) ||
              std::holds_alternative<RunNorm>(command) ||
              std::holds_alternative<RunUpdate>(command) ||
              std::holds_alternative<RunValidation>(command);
    }
    commands = busy ? program.on_work_done() : ReplicaCommands{};
  }
  return all;
}

template <class Command>
size_t count(const ReplicaCommands& commands) {
  return static_cast<size_t>(std::count_if(
      commands.begin(), commands.end(),
      [](const ReplicaCommand& each) { return std::holds_alternative<Command>(each); }));
}

TEST(ReplicaProgram, RunsAllActionsInOrderThenSignalsReady) {
  ReplicaProgram program(only_stage());
  const ReplicaCommands commands = run_to_quiet(program, program.on_start());
  std::vector<Action> actions;
  for (const ReplicaCommand& command : commands) {
    if (const auto* run = std::get_if<RunAction>(&command)) actions.push_back(run->action);
  }
  EXPECT_EQ(actions, only_stage().actions);
  EXPECT_EQ(commands.back(), ReplicaCommand(SendReady{0}));
}

TEST(ReplicaProgram, MarksTheFirstAndTheLastActionOfAStep) {
  ReplicaProgram program(only_stage());
  const ReplicaCommands commands = run_to_quiet(program, program.on_start());
  for (size_t i = 0; i + 1 < commands.size(); ++i) {
    const auto& run = std::get<RunAction>(commands[i]);
    EXPECT_EQ(run.begins_step, i == 0);
    EXPECT_EQ(run.ends_step, i + 2 == commands.size());
  }
}

TEST(ReplicaProgram, AMiddleStageWaitsForBothNeighbours) {
  ReplicaProgram program(middle_stage());
  EXPECT_THAT(program.on_start(), IsEmpty());
  EXPECT_EQ(program.on_input({InputKind::kActivation, 0, 0}).size(), 1u);
  EXPECT_THAT(program.on_work_done(), IsEmpty());
  EXPECT_EQ(program.on_input({InputKind::kActivation, 0, 1}).size(), 1u);
  EXPECT_THAT(program.on_work_done(), IsEmpty()) << "B0 needs its gradient";
  EXPECT_EQ(program.on_input({InputKind::kGradient, 0, 0}).size(), 1u);
}

TEST(ReplicaProgram, FinishesAStepForAnyOrderOfInputs) {
  std::mt19937 shuffle(7);
  for (int trial = 0; trial < 200; ++trial) {
    ReplicaProgram program(middle_stage());
    std::vector<InputKey> keys;
    for (int32_t m = 0; m < kMicrobatches; ++m) {
      keys.push_back({InputKind::kActivation, 0, m});
      keys.push_back({InputKind::kGradient, 0, m});
    }
    std::shuffle(keys.begin(), keys.end(), shuffle);
    ReplicaCommands all = run_to_quiet(program, program.on_start());
    for (const InputKey& key : keys) {
      for (int repeat = 0; repeat < 2; ++repeat) {
        const ReplicaCommands more = run_to_quiet(program, program.on_input(key));
        all.insert(all.end(), more.begin(), more.end());
      }
    }
    EXPECT_EQ(count<RunAction>(all), 2u * kMicrobatches);
    EXPECT_EQ(count<SendReady>(all), 1u);
  }
}

TEST(ReplicaProgram, ReducesEachGroupOnceAndThenReportsTheNorm) {
  ReplicaProgram::Options options = only_stage();
  options.groups = {GroupId{0}, GroupId{3}};
  ReplicaProgram program(options);
  run_to_quiet(program, program.on_start());
  EXPECT_THAT(program.on_group_start(GroupId{9}, 0), IsEmpty()) << "not a member";
  EXPECT_THAT(program.on_group_start(GroupId{0}, 1), IsEmpty()) << "another step";
  EXPECT_THAT(program.on_group_start(GroupId{0}, 0),
              ElementsAre(ReplicaCommand(RunReduction{GroupId{0}, 0})));
  EXPECT_THAT(program.on_group_start(GroupId{0}, 0), IsEmpty()) << "a repeat";
  EXPECT_THAT(program.on_group_reduced(GroupId{0}, 0), IsEmpty());
  program.on_group_start(GroupId{3}, 0);
  EXPECT_THAT(run_to_quiet(program, program.on_group_reduced(GroupId{3}, 0)),
              ElementsAre(ReplicaCommand(RunNorm{0}), ReplicaCommand(SendReduced{0})));
  EXPECT_EQ(program.dropped(), 3u);
}

TEST(ReplicaProgram, AppliesACommitOnceAndOnlyOfItsStep) {
  ReplicaProgram program(only_stage());
  run_to_quiet(program, program.on_start());
  EXPECT_THAT(program.on_commit({.step = 1}), IsEmpty());
  const ReplicaCommands commands = program.on_commit({.step = 0, .gradient_norm = 2});
  EXPECT_EQ(count<RunUpdate>(commands), 1u);
  EXPECT_THAT(program.on_commit({.step = 0}), IsEmpty());
  run_to_quiet(program, program.on_work_done());
  EXPECT_EQ(program.step(), 1u);
}

TEST(ReplicaProgram, ACommitBeforeReadyHasNoEffect) {
  ReplicaProgram program(middle_stage());
  program.on_start();
  EXPECT_THAT(program.on_commit({.step = 0}), IsEmpty());
  EXPECT_EQ(program.step(), 0u);
}

TEST(ReplicaProgram, TheLeaderSavesBetweenTheUpdateAndTheNextStep) {
  ReplicaProgram program(only_stage());
  run_to_quiet(program, program.on_start());
  program.on_commit({.step = 0, .checkpoint = true});
  const ReplicaCommands commands = program.on_work_done();
  ASSERT_EQ(commands.size(), 2u);
  EXPECT_EQ(commands[0], ReplicaCommand(SaveState{1}));
  EXPECT_TRUE(std::holds_alternative<RunAction>(commands[1]));
}

TEST(ReplicaProgram, ValidatesAfterTheUpdateAndSaysSo) {
  ReplicaProgram::Options options = only_stage();
  options.validation_batches = 2;
  ReplicaProgram program(options);
  run_to_quiet(program, program.on_start());
  const ReplicaCommands commands =
      run_to_quiet(program, program.on_commit({.step = 0, .validate = true, .last = true}));
  EXPECT_THAT(commands, ElementsAre(ReplicaCommand(RunUpdate{{0, 0, true, false, true}}),
                                    ReplicaCommand(RunValidation{0, 0, true}),
                                    ReplicaCommand(RunValidation{0, 1, false}),
                                    ReplicaCommand(SendValidated{0})));
  EXPECT_TRUE(program.finished());
}

TEST(ReplicaProgram, TakesTheNextStepsInputsEarlyAndDropsOldOnes) {
  ReplicaProgram::Options options = middle_stage();
  options.is_last = true;
  options.actions = schedule_actions(ScheduleKind::k1F1B, 2, 3, 1);
  ReplicaProgram program(options);
  program.on_start();
  run_to_quiet(program, program.on_input({InputKind::kActivation, 0, 0}));
  EXPECT_THAT(program.on_input({InputKind::kActivation, 1, 0}), IsEmpty()) << "one step ahead";
  const ReplicaCommands commands = run_to_quiet(program, program.on_commit({.step = 0}));
  EXPECT_EQ(count<RunAction>(commands), 2u) << "step 1 runs from the input that came early";
  EXPECT_THAT(program.on_input({InputKind::kActivation, 0, 0}), IsEmpty());
  EXPECT_EQ(program.dropped(), 1u);
}

}  // namespace
}  // namespace skein::plans
