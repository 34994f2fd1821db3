#include "plans/worker/async_program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "plans/schedule/continuous_1f1b.hpp"
#include "tests/plans/worker/watched_program.hpp"

namespace skein::plans {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// A stage of a pipeline whose neighbours are always ready: all inputs are there. Its work ends
/// when the test says so; `done` is what its device has done, as "F0.1" (claim, micro-batch) and
/// "U0".
struct Stage {
  Stage(int32_t stage, int32_t stages, int32_t microbatches, int32_t claims)
      : microbatches_(microbatches), program(options_of(stage, stages, microbatches, claims)) {
    take(program.on_start());
  }

  static ProgramOptions options_of(int32_t stage, int32_t stages, int32_t microbatches,
                                   int32_t claims) {
    ProgramOptions options;
    for (int32_t m = 0; m < microbatches; ++m) {
      options.actions.push_back({stage, ActionType::kForward, m});
      options.actions.push_back({stage, ActionType::kBackward, m});
    }
    options.stages = {
        {.stage = stage, .is_first = stage == 0, .is_last = stage + 1 == stages, .leads = true}};
    options.samples_per_step = 8;
    options.stage_count = stages;
    options.passes_in_flight = claims;
    return options;
  }

  void take(const ProgramCommands& commands) {
    for (const ProgramCommand& command : commands) {
      if (const auto* ready = std::get_if<SendReady>(&command)) readies.push_back(*ready);
      if (const auto* average = std::get_if<RunAverage>(&command)) averages.push_back(*average);
      const bool is_work =
          std::holds_alternative<RunAction>(command) || std::holds_alternative<RunUpdate>(command);
      if (is_work) device.push_back(command);
    }
  }
  void claim(uint64_t step) { take(program.on_claim({step, {8 * step, 8}})); }
  void input(InputKind kind, uint64_t step, int32_t microbatch) {
    take(program.on_input({kind, step, 1, microbatch}));
  }
  /// All inputs of a step, of a stage in the middle.
  void inputs(uint64_t step) {
    for (int32_t m = 0; m < microbatches_; ++m) {
      input(InputKind::kActivation, step, m);
      input(InputKind::kGradient, step, m);
    }
  }
  void end_one() {
    const ProgramCommand work = device.front();
    device.erase(device.begin());
    if (const auto* run = std::get_if<RunAction>(&work)) {
      done.push_back(absl::StrCat(run->action.type == ActionType::kForward ? "F" : "B", run->step,
                                  ".", run->action.microbatch));
      begun += run->begins_step ? 1 : 0;
    } else {
      done.push_back(absl::StrCat("U", std::get<RunUpdate>(work).step));
    }
    take(program.on_work_done());
  }
  void end_work() {
    while (!device.empty()) end_one();
  }
  /// The coordinator's word on the update: there is no group for it.
  void alone() { take(program.on_average({program_stage(), ++number, true})); }
  int32_t program_stage() const { return readies.back().stage; }

  int32_t microbatches_;
  Watched<AsyncProgram> program;
  std::vector<ProgramCommand> device;
  std::vector<std::string> done;
  std::vector<SendReady> readies;
  std::vector<RunAverage> averages;
  uint64_t number = 0;
  int begun = 0;
};

TEST(AsyncProgram, GoesFromOneClaimToTheNextWithoutAFlush) {
  Stage stage(1, 3, 2, 2);
  stage.inputs(0);
  stage.inputs(1);
  stage.claim(0);
  stage.claim(1);
  stage.end_work();
  EXPECT_THAT(stage.done, ElementsAre("F0.0", "F0.1", "B0.0", "F1.0", "B0.1", "U0"));
  ASSERT_EQ(stage.readies.size(), 1u) << "it is ready before the update";
  EXPECT_EQ(stage.readies[0].weight_delay, 0u);
  stage.done.clear();
  stage.alone();
  stage.end_work();
  EXPECT_THAT(stage.done, ElementsAre("F1.1", "B1.0", "B1.1", "U1")) << "there is no third claim";
  EXPECT_EQ(stage.readies[1].weight_delay, 1u) << "F1.0 has not seen the update";
}

TEST(AsyncProgram, ForwardsWaitForTheUpdateAndForTheGroup) {
  Stage stage(1, 3, 1, 3);
  for (uint64_t step = 0; step < 3; ++step) stage.claim(step);
  for (uint64_t step = 0; step < 3; ++step) stage.inputs(step);
  while (stage.readies.empty()) stage.end_one();
  EXPECT_THAT(stage.done, ElementsAre("F0.0", "F1.0", "B0.0"));
  EXPECT_EQ(stage.device.size(), 1u) << "the update only";
  stage.take(stage.program.on_average({1, 7}));  // A group of several.
  EXPECT_THAT(stage.averages, IsEmpty()) << "not before the update";
  stage.end_one();
  ASSERT_EQ(stage.averages.size(), 1u);
  EXPECT_THAT(stage.device, IsEmpty());
  stage.take(stage.program.on_averaged(1, 7, true));
  EXPECT_EQ(stage.device.size(), 2u);
  stage.end_work();
  EXPECT_THAT(stage.done, ElementsAre("F0.0", "F1.0", "B0.0", "U0", "F2.0", "B1.0", "U1"));
}

TEST(AsyncProgram, SignalsWithItsFirstFinalGradientAndMayHearOfItsGroupBeforeTheUpdate) {
  ProgramOptions options = Stage::options_of(1, 3, 1, 2);
  options.stages[0].bucket_count = 3;
  Watched<AsyncProgram> program(options);
  program.on_start();
  program.on_claim({0, {0, 8}});
  ASSERT_EQ(program.on_input({InputKind::kActivation, 0, 1, 0}).size(), 1u);
  const ProgramCommands parts = program.on_input({InputKind::kGradient, 0, 1, 0});
  ASSERT_EQ(parts.size(), 3u);
  for (int32_t part = 0; part < 3; ++part) {
    const auto& run = std::get<RunAction>(parts[static_cast<size_t>(part)]);
    EXPECT_EQ(run.part, part);
    EXPECT_EQ(run.begins_step, part == 0) << "it is zeroed once";
  }
  EXPECT_THAT(program.on_work_done(), IsEmpty());  // The forward.
  EXPECT_EQ(program.on_average({1, 4}), ProgramCommands()) << "too early";
  EXPECT_EQ(program.dropped(DropReason::kUnexpected), 1u);
  EXPECT_THAT(program.on_work_done(), ElementsAre(ProgramCommand(SendEarlySignal{0, 1})));
  EXPECT_THAT(program.on_average({1, 4}), IsEmpty());
  EXPECT_EQ(program.dropped(), 1u);
  EXPECT_THAT(program.on_work_done(), IsEmpty());
  const ProgramCommands ready = program.on_work_done();
  ASSERT_EQ(ready.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<SendReady>(ready[0]));
  EXPECT_TRUE(std::holds_alternative<RunUpdate>(ready[1]));
  EXPECT_THAT(program.on_work_done(), ElementsAre(ProgramCommand(RunAverage{1, 4, false})));
}

TEST(AsyncProgram, DoesBackwardsWhileTheNextClaimIsLate) {
  Stage stage(0, 3, 2, 2);
  for (int32_t m = 0; m < 2; ++m) {
    stage.take(stage.program.on_input({InputKind::kGradient, 0, 0, m}));
  }
  stage.claim(0);
  stage.end_work();
  EXPECT_THAT(stage.done, ElementsAre("F0.0", "F0.1", "B0.0", "B0.1", "U0"));
  stage.claim(1);
  EXPECT_THAT(stage.device, IsEmpty()) << "before the group";
  stage.alone();
  stage.end_work();
  EXPECT_EQ(stage.done.back(), "F1.1");
}

TEST(AsyncProgram, GradientsAreZeroedOnceForEachClaimAndNotWhileTheyAreAddedTo) {
  for (int32_t position : {0, 1, 2}) {
    Stage stage(position, 3, 2, 3);
    uint64_t step = 0;
    for (; step < 3; ++step) stage.claim(step);
    std::vector<std::string> begins;
    for (int event = 0; event < 100; ++event) {
      for (uint64_t ahead = 0; ahead < 4; ++ahead) {
        for (int32_t m = 0; m < 2; ++m) {
          for (InputKind kind : {InputKind::kActivation, InputKind::kGradient}) {
            stage.take(stage.program.on_input({kind, stage.program->step() + ahead, position, m}));
          }
        }
      }
      if (stage.device.empty()) {
        stage.alone();
        stage.claim(step++);
        continue;
      }
      if (const auto* run = std::get_if<RunAction>(&stage.device.front())) {
        const bool is_forward = run->action.type == ActionType::kForward;
        if (run->begins_step) {
          const bool is_first = run->action.microbatch == 0;
          EXPECT_TRUE(is_first) << to_text(run->action);
          EXPECT_TRUE(position == 2 || !is_forward || run->step == 0) << "others are in flight";
          if (!is_forward || position == 2) begins.push_back(absl::StrCat(run->step));
        }
      }
      stage.end_one();
    }
    std::vector<std::string> steps;
    for (size_t i = 0; i < begins.size(); ++i) steps.push_back(absl::StrCat(i));
    EXPECT_EQ(begins, steps) << "stage " << position;
    EXPECT_GT(begins.size(), 10u);
  }
}

TEST(AsyncProgram, WhatIsNotAwaitedIsDroppedWithItsReason) {
  Stage stage(1, 3, 1, 2);
  EXPECT_EQ(stage.program.dropped(), 0u);
  stage.claim(1);
  EXPECT_EQ(stage.program.dropped(DropReason::kEarly), 1u);
  stage.claim(0);
  stage.claim(0);
  EXPECT_EQ(stage.program.dropped(DropReason::kRepeated), 1u);
  stage.claim(1);
  stage.claim(2);
  EXPECT_EQ(stage.program.dropped(DropReason::kEarly), 2u) << "two are in flight";
  stage.input(InputKind::kActivation, 3, 0);
  EXPECT_EQ(stage.program.dropped(DropReason::kEarly), 3u);
  stage.input(InputKind::kActivation, 0, 1);
  EXPECT_EQ(stage.program.dropped(DropReason::kOutOfBounds), 1u);
  stage.take(stage.program.on_average({1, 3, true}));
  stage.take(stage.program.on_average({1, 3, false, true, true, 9}));
  EXPECT_EQ(stage.program.dropped(DropReason::kUnexpected), 2u) << "it has samples";
  stage.take(stage.program.on_update({0, 1}));
  EXPECT_EQ(stage.program.dropped(DropReason::kUnexpected), 3u) << "nobody orders its updates";
}

TEST(AsyncProgram, TakesTheGlobalAverageWhenItHasDoneWhatItHeld) {
  Stage stage(1, 3, 1, 2);
  stage.inputs(0);
  stage.claim(0);
  stage.end_one();
  stage.end_one();
  stage.alone();
  stage.take(stage.program.on_average({1, ++stage.number, false, true, true, 9}));
  EXPECT_EQ(stage.program.dropped(), 0u);
  stage.claim(1);
  EXPECT_EQ(stage.program.dropped(DropReason::kUnexpected), 1u) << "all are to meet";
  stage.end_one();  // The update.
  ASSERT_EQ(stage.averages.size(), 1u);
  EXPECT_TRUE(stage.averages[0].is_global);
  EXPECT_FALSE(stage.program->has_global_state());
  stage.take(stage.program.on_averaged(1, stage.number, true));
  EXPECT_TRUE(stage.program->has_global_state());
  EXPECT_EQ(stage.program->steps_done(), 9u);
  CommitOrder commit;
  commit.step = 8;
  stage.take(stage.program.on_commit(commit));
  stage.inputs(1);
  stage.claim(1);
  stage.end_work();
  EXPECT_EQ(stage.done.back(), "U1");
}

/// A worker in the middle of a pipeline of four stages that has two of them, 1 and 2. What goes
/// from one to the other comes around as soon as it is there.
struct TwoStages {
  TwoStages() : program(options()) { take(program.on_start()); }

  static ProgramOptions options() {
    ProgramOptions options;
    options.actions = {{1, ActionType::kForward, 0},
                       {2, ActionType::kForward, 0},
                       {2, ActionType::kBackward, 0},
                       {1, ActionType::kBackward, 0}};
    options.stages = {{.stage = 1, .bucket_count = 2}, {.stage = 2}};
    options.samples_per_step = 8;
    options.stage_count = 4;
    options.passes_in_flight = 2;
    return options;
  }
  void take(const ProgramCommands& commands) {
    for (const ProgramCommand& command : commands) {
      if (const auto* ready = std::get_if<SendReady>(&command)) {
        done.push_back(absl::StrCat("ready ", ready->stage));
      } else if (const auto* early = std::get_if<SendEarlySignal>(&command)) {
        done.push_back(absl::StrCat("early ", early->stage));
      } else if (const auto* average = std::get_if<RunAverage>(&command)) {
        done.push_back(absl::StrCat("group ", average->number, " of ", average->stage));
      } else if (!std::holds_alternative<BeginRound>(command)) {
        device.push_back(command);
      }
    }
  }
  void claim(uint64_t step) {
    take(program.on_claim({step, {8 * step, 8}}));
    take(program.on_input({InputKind::kActivation, step, 1, 0}));
    take(program.on_input({InputKind::kGradient, step, 2, 0}));
  }
  void end_one() {
    const ProgramCommand work = device.front();
    device.erase(device.begin());
    const auto* run = std::get_if<RunAction>(&work);
    if (!run) {
      done.push_back(absl::StrCat("update ", std::get<RunUpdate>(work).step));
      return take(program.on_work_done());
    }
    done.push_back(absl::StrCat(run->step, "/", to_text(run->action)));
    take(program.on_work_done());
    const bool is_forward = run->action.type == ActionType::kForward;
    if (!run->is_last_part() || run->action.stage == (is_forward ? 2 : 1)) return;
    const InputKind kind = is_forward ? InputKind::kActivation : InputKind::kGradient;
    take(program.on_input({kind, run->step, is_forward ? 2 : 1, 0}));
  }
  void end_work() {
    while (!device.empty()) end_one();
  }

  Watched<AsyncProgram> program;
  std::vector<ProgramCommand> device;
  std::vector<std::string> done;
};

TEST(AsyncProgram, StagesSideBySideActAsOneAndAskForGroupsByThemselves) {
  TwoStages worker;
  worker.claim(0);
  worker.claim(1);
  worker.end_work();
  EXPECT_THAT(worker.done, ElementsAre("0/1F0", "0/2F0", "1/1F0", "1/2F0", "0/2B0", "ready 2",
                                       "0/1B0", "early 1", "0/1B0", "ready 1", "update 0"))
      << "two are ahead: so many are behind the second one";
  worker.done.clear();
  worker.take(worker.program.on_average({2, 5}));
  EXPECT_THAT(worker.done, ElementsAre("group 5 of 2"));
  worker.take(worker.program.on_averaged(2, 5, true));
  EXPECT_THAT(worker.device, IsEmpty()) << "the other stage has no word";
  worker.take(worker.program.on_average({2, 6}));
  EXPECT_EQ(worker.program.dropped(DropReason::kUnexpected), 1u) << "it has had its group";
  worker.take(worker.program.on_average({1, 7, true}));
  worker.end_work();
  EXPECT_EQ(worker.done.back(), "update 1");
  EXPECT_EQ(worker.program.dropped(), 1u);
}

TEST(AsyncProgram, AStageMayHearOfItsGroupWhileTheOneBeforeItComputes) {
  TwoStages worker;
  worker.claim(0);
  for (int i = 0; i < 3; ++i) worker.end_one();
  EXPECT_EQ(worker.done.back(), "ready 2");
  worker.take(worker.program.on_average({1, 3}));
  EXPECT_EQ(worker.program.dropped(DropReason::kUnexpected), 1u) << "that one has not asked";
  worker.take(worker.program.on_average({2, 4}));
  worker.end_work();
  EXPECT_EQ(worker.done.back(), "group 4 of 2") << "behind the update";
  worker.take(worker.program.on_input({InputKind::kActivation, 0, 2, 0}));
  EXPECT_EQ(worker.program.dropped(DropReason::kStale), 1u) << "it is used";
}

TEST(AsyncProgram, AllStagesTakeTheGlobalAverage) {
  TwoStages worker;
  for (int32_t stage : {2, 1}) {
    const uint64_t number = 10 + static_cast<uint64_t>(stage);
    worker.take(worker.program.on_average({stage, number, false, true, true, 9}));
    EXPECT_FALSE(worker.program->has_global_state());
    worker.take(worker.program.on_averaged(stage, number, true));
  }
  EXPECT_TRUE(worker.program->has_global_state());
  EXPECT_EQ(worker.program->steps_done(), 9u);
  worker.claim(0);
  EXPECT_EQ(worker.program.dropped(DropReason::kUnexpected), 1u) << "the commit comes first";
}

/// Walks the order of actions of a stage whose claims are always there.
struct Walk {
  int32_t stashes = 0, old_versions = 0;
};
Walk walk(const Continuous1F1B& order, int32_t stage) {
  Walk most;
  const int32_t ahead = order.stash_peak(stage);
  std::vector<int32_t> versions;  // What is in flight has seen, oldest first.
  int32_t forwards = 0, backwards = 0;
  while (backwards < 20 * order.microbatch_count) {
    const bool is_claimed =
        forwards < (backwards / order.microbatch_count + order.passes) * order.microbatch_count;
    if (is_claimed && forwards - backwards < ahead) {
      versions.push_back(backwards / order.microbatch_count);
      ++forwards;
      most.stashes = std::max(most.stashes, forwards - backwards);
      continue;
    }
    versions.erase(versions.begin());
    ++backwards;
    std::vector<int32_t> old = versions;
    std::erase(old, backwards / order.microbatch_count);
    old.erase(std::unique(old.begin(), old.end()), old.end());
    most.old_versions = std::max(most.old_versions, static_cast<int32_t>(old.size()));
  }
  return most;
}

TEST(Continuous1F1B, CountsTheStashesAndVersionsOfItsOrder) {
  for (int32_t stages : {1, 2, 3, 4, 7}) {
    for (int32_t microbatches : {1, 2, 3, 8}) {
      for (int32_t iterations : {2, 3, 4, 8}) {
        const Continuous1F1B order{stages, microbatches, iterations};
        for (int32_t stage = 0; stage < stages; ++stage) {
          const Walk most = walk(order, stage);
          SCOPED_TRACE(testing::Message() << stages << " stages, " << microbatches << " x "
                                          << iterations << ", stage " << stage);
          EXPECT_EQ(order.stash_peak(stage), most.stashes);
          EXPECT_GE(order.old_versions(stage), most.old_versions);
          EXPECT_LE(order.old_versions(stage), most.old_versions + 1);
        }
      }
    }
  }
  EXPECT_EQ((Continuous1F1B{4, 1, 4}.old_versions(0)), 3) << "as in PipeDream";
  EXPECT_EQ((Continuous1F1B{4, 4, 2}.old_versions(0)), 1);
}

}  // namespace
}  // namespace skein::plans
