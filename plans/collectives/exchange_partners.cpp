#include "plans/collectives/exchange_partners.hpp"

#include <bit>
#include <set>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

void add_ring(uint32_t rank, uint32_t count, std::set<uint32_t>& partners) {
  partners.insert({(rank + 1) % count, (rank + count - 1) % count});
}

/// A tree over the largest power of two; each rank beyond it folds into one of the tree.
void add_tree(uint32_t rank, uint32_t count, std::set<uint32_t>& partners) {
  const uint32_t inner = std::bit_floor(count);
  if (rank >= inner) {
    partners.insert(rank - inner);
    return;
  }
  if (rank + inner < count) partners.insert(rank + inner);
  for (uint32_t level = 1; level < inner; level *= 2) partners.insert(rank ^ level);
}

}  // namespace

std::vector<uint32_t> exchange_partners(ReducerKind kind, uint32_t rank, uint32_t rank_count) {
  SKEIN_CHECK(rank < rank_count) << rank << " of " << rank_count;
  std::set<uint32_t> partners;
  switch (kind) {
    case ReducerKind::kSum:
    case ReducerKind::kMean:
    case ReducerKind::kTopK:
      add_ring(rank, rank_count, partners);
      break;
    case ReducerKind::kAdasum:
      add_tree(rank, rank_count, partners);
      break;
    case ReducerKind::kHiTopK:  // All within a host, which only their addresses tell.
    case ReducerKind::kHiSum:
    case ReducerKind::kTopKAllToAll:
    case ReducerKind::kFp16:
    case ReducerKind::kBf16:
      for (uint32_t other = 0; other < rank_count; ++other) partners.insert(other);
      break;
  }
  partners.erase(rank);
  return {partners.begin(), partners.end()};
}

}  // namespace skein::plans
