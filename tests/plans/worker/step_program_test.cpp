#include "plans/worker/step_program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "plans/schedule/schedule.hpp"
#include "tests/plans/worker/watched_program.hpp"

namespace skein::plans {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using WatchedProgram = Watched<StepProgram>;

constexpr int32_t kMicrobatches = 3;

ProgramOptions middle_stage() {
  ProgramOptions options;
  options.actions = make_schedule(ScheduleKind::k1F1B, straight_shape(3, kMicrobatches))->at(1);
  options.stages = {{.stage = 1}};
  return options;
}

ProgramOptions only_stage() {
  ProgramOptions options;
  options.actions = make_schedule(ScheduleKind::k1F1B, straight_shape(1, kMicrobatches))->at(0);
  options.stages = {{.stage = 0, .is_first = true, .is_last = true, .leads = true}};
  return options;
}

/// Answers every piece of work of the device, one after the other, and collects all commands.
ProgramCommands run_to_quiet(WatchedProgram& program, ProgramCommands commands) {
  ProgramCommands all;
  size_t running = 0;
  do {
    for (const ProgramCommand& command : commands) {
      all.push_back(command);
      running += std::holds_alternative<RunAction>(command) ||
                 std::holds_alternative<RunNorm>(command) ||
                 std::holds_alternative<RunUpdate>(command) ||
                 std::holds_alternative<RunValidation>(command);
    }
    commands = running > 0 ? program.on_work_done() : ProgramCommands{};
    if (running > 0) --running;
  } while (running > 0 || !commands.empty());
  return all;
}

template <class Command>
size_t count(const ProgramCommands& commands) {
  return static_cast<size_t>(std::count_if(
      commands.begin(), commands.end(),
      [](const ProgramCommand& each) { return std::holds_alternative<Command>(each); }));
}

TEST(StepProgram, RunsAllActionsInOrderThenSignalsReady) {
  WatchedProgram program(only_stage());
  const ProgramCommands commands = run_to_quiet(program, program.on_start());
  std::vector<Action> actions;
  for (const ProgramCommand& command : commands) {
    if (const auto* run = std::get_if<RunAction>(&command)) actions.push_back(run->action);
  }
  EXPECT_EQ(actions, only_stage().actions);
  EXPECT_EQ(commands.back(), ProgramCommand(SendReady{0, 0}));
}

TEST(StepProgram, MarksTheFirstAndTheLastActionOfAStep) {
  WatchedProgram program(only_stage());
  const ProgramCommands commands = run_to_quiet(program, program.on_start());
  for (size_t i = 0; i + 1 < commands.size(); ++i) {
    const auto& run = std::get<RunAction>(commands[i]);
    EXPECT_EQ(run.begins_step, i == 0);
    EXPECT_EQ(run.ends_step, i + 2 == commands.size());
  }
}

TEST(StepProgram, GivesTheDeviceOneActionAheadIfItsInputIsThere) {
  WatchedProgram program(middle_stage());
  program.on_start();
  EXPECT_EQ(program.on_input({InputKind::kActivation, 0, 1, 0}).size(), 1u);
  EXPECT_EQ(program.on_input({InputKind::kActivation, 0, 1, 1}).size(), 1u) << "one ahead";
  EXPECT_THAT(program.on_input({InputKind::kGradient, 0, 1, 0}), IsEmpty()) << "never two";
  EXPECT_EQ(program.on_work_done().size(), 1u);
}

TEST(StepProgram, AMiddleStageWaitsForBothNeighbours) {
  WatchedProgram program(middle_stage());
  EXPECT_THAT(program.on_start(), IsEmpty());
  EXPECT_EQ(program.on_input({InputKind::kActivation, 0, 1, 0}).size(), 1u);
  EXPECT_THAT(program.on_work_done(), IsEmpty());
  EXPECT_EQ(program.on_input({InputKind::kActivation, 0, 1, 1}).size(), 1u);
  EXPECT_THAT(program.on_work_done(), IsEmpty()) << "B0 needs its gradient";
  EXPECT_EQ(program.on_input({InputKind::kGradient, 0, 1, 0}).size(), 1u);
}

TEST(StepProgram, FinishesAStepForAnyOrderOfInputs) {
  std::mt19937 shuffle(7);
  for (int trial = 0; trial < 200; ++trial) {
    WatchedProgram program(middle_stage());
    std::vector<InputKey> keys;
    for (int32_t m = 0; m < kMicrobatches; ++m) {
      keys.push_back({InputKind::kActivation, 0, 1, m});
      keys.push_back({InputKind::kGradient, 0, 1, m});
    }
    std::shuffle(keys.begin(), keys.end(), shuffle);
    ProgramCommands all = run_to_quiet(program, program.on_start());
    for (const InputKey& key : keys) {
      for (int repeat = 0; repeat < 2; ++repeat) {
        const ProgramCommands more = run_to_quiet(program, program.on_input(key));
        all.insert(all.end(), more.begin(), more.end());
      }
    }
    EXPECT_EQ(count<RunAction>(all), 2u * kMicrobatches);
    EXPECT_EQ(count<SendReady>(all), 1u);
  }
}

TEST(StepProgram, ReducesEachGroupOnceAndThenReportsTheNorm) {
  ProgramOptions options = only_stage();
  options.stages[0].groups = {{GroupId{0}}, {GroupId{3}}};
  WatchedProgram program(options);
  const ProgramCommands commands = run_to_quiet(program, program.on_start());
  EXPECT_EQ(count<RunReduction>(commands), 2u) << "nobody has to say so";
  EXPECT_THAT(program.on_group_reduced(GroupId{9}, 0, 0), IsEmpty()) << "not a member";
  EXPECT_THAT(program.on_group_reduced(GroupId{0}, 1, 0), IsEmpty()) << "another step";
  EXPECT_THAT(program.on_group_reduced(GroupId{0}, 0, 0), IsEmpty());
  EXPECT_THAT(program.on_group_reduced(GroupId{0}, 0, 0), IsEmpty()) << "a repeat";
  EXPECT_EQ(program.dropped(), 3u);
  EXPECT_THAT(run_to_quiet(program, program.on_group_reduced(GroupId{3}, 0, 0)),
              ElementsAre(ProgramCommand(RunNorm{0, 0}), ProgramCommand(SendReduced{0, 0})));
  EXPECT_EQ(program.dropped(), 3u);
}

TEST(StepProgram, AppliesACommitOnceAndOnlyOfItsStep) {
  WatchedProgram program(only_stage());
  run_to_quiet(program, program.on_start());
  EXPECT_THAT(program.on_commit({.step = 1}), IsEmpty());
  const ProgramCommands commands = program.on_commit({.step = 0, .gradient_norm = 2});
  EXPECT_EQ(count<RunUpdate>(commands), 1u);
  EXPECT_THAT(program.on_commit({.step = 0}), IsEmpty());
  run_to_quiet(program, program.on_work_done());
  EXPECT_EQ(program->steps_done(), 1u);
}

TEST(StepProgram, SaysWhyItDropsAnEvent) {
  ProgramOptions options = middle_stage();
  options.first_step = 7;
  WatchedProgram program(options);
  EXPECT_THAT(program.on_commit({.step = 7}), IsEmpty());
  EXPECT_EQ(program.dropped(DropReason::kEarly), 1u);
  program.on_start();
  program.on_start();
  EXPECT_EQ(program.dropped(DropReason::kRepeated), 1u);
  program.on_commit({.step = 6});
  EXPECT_EQ(program.dropped(DropReason::kStale), 1u);
  program.on_group_reduced(GroupId{0}, 7, 0);
  EXPECT_EQ(program.dropped(DropReason::kUnknown), 1u);
  for (int repeat = 0; repeat < 2; ++repeat) program.on_input({InputKind::kGradient, 8, 1, 0});
  EXPECT_EQ(program.dropped(DropReason::kRepeated), 2u);
  EXPECT_EQ(program.dropped(), 5u);
}

TEST(StepProgram, AnInputThatNoActionTakesIsNotKept) {
  WatchedProgram program(middle_stage());
  program.on_start();
  for (const InputKey& key :
       {InputKey{InputKind::kActivation, 0, 1, kMicrobatches},
        InputKey{InputKind::kActivation, 0, 1, -1}, InputKey{InputKind::kActivation, 5, 0, 0},
        InputKey{InputKind::kGradient, 0, 2, 0},
        InputKey{InputKind::kValidation, 0, 1, kMicrobatches}}) {
    program.on_input(key);
  }
  EXPECT_EQ(program.dropped(DropReason::kOutOfBounds), 5u);
  WatchedProgram first(only_stage());
  first.on_start();
  first.on_input({InputKind::kActivation, 0, 0, 0});
  EXPECT_EQ(first.dropped(DropReason::kOutOfBounds), 1u) << "the first stage reads the data";
}

TEST(StepProgram, DropsEventsOfOtherModes) {
  WatchedProgram program(only_stage());
  program.on_start();
  EXPECT_THAT(program.on_claim({0, {0, 1}}), IsEmpty());
  EXPECT_THAT(program.on_update({0, 1}), IsEmpty());
  EXPECT_THAT(program.on_average({0, 1}), IsEmpty());
  EXPECT_THAT(program.on_averaged(0, 1, true), IsEmpty());
  EXPECT_EQ(program.dropped(DropReason::kUnexpected), 4u);
}

TEST(StepProgram, EachReplicaReadsItsOwnRowsOfAStepsSamples) {
  ProgramOptions options = only_stage();
  options.first_step = 5;
  options.samples_per_step = 12;
  options.microbatch_rows = 4;
  WatchedProgram program(options);
  program.on_start();
  EXPECT_EQ(program->first_sample(5, 0, {0, 3}), 60u);
  EXPECT_EQ(program->first_sample(5, 2, {3, 1}), 60u + 2 * 4 + 3);
  EXPECT_EQ(program->sample_count(5), 12u);
}

TEST(StepProgram, ACommitBeforeReadyHasNoEffect) {
  WatchedProgram program(middle_stage());
  program.on_start();
  EXPECT_THAT(program.on_commit({.step = 0}), IsEmpty());
  EXPECT_EQ(program->steps_done(), 0u);
}

TEST(StepProgram, TheLeaderSavesBetweenTheUpdateAndTheNextStep) {
  WatchedProgram program(only_stage());
  run_to_quiet(program, program.on_start());
  program.on_commit({.step = 0, .checkpoint = true});
  const ProgramCommands commands = program.on_work_done();
  ASSERT_EQ(commands.size(), 3u);
  EXPECT_EQ(commands[0], ProgramCommand(SaveState{1, 0}));
  EXPECT_TRUE(std::holds_alternative<RunAction>(commands[1]));
}

TEST(StepProgram, ValidatesAfterTheUpdateAndSaysSo) {
  ProgramOptions options = only_stage();
  options.validation_batches = 2;
  WatchedProgram program(options);
  run_to_quiet(program, program.on_start());
  const ProgramCommands commands =
      run_to_quiet(program, program.on_commit({.step = 0, .validate = true, .last = true}));
  EXPECT_THAT(commands, ElementsAre(ProgramCommand(RunUpdate{0, 0, 0, false}),
                                    ProgramCommand(RunValidation{0, 0, 0, true}),
                                    ProgramCommand(RunValidation{0, 0, 1, false}),
                                    ProgramCommand(SendValidated{0, 0})));
  EXPECT_TRUE(program->is_finished());
}

TEST(StepProgram, AStepIsDoneWhileItsValidationStillRuns) {
  ProgramOptions options = only_stage();
  options.validation_batches = 2;
  WatchedProgram program(options);
  run_to_quiet(program, program.on_start());
  program.on_commit({.step = 0, .validate = true});
  EXPECT_EQ(program->steps_done(), 0u) << "the update runs";
  program.on_work_done();
  EXPECT_EQ(program->steps_done(), 1u) << "whoever is quiesced now has applied it";
  program.on_work_done();
  program.on_work_done();
  EXPECT_EQ(program->steps_done(), 1u);
  EXPECT_EQ(program->steps_done(), 1u);
}

TEST(StepProgram, TakesAnInputOfTheValidationThatIsLeftBeforeTheStart) {
  ProgramOptions options;
  options.first_step = 5;
  options.actions = make_schedule(ScheduleKind::k1F1B, straight_shape(3, 1))->at(2);
  options.stages = {{.stage = 2, .is_last = true}};
  options.validation_batches = 1;
  WatchedProgram program(options);
  EXPECT_THAT(program.on_input({InputKind::kActivation, 4, 2, 0}), IsEmpty());
  EXPECT_EQ(program.dropped(), 1u) << "that step is done";
  EXPECT_THAT(program.on_input({InputKind::kValidation, 4, 2, 0}), IsEmpty());
  EXPECT_EQ(program.dropped(), 1u);
  EXPECT_THAT(program.on_start({.step = 4, .validate = true}),
              ElementsAre(ProgramCommand(RunValidation{4, 2, 0, true})));
}

TEST(StepProgram, ARepeatOfAnInputThatWasUsedIsNotKept) {
  ProgramOptions options;
  options.actions = make_schedule(ScheduleKind::k1F1B, straight_shape(3, 1))->at(2);
  options.stages = {{.stage = 2, .is_last = true}};
  options.validation_batches = 1;
  WatchedProgram program(options);
  program.on_start();
  const ProgramCommands begun = program.on_input({InputKind::kActivation, 0, 2, 0});
  program.on_input({InputKind::kActivation, 0, 2, 0});
  EXPECT_EQ(program.dropped(DropReason::kRepeated), 1u);
  run_to_quiet(program, begun);
  run_to_quiet(program, program.on_commit({.step = 0, .validate = true}));
  run_to_quiet(program, program.on_input({InputKind::kValidation, 0, 2, 0}));
  EXPECT_EQ(program->steps_done(), 1u);
  program.on_input({InputKind::kValidation, 0, 2, 0});
  EXPECT_EQ(program.dropped(DropReason::kStale), 1u);
}

TEST(StepProgram, TakesTheNextStepsInputsEarlyAndDropsOldOnes) {
  ProgramOptions options;
  options.actions = make_schedule(ScheduleKind::k1F1B, straight_shape(3, 1))->at(2);
  options.stages = {{.stage = 2, .is_last = true}};
  WatchedProgram program(options);
  program.on_start();
  run_to_quiet(program, program.on_input({InputKind::kActivation, 0, 2, 0}));
  EXPECT_THAT(program.on_input({InputKind::kActivation, 1, 2, 0}), IsEmpty()) << "one step ahead";
  const ProgramCommands commands = run_to_quiet(program, program.on_commit({.step = 0}));
  EXPECT_EQ(count<RunAction>(commands), 2u) << "step 1 runs from the input that came early";
  EXPECT_THAT(program.on_input({InputKind::kActivation, 0, 2, 0}), IsEmpty());
  EXPECT_EQ(program.dropped(), 1u);
}

ProgramOptions bucketed_stage(int32_t buckets) {
  ProgramOptions options = only_stage();
  options.stages[0].groups = {{GroupId{0}, buckets}, {GroupId{3}}};
  return options;
}

/// Every order in which work and collectives may end, up to `depth` choices from the start: at each
/// point the device's oldest piece or a running collective ends.
struct EveryOrder {
  int32_t buckets = 0;
  int orders = 0;

  /// What has happened on the way to here.
  struct Path {
    WatchedProgram program;
    std::vector<ProgramCommand> device;
    std::map<GroupId, RunReduction> collectives;
    std::map<GroupId, int32_t> next_bucket;
    int32_t parts_ended = 0;
    bool ready = false;
    bool reduced = false;
  };

  void take(Path& path, const ProgramCommands& commands) {
    for (const ProgramCommand& command : commands) {
      if (const auto* reduction = std::get_if<RunReduction>(&command)) {
        EXPECT_TRUE(path.collectives.emplace(reduction->group, *reduction).second)
            << "two collectives of one group at once";
        EXPECT_EQ(reduction->bucket, path.next_bucket[reduction->group]++);
        const bool is_complete =
            path.parts_ended >= (reduction->group == GroupId{0} ? reduction->bucket + 1 : buckets);
        EXPECT_TRUE(is_complete) << "bucket " << reduction->bucket << " after " << path.parts_ended
                                 << " parts";
      } else if (std::holds_alternative<SendReady>(command)) {
        path.ready = true;
        EXPECT_EQ(path.parts_ended, buckets);
      } else if (std::holds_alternative<SendReduced>(command)) {
        EXPECT_TRUE(path.ready && path.collectives.empty());
        EXPECT_EQ(path.next_bucket[GroupId{0}], buckets);
        path.reduced = true;
      } else {
        path.device.push_back(command);
      }
    }
  }

  void explore(const Path& path) {
    if (path.device.empty() && path.collectives.empty()) {
      ++orders;
      EXPECT_TRUE(path.reduced);
      EXPECT_TRUE(path.program->awaited_commit().has_value());
      EXPECT_EQ(path.program.dropped(), 0u);
      return;
    }
    EXPECT_FALSE(path.program->awaited_commit().has_value());
    if (!path.device.empty()) {
      Path next = path;
      const auto* run = std::get_if<RunAction>(&next.device.front());
      if (run != nullptr && run->ends_step) ++next.parts_ended;
      next.device.erase(next.device.begin());
      take(next, next.program.on_work_done());
      explore(next);
    }
    for (const auto& [group, reduction] : path.collectives) {
      Path next = path;
      next.collectives.erase(group);
      take(next, next.program.on_group_reduced(group, 0, reduction.bucket));
      explore(next);
    }
  }
};

TEST(StepProgram, ReducesBucketsInOrderOneAtATimeAndNoneBeforeItIsComplete) {
  for (int32_t buckets = 1; buckets <= 4; ++buckets) {
    EveryOrder all{buckets};
    EveryOrder::Path path{WatchedProgram(bucketed_stage(buckets)), {}, {}, {}};
    all.take(path, path.program.on_start());
    all.explore(path);
    EXPECT_GE(all.orders, buckets) << "nothing was interleaved";
  }
}

TEST(StepProgram, OnlyTheLastBackwardIsCutAndItsPartsAreGivenTogether) {
  WatchedProgram program(bucketed_stage(4));
  std::vector<RunAction> runs;
  ProgramCommands commands = program.on_start();
  for (size_t ended = 0; ended < runs.size() || !commands.empty(); ++ended) {
    size_t parts = 0;
    for (const ProgramCommand& command : commands) {
      const auto* run = std::get_if<RunAction>(&command);
      if (run == nullptr) continue;
      runs.push_back(*run);
      if (!run->is_whole()) ++parts;
    }
    EXPECT_TRUE(parts == 0 || parts == 4) << parts;
    if (ended == runs.size()) break;
    commands = program.on_work_done();
  }
  ASSERT_EQ(runs.size(), 2u * kMicrobatches + 3);
  for (size_t i = 0; i < runs.size(); ++i) {
    const bool is_last = i + 4 >= runs.size();
    EXPECT_EQ(runs[i].part_count, is_last ? 4 : 1);
    EXPECT_EQ(runs[i].part, is_last ? static_cast<int32_t>(i + 4 - runs.size()) : 0);
    EXPECT_EQ(runs[i].ends_step, is_last);
  }
}

TEST(StepProgram, ALateOrForeignBucketChangesNothing) {
  WatchedProgram program(bucketed_stage(2));
  EXPECT_THAT(program.on_group_reduced(GroupId{0}, 0, 0), IsEmpty()) << "before it was started";
  ProgramCommands commands = program.on_start();
  for (int work = 0; work < 2 * kMicrobatches; ++work) commands = program.on_work_done();
  EXPECT_THAT(commands, ElementsAre(ProgramCommand(RunReduction{GroupId{0}, 0, 0})));
  EXPECT_THAT(program.on_group_reduced(GroupId{0}, 0, 1), IsEmpty()) << "not the running one";
  EXPECT_THAT(program.on_group_reduced(GroupId{3}, 0, 0), IsEmpty()) << "of a group that waits";
  EXPECT_THAT(program.on_group_reduced(GroupId{0}, 1, 0), IsEmpty()) << "of another step";
  EXPECT_THAT(program.on_group_reduced(GroupId{0}, 0, 0), IsEmpty()) << "the next is not complete";
  EXPECT_THAT(program.on_group_reduced(GroupId{0}, 0, 0), IsEmpty()) << "a repeat";
  EXPECT_EQ(program.dropped(), 5u);
  EXPECT_THAT(program.on_work_done(), ElementsAre(ProgramCommand(SendReady{0, 0}),
                                                  ProgramCommand(RunReduction{GroupId{0}, 0, 1}),
                                                  ProgramCommand(RunReduction{GroupId{3}, 0, 0})));
  EXPECT_THAT(program.on_commit({.step = 0}), IsEmpty()) << "not all is reduced";
}

TEST(StepProgram, TheLastWeightBackwardIsCutWhereBackwardsAreSplit) {
  ProgramOptions options;
  options.actions = {{0, ActionType::kForward, 0},
                     {0, ActionType::kForward, 1},
                     {0, ActionType::kBackwardInput, 1},
                     {0, ActionType::kBackward, 0},
                     {0, ActionType::kBackwardWeight, 1}};
  options.stages = {{.stage = 0, .is_first = true, .is_last = true, .groups = {{GroupId{0}, 3}}}};
  WatchedProgram program(options);
  const ProgramCommands commands = run_to_quiet(program, program.on_start());
  for (const ProgramCommand& command : commands) {
    const auto* run = std::get_if<RunAction>(&command);
    if (run == nullptr) continue;
    const bool is_last = run->action.type == ActionType::kBackwardWeight;
    EXPECT_EQ(run->part_count, is_last ? 3 : 1);
  }
  EXPECT_EQ(count<RunAction>(commands), 7u);
  EXPECT_EQ(count<RunReduction>(commands), 1u) << "nobody has ended it";
}

/// Stages 0 and 2 of four on this rank, one micro-batch.
ProgramOptions two_stages() {
  ProgramOptions options;
  options.actions = {{0, ActionType::kForward, 0},
                     {2, ActionType::kForward, 0},
                     {2, ActionType::kBackward, 0},
                     {0, ActionType::kBackwardInput, 0},
                     {0, ActionType::kBackwardWeight, 0}};
  options.stages = {{.stage = 0, .is_first = true, .leads = true, .groups = {{GroupId{0}}}},
                    {.stage = 2, .leads = true, .groups = {{GroupId{2}}}}};
  options.validation_batches = 1;
  return options;
}

TEST(StepProgram, AStageSignalsReadyWhileAnotherOneStillComputes) {
  WatchedProgram program(two_stages());
  run_to_quiet(program, program.on_start());
  EXPECT_THAT(program.on_input({InputKind::kActivation, 0, 0, 0}), IsEmpty());
  run_to_quiet(program, program.on_input({InputKind::kActivation, 0, 2, 0}));
  EXPECT_THAT(
      run_to_quiet(program, program.on_input({InputKind::kGradient, 0, 2, 0})),
      ElementsAre(ProgramCommand(RunAction{0, {2, ActionType::kBackward, 0}, false, true}),
                  ProgramCommand(SendReady{0, 2}), ProgramCommand(RunReduction{GroupId{2}, 0, 0})));
  EXPECT_THAT(program.on_group_reduced(GroupId{0}, 0, 0), IsEmpty()) << "stage 0 is not ready";
  EXPECT_EQ(program.on_group_reduced(GroupId{2}, 0, 0).size(), 1u) << "the norm of stage 2";
  EXPECT_THAT(program.on_work_done(), ElementsAre(ProgramCommand(SendReduced{0, 2})));
  EXPECT_THAT(program.on_commit({.step = 0}), IsEmpty());
  const ProgramCommands commands =
      run_to_quiet(program, program.on_input({InputKind::kGradient, 0, 0, 0}));
  ASSERT_GE(commands.size(), 2u);
  EXPECT_EQ(commands[commands.size() - 2], ProgramCommand(SendReady{0, 0}));
  EXPECT_EQ(commands.back(), ProgramCommand(RunReduction{GroupId{0}, 0, 0}));
}

TEST(StepProgram, ValidatesAndSavesEveryStage) {
  WatchedProgram program(two_stages());
  run_to_quiet(program, program.on_start());
  run_to_quiet(program, program.on_input({InputKind::kActivation, 0, 2, 0}));
  run_to_quiet(program, program.on_input({InputKind::kGradient, 0, 2, 0}));
  run_to_quiet(program, program.on_input({InputKind::kGradient, 0, 0, 0}));
  for (GroupId group : {GroupId{0}, GroupId{2}}) {
    run_to_quiet(program, program.on_group_reduced(group, 0, 0));
  }
  ProgramCommands commands = run_to_quiet(
      program, program.on_commit({.step = 0, .validate = true, .checkpoint = true, .last = true}));
  EXPECT_EQ(count<SaveState>(commands), 2u);
  EXPECT_EQ(count<RunValidation>(commands), 1u) << "stage 2 waits for its input";
  commands = run_to_quiet(program, program.on_input({InputKind::kValidation, 0, 2, 0}));
  EXPECT_EQ(count<RunValidation>(commands), 1u);
  EXPECT_TRUE(program->is_finished());
}

TEST(StepProgram, AnInputThatIsTooFarAheadIsNotKept) {
  WatchedProgram program(middle_stage());
  program.on_start();
  program.on_input({InputKind::kGradient, 2, 1, 0});
  EXPECT_EQ(program.dropped(DropReason::kEarly), 1u);
  program.on_input({InputKind::kGradient, 1, 1, 0});
  EXPECT_EQ(program.dropped(), 1u) << "a neighbour may be a step ahead";
}

}  // namespace
}  // namespace skein::plans
