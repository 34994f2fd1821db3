#include "plans/share/turn_naming.hpp"

#include <gtest/gtest.h>

namespace skein::plans {
namespace {

TEST(TurnNaming, NamesNothingWhereNoDeviceIsShared) {
  TurnNaming turns(1);
  turns.on_report({});
  EXPECT_EQ(turns.name_next(), 0u);
  EXPECT_EQ(turns.name_next(), 0u);
}

TEST(TurnNaming, NamesTheFirstPassAheadOfAllThatWorkersHaveSeen) {
  TurnNaming turns(1);
  turns.on_report({10 * kTurnUnit, false});
  turns.on_report({30 * kTurnUnit, false});
  EXPECT_GT(turns.name_next(), 30 * kTurnUnit);
  turns.on_report({31 * kTurnUnit, true});
  EXPECT_EQ(turns.name_next(), 0u) << "those that follow have their place";
}

TEST(TurnNaming, NamesAnewWhenAWorkerHasLostItsTurns) {
  TurnNaming turns(1);
  turns.on_report({1, false});
  const uint64_t first = turns.name_next();
  turns.on_report({first, true});
  turns.on_report({first + kTurnUnit, false});
  EXPECT_GT(turns.name_next(), first + kTurnUnit);
}

TEST(TurnNaming, NamesAnewAfterAPause) {
  TurnNaming turns(1);
  turns.on_report({1, false});
  const uint64_t first = turns.name_next();
  turns.on_report({first + 2 * kTurnUnit, true});
  turns.on_pause();
  EXPECT_GT(turns.name_next(), first + 2 * kTurnUnit);
}

TEST(TurnNaming, FollowsJobsThatAreFarAhead) {
  TurnNaming turns(2);
  turns.on_report({1, false});
  const uint64_t first = turns.name_next();
  turns.on_report({first + 3 * kTurnUnit, true});
  EXPECT_EQ(turns.name_next(), 0u);
  turns.on_report({first + 300 * kTurnUnit, true});
  EXPECT_GT(turns.name_next(), first + 300 * kTurnUnit);
}

TEST(TurnNaming, NeverNamesMoreThanAWorkerTakes) {
  TurnNaming turns(1);
  turns.on_report({kTurnPositionMax, false});
  EXPECT_LE(turns.name_next(), kTurnPositionMax);
}

}  // namespace
}  // namespace skein::plans
