#include "plans/coordinator/peer_failures.hpp"

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

std::optional<std::string> PeerFailures::overdue(
    uint64_t now_us, const std::function<bool(WorkerId)>& is_silent) const {
  const Failure* first = nullptr;
  for (const auto& [who, failure] : failures_) {
    if (now_us < failure.due_us || (who.second.value != 0 && is_silent(who.second))) continue;
    if (first == nullptr || failure.due_us < first->due_us) first = &failure;
  }
  if (first == nullptr) return std::nullopt;
  return first->reason;
}

}  // namespace skein::plans
