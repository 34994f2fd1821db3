#include "plans/coordinator/unreachable_pairs.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plans/base/check.hpp"
#include "plans/elastic/route_around.hpp"

namespace skein::plans {
namespace {

constexpr uint64_t kBelievedUs = 60'000'000;
constexpr int kBelievedDoublingsMax = 5;
/// Of 4,000 workers some hundred links may be down; and everybody may claim anything.
constexpr size_t kPairsMax = 256;
constexpr size_t kPairsDescribedMax = 8;

}  // namespace

bool UnreachablePairs::add(WorkerId one, WorkerId other, uint64_t generation, uint64_t now_us) {
  const WorkerPair pair = pair_of(one, other);
  if (!pairs_.contains(pair) && pairs_.size() == kPairsMax) {
    pairs_.erase(std::min_element(pairs_.begin(), pairs_.end(), [](const auto& a, const auto& b) {
      return a.second.until_us < b.second.until_us;
    }));
  }
  Entry& entry = pairs_[pair];
  if (entry.generation == generation && entry.until_us > now_us) return false;
  if (now_us > entry.until_us + kBelievedUs) entry = {};  // Since then it has worked.
  entry.is_stubborn = entry.is_tried;
  entry.generation = generation;
  entry.until_us = now_us + (kBelievedUs << std::min(entry.times, kBelievedDoublingsMax));
  ++entry.times;
  return true;
}

void UnreachablePairs::forget(WorkerId worker) {
  std::erase_if(pairs_, [&](const auto& each) {
    return each.first.first == worker || each.first.second == worker;
  });
}

void UnreachablePairs::try_again(uint64_t now_us) {
  for (auto& [pair, entry] : pairs_) {
    if (entry.until_us <= now_us) continue;
    entry.until_us = now_us;
    entry.is_tried = true;
  }
}

WorkerPairs UnreachablePairs::at(uint64_t now_us) const {
  WorkerPairs believed;
  for (const auto& [pair, entry] : pairs_) {
    if (entry.until_us > now_us) believed.insert(pair);
  }
  return believed;
}

bool UnreachablePairs::were_tried_again(uint64_t now_us) const {
  return std::all_of(pairs_.begin(), pairs_.end(), [&](const auto& each) {
    return each.second.until_us <= now_us || each.second.times > 1;
  });
}

std::vector<WorkerId> UnreachablePairs::without_stubborn(std::vector<WorkerId> workers,
                                                         uint64_t now_us) const {
  WorkerPairs down;
  for (const auto& [pair, entry] : pairs_) {
    if (entry.is_stubborn && entry.until_us > now_us) down.insert(pair);
  }
  return who_reach_one_another(down, std::move(workers));
}

std::optional<uint64_t> UnreachablePairs::next_end_us(uint64_t now_us) const {
  std::optional<uint64_t> next;
  for (const auto& [pair, entry] : pairs_) {
    if (entry.until_us <= now_us) continue;
    next = next ? std::min(*next, entry.until_us) : entry.until_us;
  }
  return next;
}

std::string UnreachablePairs::describe(uint64_t now_us) const {
  std::vector<std::string> named;
  for (const WorkerPair& pair : at(now_us)) {
    if (named.size() == kPairsDescribedMax) {
      named.push_back("and more");
      break;
    }
    named.push_back(absl::StrCat("w", pair.first.value, " and w", pair.second.value));
  }
  return absl::StrCat(absl::StrJoin(named, ", "), " do not reach one another");
}

void UnreachablePairs::check_invariants() const {
  SKEIN_CHECK(pairs_.size() <= kPairsMax) << pairs_.size();
  for (const auto& [pair, entry] : pairs_) {
    SKEIN_CHECK(pair.first < pair.second) << pair.first << " and itself";
  }
}

}  // namespace skein::plans
