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

/// What the worker takes from its own bucket: of the first level only what would be next.
std::vector<TokenId> own_bucket(const TokenPool& pool, const TokenPolicy& policy,
                                const TokenBuckets& buckets, WorkerId worker) {
  std::vector<TokenId> own;
  for (uint32_t level = 1; level < pool.shape().levels(); ++level) {
    if (!buckets.may_train(level, worker)) continue;
    for (uint32_t index : pool.ready(level)) {
      const TokenId id{level, index};
      if (!policy.has_own_buckets || buckets.owner_of(pool, id) == worker) own.push_back(id);
    }
  }
  if (!buckets.may_train(0, worker)) return own;
  const auto [begin, end] = policy.has_own_buckets ? buckets.first_level_of(worker)
                                                   : std::pair(0u, pool.shape().count(0));
  const auto next = pool.ready(0).lower_bound(begin);
  if (next != pool.ready(0).end() && *next < end) own.push_back({0, *next});
  return own;
}

/// Of others' tokens that the worker may train, those of whoever has most.
std::vector<TokenId> fullest_bucket(const TokenPool& pool, const TokenBuckets& buckets,
                                    WorkerId worker) {
  std::map<WorkerId, std::vector<TokenId>> by_owner;
  for (uint32_t level = 0; level < pool.shape().levels(); ++level) {
    if (!buckets.may_train(level, worker)) continue;
    for (uint32_t index : pool.ready(level)) {
      const TokenId id{level, index};
      by_owner[buckets.owner_of(pool, id)].push_back(id);
    }
  }
  const auto fullest = std::max_element(
      by_owner.begin(), by_owner.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  return fullest == by_owner.end() ? std::vector<TokenId>() : fullest->second;
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
  const std::vector<WorkerId>& workers = level_workers_[id.level];
  if (samples.empty()) return workers[id.index % workers.size()];
  return std::max_element(samples.begin(), samples.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

std::pair<uint32_t, uint32_t> TokenBuckets::first_level_of(WorkerId worker) const {
  const auto [begin, end] = std::equal_range(first_owners_.begin(), first_owners_.end(), worker);
  return {static_cast<uint32_t>(begin - first_owners_.begin()),
          static_cast<uint32_t>(end - first_owners_.begin())};
}

bool TokenBuckets::may_train(uint32_t level, WorkerId worker) const {
  const std::vector<WorkerId>& workers = level_workers_[level];
  return std::binary_search(workers.begin(), workers.end(), worker);
}

uint32_t ahead_in_next_step(const TokenUse& use, uint32_t most) {
  if (use.kept_from_others && use.granted <= 2 * use.ahead) return std::max(1u, use.ahead - 1);
  return use.granted > use.ahead ? std::min(most, use.ahead + 1) : use.ahead;
}

std::optional<TokenId> choose_token(const TokenPool& pool, const TokenPolicy& policy,
                                    const TokenBuckets& buckets, const TokenWish& wish) {
  const std::vector<TokenId> own = own_bucket(pool, policy, buckets, wish.worker);
  const std::vector<TokenId> bucket =
      own.empty() && wish.helps ? fullest_bucket(pool, buckets, wish.worker) : own;
  if (bucket.empty()) return std::nullopt;
  return *std::min_element(bucket.begin(), bucket.end(), [&](TokenId a, TokenId b) {
    return rank_of(pool, policy, a, wish.worker) < rank_of(pool, policy, b, wish.worker);
  });
}

}  // namespace skein::plans
