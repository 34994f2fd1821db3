#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/policy_simulation/policy_table.hpp"

namespace skein::bench {

/// SDPipe, PVLDB 16(9), 2023, appendix, figure 9: sizes of groups of 8 pipeline replicas of one
/// stage. The models, the slowdown, the code and what is counted are not known to us.
inline constexpr plans::PipelineLayout kFigureNineLayout{8, 1};

/// A box of the figure: [R], read off a plot, so each is about right.
struct FigureNineBox {
  uint64_t period = 0;
  std::array<uint64_t, 4> sizes = {};  // Least, lower quartile, median, upper quartile.
};
inline constexpr std::array<FigureNineBox, 3> kFigureNine = {
    {{1, {8, 8, 8, 8}}, {2, {3, 6, 8, 8}}, {5, {2, 3, 4, 6}}}};

/// Says for whom a group waits that is held because P * N updates have been made.
enum class HoldRule {
  kMissingEdges,  // Its members must connect all, with the groups since the last hold.
  kEverybody,     // All pipeline replicas are its members.
};

/// How long a group that is not held waits for others.
enum class WindowRule {
  kAdapts,  // 1 ms at first, then by the groups that the first one was in, down to 0.01 ms.
  kStays,   // 1 ms, as at first.
};

/// SDPipe's scheduler of one stage, written after its artefact's code [R] and apart from
/// `plans::SdpipePolicy`, which jobs run. kMissingEdges is what that code does with up to 8
/// pipeline replicas; kEverybody what it comes to with more, as groups are then not remembered.
/// kAdapts is what that code does; kStays is for comparison.
/// Unlike in `plans::SdpipePolicy` updates are counted from the start of the job, not anew from
/// each hold. Nobody dies or joins. Cost: O(N) a signal.
NamedPolicy figure_nine_scheduler(uint64_t period, HoldRule rule,
                                  WindowRule window = WindowRule::kAdapts);

/// The policy, but each ready signal comes later by up to `jitter_us`, drawn anew and evenly, as if
/// the step had taken so much longer.
NamedPolicy with_jitter(const NamedPolicy& policy, uint64_t jitter_us);

/// What a size is counted of.
enum class SizeOf {
  kUpdates,   // Each update has the size of its group; a local step has 1.
  kAverages,  // Each group of two or more; a local step is no average.
};

/// Least, lower quartile, median, upper quartile and most.
std::array<uint64_t, 5> size_quantiles(const plans::PolicySimulation& result, SizeOf counted);

/// How far the quartiles and the median are from the box at most. The least is left out: whether
/// the plot shows outliers is not known to us.
uint64_t quartiles_off_by(const std::array<uint64_t, 5>& sizes, const FigureNineBox& box);

}  // namespace skein::bench
