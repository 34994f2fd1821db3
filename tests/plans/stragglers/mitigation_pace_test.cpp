#include "plans/stragglers/mitigation_pace.hpp"

#include <gtest/gtest.h>

namespace skein::plans {
namespace {

TEST(MitigationPace, WaitsTwiceAsLongAfterEachMitigationUpToALimit) {
  MitigationPace pace;
  uint64_t step = 100;
  for (uint64_t wait : {16, 32, 64, 128, 256, 512, 512}) {
    pace.on_mitigation(step);
    pace.on_changes({SpeedChange{}});
    EXPECT_TRUE(pace.take(step + wait - 1).empty()) << wait;
    EXPECT_EQ(pace.take(step + wait).size(), 1u) << wait;
    step += wait;
  }
}

TEST(MitigationPace, IsQuickAgainAfterQuiet) {
  MitigationPace pace;
  pace.on_mitigation(0);
  pace.on_mitigation(16);
  pace.on_mitigation(1000);
  pace.on_changes({SpeedChange{}});
  EXPECT_TRUE(pace.take(1015).empty());
  EXPECT_EQ(pace.take(1016).size(), 1u);
}

TEST(MitigationPace, GivesEachChangeOnce) {
  MitigationPace pace;
  EXPECT_TRUE(pace.take(0).empty());
  pace.on_changes({SpeedChange{}, SpeedChange{}});
  pace.on_changes({SpeedChange{}});
  EXPECT_EQ(pace.take(0).size(), 3u);
  EXPECT_TRUE(pace.take(0).empty());
}

}  // namespace
}  // namespace skein::plans
