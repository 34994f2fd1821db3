#include "plans/base/outcome.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace skein::plans {
namespace {

using Numbers = std::vector<int>;

TEST(Outcome, TellsAnEventThatWasTakenWithoutDecisionsFromOneThatWasDropped) {
  const Outcome<Numbers> nothing = Numbers{};
  EXPECT_TRUE(nothing.is_accepted());
  EXPECT_EQ(nothing.why_dropped(), std::nullopt);
  const Outcome<Numbers> dropped = Dropped{DropReason::kStale};
  EXPECT_TRUE(dropped.is_dropped());
  EXPECT_TRUE(dropped.decisions().empty());
  EXPECT_EQ(dropped.why_dropped(), DropReason::kStale);
  EXPECT_EQ(Outcome<Numbers>(Numbers{7}).decisions(), Numbers{7});
}

TEST(DropCounts, CountsByReasonAndOnlyWhatWasDropped) {
  DropCounts counts;
  EXPECT_TRUE(counts.note(Outcome<Numbers>(Numbers{1})));
  EXPECT_FALSE(counts.note(Outcome<Numbers>(Dropped{DropReason::kEarly})));
  EXPECT_FALSE(counts.note(Outcome<Numbers>(Dropped{DropReason::kEarly})));
  counts.add(DropReason::kUnknown);
  EXPECT_EQ(counts.of(DropReason::kEarly), 2u);
  EXPECT_EQ(counts.of(DropReason::kRepeated), 0u);
  EXPECT_EQ(counts.total(), 3u);
}

TEST(DropReason, EveryReasonHasANameOfItsOwn) {
  std::set<std::string> names;
  for (size_t i = 0; i < kDropReasons; ++i) names.insert(to_text(static_cast<DropReason>(i)));
  EXPECT_EQ(names.size(), kDropReasons);
}

}  // namespace
}  // namespace skein::plans
