#include "plans/coordinator/left_state.hpp"

#include <gtest/gtest.h>

namespace skein::plans {
namespace {

constexpr uint64_t kStepsWanted = 100;

/// Ten steps: five of generation 2, then five of generation 4. Plan 6 was made after them.
JournaledSteps ten_steps() {
  JournaledSteps past;
  for (uint64_t step = 0; step < 10; ++step) {
    CommitRecord record;
    record.step = step;
    record.generation = step < 5 ? 2 : 4;
    record.loss = 10 - static_cast<double>(step);
    past.records.push_back(record);
  }
  past.generations = {{0, 2}, {5, 4}};
  past.newest_plan = 6;
  return past;
}

std::optional<double> resumed_loss(const LeftState& left) {
  return loss_of_resumed(ten_steps(), kStepsWanted, left);
}

TEST(LossOfResumed, StateThatTheRunCameThroughHasTheLossOfItsLastStep) {
  EXPECT_EQ(resumed_loss({3, 2}), 8);
  EXPECT_EQ(resumed_loss({5, 2}), 6);
  EXPECT_EQ(resumed_loss({6, 4}), 5);
  EXPECT_EQ(resumed_loss({10, 4}), 1);
}

TEST(LossOfResumed, StateThatWasTakenBackIsNotOfTheRun) {
  EXPECT_EQ(resumed_loss({6, 2}), std::nullopt);
  EXPECT_EQ(resumed_loss({10, 3}), std::nullopt);
  EXPECT_EQ(resumed_loss({10, 6}), std::nullopt);
}

TEST(LossOfResumed, TheJournalMayHaveLostStepsOfItsLastPlanButOfNoneBefore) {
  EXPECT_EQ(resumed_loss({11, 4}), std::nullopt);
  EXPECT_EQ(resumed_loss({11, 6}), 0);
  EXPECT_EQ(resumed_loss({11, 7}), 0);
  EXPECT_EQ(loss_of_resumed({}, kStepsWanted, {11, 1}), 0) << "or all that it had";
}

TEST(LossOfResumed, StateWithAllStepsIsNotTaken) {
  EXPECT_EQ(resumed_loss({kStepsWanted - 1, 6}), 0);
  EXPECT_EQ(resumed_loss({kStepsWanted, 6}), std::nullopt);
  EXPECT_EQ(loss_of_resumed(ten_steps(), 10, {10, 4}), std::nullopt);
  EXPECT_EQ(loss_of_resumed(ten_steps(), 10, {9, 4}), 2);
}

TEST(LossOfResumed, ALossThatTheJournalHasLostIsNotKnown) {
  JournaledSteps past = ten_steps();
  past.records.erase(past.records.begin() + 7);
  EXPECT_EQ(loss_of_resumed(past, kStepsWanted, {8, 4}), 0);
  EXPECT_EQ(loss_of_resumed(past, kStepsWanted, {9, 4}), 2);
}

/// The coordinator itself has committed ten steps, and knows the loss of the last one.
TEST(LossOfSought, OnlyStateThatTheRunCameThroughIsTaken) {
  const SeekLeftState sought{10, {{0, 2}, {5, 4}}, 1.5};
  EXPECT_EQ(loss_of_sought(sought, {10, 4}), 1.5);
  EXPECT_EQ(loss_of_sought(sought, {9, 4}), 0);
  EXPECT_EQ(loss_of_sought(sought, {5, 2}), 0);
  EXPECT_EQ(loss_of_sought(sought, {6, 2}), std::nullopt) << "it was taken back";
  EXPECT_EQ(loss_of_sought(sought, {10, 6}), std::nullopt);
  EXPECT_EQ(loss_of_sought(sought, {11, 4}), std::nullopt) << "its own steps are no more";
  EXPECT_EQ(loss_of_sought(sought, {11, 6}), std::nullopt);
}

}  // namespace
}  // namespace skein::plans
