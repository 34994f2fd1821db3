#pragma once

#include "bench/policies/comparison.hpp"

namespace skein::bench {

/// Basu et al., HiPC 2018: with one of 8 workers delayed by 300 %, grouped servers stay within 20 %
/// of the time without delay, and lose at most 2.5 % of accuracy [R: abstract]. Prints time and
/// accuracy after the same number of samples, and the time to the target, relative to synchronous
/// training that nothing delays; plain synchronous and asynchronous servers beside it. What the
/// paper compares at, samples or time, is not known; so both. Nor is what its communication cost;
/// so with ours, and with none. Groups with servers of their own, as in the paper, and without
/// ("flat", ours), where members push straight to the shards of the central one, which takes half
/// as long. All-reduce and our adaptive policy beside them.
///
/// `options` says how rates are tuned; its policies, scenarios and parts do not matter.
void print_headline(const TaskMaker& make_task, ComparisonOptions options, uint64_t samples);

}  // namespace skein::bench
