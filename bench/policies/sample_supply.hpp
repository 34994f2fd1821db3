#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "plans/modes/claim_pool.hpp"

namespace skein::bench {

/// Hands out samples to pipeline replicas, by claims. Shuffled: all pipeline replicas share one
/// pool, whose order is new in every pass. Skewed: each has a pool of its own, over its contiguous
/// part of the order given, in an order that is new in every pass of that part. Not thread-safe.
class SampleSupply {
 public:
  struct Options {
    uint32_t pipelines = 0;
    uint64_t batch = 0;  // Samples of one step of a pipeline replica.
    bool is_skewed = false;
    uint64_t seed = 0;
  };
  SampleSupply(std::vector<uint32_t> order, const Options& options);

  std::vector<uint32_t> take(uint32_t pipeline, uint64_t step);
  void finish(uint32_t pipeline, uint64_t step);

 private:
  struct Part {
    uint64_t begin = 0, count = 0;  // A range of `order_`.
  };
  size_t pool_of(uint32_t pipeline) const { return pools_.size() > 1 ? pipeline : 0; }

  std::vector<uint32_t> order_;
  uint64_t seed_;
  uint64_t batch_;                       // Samples of a claim.
  std::vector<Part> parts_;              // By pool.
  std::vector<plans::ClaimPool> pools_;  // One, or one per pipeline replica.
  std::map<std::pair<uint32_t, uint64_t>, uint64_t> held_first_;  // By pipeline replica and step.
};

}  // namespace skein::bench
