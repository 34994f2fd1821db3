#include "plans/modes/claim_pool.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {

ClaimPool::ClaimPool(uint64_t samples, uint64_t samples_each)
    : ClaimPool(ClaimState{.samples = samples, .samples_each = samples_each}) {}

ClaimPool::ClaimPool(ClaimState state) : state_(std::move(state)) {
  SKEIN_CHECK(state_.samples_each > 0);
}

uint64_t ClaimPool::finished_samples() const {
  uint64_t finished = 0;
  for (const auto& [pipeline, samples] : state_.by_pipeline) finished += samples;
  return finished;
}

void ClaimPool::limit(uint64_t samples) {
  state_.samples = std::min(state_.samples, std::max(samples, state_.fresh));
}

bool ClaimPool::is_over() const {
  return state_.fresh == state_.samples && state_.returned.empty() && state_.held.empty();
}

std::optional<SampleClaim> ClaimPool::claim(uint32_t pipeline) {
  SampleClaim claim;
  if (!state_.returned.empty()) {
    claim = {state_.returned.begin()->first, state_.returned.begin()->second};
    state_.returned.erase(state_.returned.begin());
  } else if (state_.fresh < state_.samples) {
    claim = {state_.fresh, std::min(state_.samples_each, state_.samples - state_.fresh)};
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

bool ClaimPool::forget(uint32_t pipeline) {
  bool has_held = false;
  for (auto each = state_.held.begin(); each != state_.held.end();) {
    if (each->second.pipeline != pipeline) {
      ++each;
      continue;
    }
    state_.returned[each->first] = each->second.count;
    each = state_.held.erase(each);
    has_held = true;
  }
  return has_held;
}

}  // namespace skein::plans
