#include "plans/modes/lease_pool.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {

LeasePool::LeasePool(uint64_t samples, uint64_t samples_each)
    : LeasePool(LeaseState{.samples = samples, .samples_each = samples_each}) {}

LeasePool::LeasePool(LeaseState state) : state_(std::move(state)) {
  SKEIN_CHECK(state_.samples_each > 0);
}

uint64_t LeasePool::finished_samples() const {
  uint64_t finished = 0;
  for (const auto& [column, samples] : state_.by_column) finished += samples;
  return finished;
}

void LeasePool::limit(uint64_t samples) {
  state_.samples = std::min(state_.samples, std::max(samples, state_.fresh));
}

bool LeasePool::is_over() const {
  return state_.fresh == state_.samples && state_.returned.empty() && state_.held.empty();
}

std::optional<SampleLease> LeasePool::lease(uint32_t column) {
  SampleLease lease;
  if (!state_.returned.empty()) {
    lease = {state_.returned.begin()->first, state_.returned.begin()->second};
    state_.returned.erase(state_.returned.begin());
  } else if (state_.fresh < state_.samples) {
    lease = {state_.fresh, std::min(state_.samples_each, state_.samples - state_.fresh)};
    state_.fresh += lease.count;
  } else {
    return std::nullopt;
  }
  state_.held[lease.first] = {column, lease.count};
  return lease;
}

bool LeasePool::finish(uint32_t column, uint64_t first) {
  const auto held = state_.held.find(first);
  if (held == state_.held.end() || held->second.column != column) return false;
  state_.by_column[column] += held->second.count;
  state_.held.erase(held);
  return true;
}

void LeasePool::undo(uint32_t column, SampleLease lease) {
  uint64_t& finished = state_.by_column[column];
  SKEIN_CHECK(lease.first + lease.count <= state_.fresh && lease.count <= finished &&
              !state_.held.contains(lease.first))
      << "samples from " << lease.first << " are not finished";
  finished -= lease.count;
  state_.returned[lease.first] = lease.count;
}

bool LeasePool::forget(uint32_t column) {
  bool has_held = false;
  for (auto each = state_.held.begin(); each != state_.held.end();) {
    if (each->second.column != column) {
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
