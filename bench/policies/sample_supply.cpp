#include "bench/policies/sample_supply.hpp"

#include "plans/base/check.hpp"
#include "plans/job/sample_order.hpp"

namespace skein::bench {
namespace {

constexpr uint64_t kEndless = uint64_t{1} << 48;  // Samples: runs end by their time.

}  // namespace

SampleSupply::SampleSupply(std::vector<uint32_t> order, const Options& options)
    : order_(std::move(order)), seed_(options.seed), batch_(options.batch) {
  const uint64_t pools = options.is_skewed ? options.pipelines : 1;
  for (uint64_t pool = 0; pool < pools; ++pool) {
    const uint64_t begin = pool * order_.size() / pools;
    parts_.push_back({begin, (pool + 1) * order_.size() / pools - begin});
    pools_.emplace_back(0, kEndless);
  }
}

std::vector<uint32_t> SampleSupply::take(uint32_t pipeline, uint64_t step) {
  const size_t pool = pool_of(pipeline);
  const auto claim = pools_[pool].claim(pipeline, batch_);
  SKEIN_CHECK(claim.has_value()) << "pipeline replica " << pipeline;
  held_first_[{pipeline, step}] = claim->first;
  const plans::SampleOrder order{seed_ + pool, parts_[pool].count};
  std::vector<uint32_t> samples;
  for (uint64_t i = 0; i < claim->count; ++i) {
    samples.push_back(order_[parts_[pool].begin + order.window(claim->first + i)]);
  }
  return samples;
}

void SampleSupply::finish(uint32_t pipeline, uint64_t step) {
  const auto held = held_first_.find({pipeline, step});
  SKEIN_CHECK(held != held_first_.end()) << "pipeline replica " << pipeline << " step " << step;
  SKEIN_CHECK(pools_[pool_of(pipeline)].finish(pipeline, held->second)) << held->second;
  held_first_.erase(held);
}

}  // namespace skein::bench
