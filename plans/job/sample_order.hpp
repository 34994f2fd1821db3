#pragma once

#include <cstdint>

namespace skein::plans {

/// Which window of the data is sample number n of a job: a pure function, so that any worker knows
/// the samples of any step. One pass uses each window exactly once, in an order that depends on the
/// seed and the pass: a Feistel permutation with cycle walking (Black and Rogaway, CT-RSA 2002).
struct SampleOrder {
  uint64_t seed = 0;
  uint64_t window_count = 0;  // Windows of one pass, > 0.

  /// `sample` counts from 0 over the whole job; sample / window_count is the pass.
  uint64_t window(uint64_t sample) const;
};

/// First sample of a step (from 0): the step uses [first, first + global_batch_size).
uint64_t first_sample(uint64_t step, uint64_t global_batch_size);

}  // namespace skein::plans
