#include "plans/stragglers/remedy_pace.hpp"

#include <gtest/gtest.h>

namespace skein::plans {
namespace {

TEST(RemedyPace, WaitsTwiceAsLongAfterEachRemedyUpToALimit) {
  RemedyPace pace;
  uint64_t step = 100;
  for (uint64_t wait : {16, 32, 64, 128, 256, 512, 512}) {
    pace.on_remedy(step);
    pace.on_changes({SpeedChange{}});
    EXPECT_TRUE(pace.take(step + wait - 1).empty()) << wait;
    EXPECT_EQ(pace.take(step + wait).size(), 1u) << wait;
    step += wait;
  }
}

TEST(RemedyPace, IsQuickAgainAfterQuiet) {
  RemedyPace pace;
  pace.on_remedy(0);
  pace.on_remedy(16);
  pace.on_remedy(1000);
  pace.on_changes({SpeedChange{}});
  EXPECT_TRUE(pace.take(1015).empty());
  EXPECT_EQ(pace.take(1016).size(), 1u);
}

TEST(RemedyPace, GivesEachChangeOnce) {
  RemedyPace pace;
  EXPECT_TRUE(pace.take(0).empty());
  pace.on_changes({SpeedChange{}, SpeedChange{}});
  pace.on_changes({SpeedChange{}});
  EXPECT_EQ(pace.take(0).size(), 3u);
  EXPECT_TRUE(pace.take(0).empty());
}

}  // namespace
}  // namespace skein::plans
