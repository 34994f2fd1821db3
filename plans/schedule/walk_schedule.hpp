#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "plans/schedule/action.hpp"

namespace skein::plans {

/// Executes the lists without time: calls `visit` for every action, each behind the actions that
/// make its input (F: of the stage in front; B and I: of the stage behind) and behind those that
/// stand in front of it in its list. Every stage belongs to one rank; stages and micro-batches are
/// in 0..S-1 and 0..M-1.
/// Returns   [R] how many actions of each list could run: less than all of them is a deadlock.
/// Cost      O(actions + S * M).
std::vector<size_t> walk_schedule(const Schedule& schedule,
                                  const std::vector<int32_t>& rank_of_stage,
                                  int32_t microbatch_count,
                                  const std::function<void(size_t, const Action&)>& visit);

}  // namespace skein::plans
