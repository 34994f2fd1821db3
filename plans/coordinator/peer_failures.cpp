#include "plans/coordinator/peer_failures.hpp"

#include <algorithm>

namespace skein::plans {
namespace {

/// Longer than it takes to hear of a closed connection on the same network.
constexpr uint64_t kPatienceUs = 400'000;

}  // namespace

bool PeerFailures::add(WorkerId worker, WorkerId peer, std::string reason, uint64_t now_us) {
  return failures_.try_emplace({worker, peer}, Failure{now_us + kPatienceUs, std::move(reason)})
      .second;
}

void PeerFailures::explain(WorkerId lost) {
  std::erase_if(failures_, [&](const auto& each) {
    return each.first.first == lost || each.first.second == lost;
  });
}

std::optional<std::string> PeerFailures::overdue(uint64_t now_us) const {
  const auto first = std::min_element(
      failures_.begin(), failures_.end(),
      [](const auto& a, const auto& b) { return a.second.due_us < b.second.due_us; });
  if (first == failures_.end() || now_us < first->second.due_us) return std::nullopt;
  return first->second.reason;
}

}  // namespace skein::plans
