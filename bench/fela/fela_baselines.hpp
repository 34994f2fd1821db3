#pragma once

#include <cstdint>

#include "plans/profile/profile.hpp"
#include "plans/simulator/slowdown.hpp"

namespace skein::bench {

/// Like workers, each with a network card of its own.
struct FelaCluster {
  uint32_t workers = 8;
  double bytes_per_second = 1.25e9;
  double latency_us = 50;
  plans::Scenario scenario;  // Who sleeps in a step does so before its work.
  uint32_t steps = 16;
};

/// Data parallelism: every worker an even share of the samples, and a ring all-reduce of each
/// layer's gradient as soon as the slowest has it, one behind the other under the backward. Mean of
/// a step.
double data_parallel_us(const plans::Profile& profile, int64_t samples, const FelaCluster& cluster);

/// A hybrid as Stanza's (from memory): some workers share the layers in front of a cut, data
/// parallel with their all-reduce under the backward; the others share those behind it, where they
/// get the outputs of all samples, and send the gradients back. The best of all cuts and of 1, 2
/// and 4 workers behind it. Mean of a step.
double hybrid_us(const plans::Profile& profile, int64_t samples, const FelaCluster& cluster);

}  // namespace skein::bench
