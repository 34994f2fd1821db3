#include "plans/tokens/token_order.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

uint64_t inputs_at(const TokenPool& pool, TokenId id, WorkerId worker) {
  uint64_t count = 0;
  for (TokenId input : pool.inputs_of(id)) count += pool.at(input).holder == worker ? 1 : 0;
  return count;
}

/// The better of two has the smaller one.
using Rank = std::tuple<int64_t, int64_t, uint64_t>;
Rank rank_of(const TokenPool& pool, const TokenPolicy& policy, TokenId id, WorkerId worker) {
  const uint64_t turn = pool.at(id).ready_since;
  if (!policy.is_depth_first) return {0, 0, turn};
  return {-int64_t{id.level}, -static_cast<int64_t>(inputs_at(pool, id, worker)), turn};
}

}  // namespace

TokenBuckets::TokenBuckets(const TokenShape& shape, const LevelWorkers& level_workers,
                           const std::vector<double>& speeds)
    : level_workers_(level_workers) {
  const std::vector<WorkerId>& workers = level_workers_.front();
  SKEIN_CHECK(!workers.empty() && speeds.size() == workers.size()) << speeds.size();
  double all = 0;
  for (double speed : speeds) all += speed;
  const uint32_t count = shape.count(0);
  double share = 0;
  for (size_t w = 0; w < workers.size(); ++w) {
    share += speeds[w] / all;
    const bool is_last = w + 1 == workers.size();
    const auto end = static_cast<size_t>(std::lround(share * count));
    first_owners_.resize(is_last ? count : std::max(first_owners_.size(), end), workers[w]);
  }
}

WorkerId TokenBuckets::owner_of(const TokenPool& pool, TokenId id) const {
  if (id.level == 0) return first_owners_[id.index];
  std::map<WorkerId, uint64_t> samples;
  for (TokenId input : pool.inputs_of(id)) {
    const auto holder = pool.at(input).holder;
    if (holder && may_train(id.level, *holder)) {
      samples[*holder] += pool.samples_of(input).count;
    }
  }
  if (samples.empty()) return level_workers_[id.level].front();
  return std::max_element(samples.begin(), samples.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

bool TokenBuckets::may_train(uint32_t level, WorkerId worker) const {
  const std::vector<WorkerId>& workers = level_workers_[level];
  return std::binary_search(workers.begin(), workers.end(), worker);
}

std::optional<TokenId> choose_token(const TokenPool& pool, const TokenPolicy& policy,
                                    const TokenBuckets& buckets, const TokenWish& wish) {
  const WorkerId worker = wish.worker;
  std::map<WorkerId, std::vector<TokenId>> by_owner;
  for (uint32_t level = 0; level < pool.shape().levels(); ++level) {
    if (!buckets.may_train(level, worker)) continue;
    for (uint32_t index : pool.ready(level)) {
      const TokenId id{level, index};
      by_owner[policy.has_own_buckets ? buckets.owner_of(pool, id) : worker].push_back(id);
    }
  }
  if (by_owner.empty()) return std::nullopt;
  auto bucket = by_owner.find(worker);
  if (bucket == by_owner.end() && !wish.helps) return std::nullopt;
  if (bucket == by_owner.end()) {
    bucket = std::max_element(by_owner.begin(), by_owner.end(), [](const auto& a, const auto& b) {
      return a.second.size() < b.second.size();
    });
  }
  return *std::min_element(bucket->second.begin(), bucket->second.end(), [&](TokenId a, TokenId b) {
    return rank_of(pool, policy, a, worker) < rank_of(pool, policy, b, worker);
  });
}

}  // namespace skein::plans
