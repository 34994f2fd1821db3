#pragma once

#include <algorithm>
#include <set>
#include <utility>

#include "plans/base/ids.hpp"

namespace skein::plans {

/// Two workers, the lower number first.
using WorkerPair = std::pair<WorkerId, WorkerId>;
using WorkerPairs = std::set<WorkerPair>;

inline WorkerPair pair_of(WorkerId a, WorkerId b) { return {std::min(a, b), std::max(a, b)}; }

}  // namespace skein::plans
