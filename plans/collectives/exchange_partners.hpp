#pragma once

#include <cstdint>
#include <vector>

#include "plans/collectives/reducer_kind.hpp"

namespace skein::plans {

/// The ranks of a group of `rank_count` with which `rank` moves bytes when the group reduces in
/// this way, ascending: two for what goes round a ring, log2 of the group for a tree, and all of
/// them where every rank sends to every other one. A is a partner of B if B is one of A.
std::vector<uint32_t> exchange_partners(ReducerKind kind, uint32_t rank, uint32_t rank_count);

}  // namespace skein::plans
