#include "plans/modes/claim_pool.hpp"

#include <algorithm>

#include "plans/base/check.hpp"

namespace skein::plans {

ClaimPool::ClaimPool(uint64_t first, uint64_t end) {
  SKEIN_CHECK(first <= end) << first << " to " << end;
  state_.first = state_.fresh = first;
  state_.end = end;
}

void ClaimPool::limit(uint64_t end) {
  state_.end = std::min(state_.end, std::max(end, state_.fresh));
}

bool ClaimPool::is_over() const {
  return state_.fresh == state_.end && state_.returned.empty() && state_.held.empty();
}

std::optional<SampleClaim> ClaimPool::claim(uint32_t pipeline, uint64_t samples_max) {
  SKEIN_CHECK(samples_max > 0) << "pipeline replica " << pipeline;
  SampleClaim claim;
  if (!state_.returned.empty()) {
    const auto [first, count] = *state_.returned.begin();
    claim = {first, std::min(samples_max, count)};
    state_.returned.erase(state_.returned.begin());
    if (claim.count < count) state_.returned[first + claim.count] = count - claim.count;
  } else if (state_.fresh < state_.end) {
    claim = {state_.fresh, std::min(samples_max, state_.end - state_.fresh)};
    state_.fresh += claim.count;
  } else {
    return std::nullopt;
  }
  state_.held[claim.first] = {pipeline, claim.count};
  return claim;
}

bool ClaimPool::finish(uint32_t pipeline, uint64_t first) {
  const auto held = state_.held.find(first);
  if (held == state_.held.end() || held->second.pipeline != pipeline) return false;
  state_.by_pipeline[pipeline] += held->second.count;
  state_.held.erase(held);
  return true;
}

void ClaimPool::undo(uint32_t pipeline, SampleClaim claim) {
  uint64_t& finished = state_.by_pipeline[pipeline];
  SKEIN_CHECK(claim.first + claim.count <= state_.fresh && claim.count <= finished &&
              !state_.held.contains(claim.first))
      << "samples from " << claim.first << " are not finished";
  finished -= claim.count;
  state_.returned[claim.first] = claim.count;
}

void ClaimPool::forget(uint32_t pipeline) {
  for (auto each = state_.held.begin(); each != state_.held.end();) {
    if (each->second.pipeline != pipeline) {
      ++each;
      continue;
    }
    state_.returned[each->first] = each->second.count;
    each = state_.held.erase(each);
  }
}

void ClaimPool::check_invariants() const {
  SKEIN_CHECK(state_.first <= state_.fresh && state_.fresh <= state_.end)
      << state_.first << ", " << state_.fresh << ", " << state_.end;
  std::map<uint64_t, uint64_t> ranges = state_.returned;
  for (const auto& [first, holder] : state_.held) {
    SKEIN_CHECK(ranges.emplace(first, holder.count).second) << first << " is held and returned";
  }
  uint64_t accounted = 0;
  uint64_t last = state_.first;
  for (const auto& [first, count] : ranges) {
    SKEIN_CHECK(first >= last && first + count <= state_.fresh) << first << " + " << count;
    last = first + count;
    accounted += count;
  }
  for (const auto& [pipeline, count] : state_.by_pipeline) accounted += count;
  SKEIN_CHECK(accounted == state_.fresh - state_.first)
      << accounted << " samples are accounted for, of " << state_.fresh - state_.first;
}

}  // namespace skein::plans
