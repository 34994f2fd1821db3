// What SDPipe's figure 9 [R] says of the sizes of groups, and under which assumption it comes out.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "bench/policy_simulation/figure_nine.hpp"

namespace skein::bench {
namespace {

constexpr double kFigureSeconds = 300;  // Simulated.
constexpr double kFigureShortSeconds = 100;

plans::PolicySimulation slowed_down(const NamedPolicy& policy, uint64_t seed, double sleep_us,
                                    double seconds) {
  return simulate(kFigureNineLayout,
                  plans::sleeping_pieces(sleep_us, kForwardUs + kBackwardUs, seed), policy, seed,
                  seconds);
}

/// At every length of the sleeps that the artefact's emulation is run with here, so nothing is
/// fitted. The least one is also within one, as local steps are no averages.
TEST(FigureNine, ComesOutWithinOneIfHoldsWaitForEverybody) {
  for (const FigureNineBox& box : kFigureNine) {
    for (const double factor : {0.5, 1.0, 2.0}) {
      for (const uint64_t seed : {1, 2, 3, 4, 5}) {
        const plans::PolicySimulation result =
            slowed_down(figure_nine_scheduler(box.period, HoldRule::kEverybody), seed,
                        factor * kSleepUs, kFigureSeconds);
        const auto sizes = size_quantiles(result, SizeOf::kAverages);
        EXPECT_LE(quartiles_off_by(sizes, box), 1u) << box.period << " " << factor << " " << seed;
        EXPECT_LE(std::max(sizes[0], box.sizes[0]) - std::min(sizes[0], box.sizes[0]), 1u);
        EXPECT_LE(quartiles_off_by(size_quantiles(result, SizeOf::kUpdates), box), 2u);
      }
    }
  }
}

/// Whoever comes after the one that supplies the last edge is left behind, so a group of all 8 is
/// rare, however long the sleeps are.
TEST(FigureNine, DoesNotComeOutIfHoldsWaitForMissingEdges) {
  const FigureNineBox& box = kFigureNine[1];
  ASSERT_EQ(box.period, 2u);
  for (const double factor : {0.5, 1.0, 2.0}) {
    for (const NamedPolicy& policy : {sdpipe_artefact(box.period),
                                      figure_nine_scheduler(box.period, HoldRule::kMissingEdges)}) {
      const plans::PolicySimulation result =
          slowed_down(policy, 1, factor * kSleepUs, kFigureShortSeconds);
      for (const SizeOf counted : {SizeOf::kUpdates, SizeOf::kAverages}) {
        EXPECT_GE(quartiles_off_by(size_quantiles(result, counted), box), 2u) << factor;
      }
    }
  }
}

/// Full groups shrink a window to 0.01 ms, and then jitter parts them.
TEST(FigureNine, ComesOutWithJitterOnlyIfWindowsStayAboveIt) {
  constexpr uint64_t kJitterUs = 100;
  const auto off_by = [](const FigureNineBox& box, HoldRule rule, WindowRule window) {
    const NamedPolicy policy =
        with_jitter(figure_nine_scheduler(box.period, rule, window), kJitterUs);
    return quartiles_off_by(
        size_quantiles(slowed_down(policy, 1, kSleepUs, kFigureSeconds), SizeOf::kAverages), box);
  };
  for (const FigureNineBox& box : kFigureNine) {
    EXPECT_LE(off_by(box, HoldRule::kEverybody, WindowRule::kStays), 1u) << box.period;
  }
  EXPECT_GE(off_by(kFigureNine[1], HoldRule::kEverybody, WindowRule::kAdapts), 2u);
  EXPECT_GE(off_by(kFigureNine[1], HoldRule::kMissingEdges, WindowRule::kStays), 2u);
}

TEST(FigureNine, NoJitterChangesNothing) {
  const NamedPolicy policy = figure_nine_scheduler(2, HoldRule::kMissingEdges);
  EXPECT_EQ(slowed_down(with_jitter(policy, 0), 1, kSleepUs, kFigureShortSeconds).sizes,
            slowed_down(policy, 1, kSleepUs, kFigureShortSeconds).sizes);
}

TEST(FigureNine, PeriodOneIsAllreduceUnderEitherRule) {
  for (const HoldRule rule : {HoldRule::kMissingEdges, HoldRule::kEverybody}) {
    const plans::PolicySimulation result =
        slowed_down(figure_nine_scheduler(1, rule), 1, kSleepUs, kFigureShortSeconds);
    EXPECT_EQ(result.sizes.size(), 1u);
    EXPECT_EQ(result.sizes.begin()->first, 8u);
  }
}

TEST(FigureNine, SizesAreCountedOfUpdatesOrOfAverages) {
  plans::PolicySimulation result;
  result.sizes = {{1, 6}, {2, 1}, {4, 2}, {8, 1}};  // 24 updates, four averages.
  EXPECT_EQ(size_quantiles(result, SizeOf::kUpdates), (std::array<uint64_t, 5>{1, 1, 4, 8, 8}));
  EXPECT_EQ(size_quantiles(result, SizeOf::kAverages), (std::array<uint64_t, 5>{2, 2, 4, 4, 8}));
  EXPECT_EQ(quartiles_off_by({1, 1, 4, 8, 8}, kFigureNine[2]), 2u);
}

}  // namespace
}  // namespace skein::bench
