#include "plans/elastic/hold_back.hpp"

#include <algorithm>

#include "plans/base/units.hpp"

namespace skein::plans {
namespace {

constexpr int kDoublingsMax = 6;                // 2^6 s, a minute.
constexpr uint64_t kTrustUs = 600 * kSecondUs;  // Without a loss.
/// New processes get new numbers: more than come back within the time in which they are trusted.
constexpr size_t kWorkersMax = 4096;

}  // namespace

void HoldBack::on_lost(WorkerId worker, uint64_t now_us) {
  if (!losses_.contains(worker) && losses_.size() == kWorkersMax) {
    losses_.erase(std::min_element(
        losses_.begin(), losses_.end(),
        [](const auto& a, const auto& b) { return a.second.last_us < b.second.last_us; }));
  }
  Losses& losses = losses_[worker];
  if (losses.count > 0 && now_us > losses.last_us + kTrustUs) losses.count = 0;
  ++losses.count;
  losses.last_us = now_us;
}

uint64_t HoldBack::eligible_us(WorkerId worker, uint64_t now_us) const {
  const auto found = losses_.find(worker);
  if (found == losses_.end() || found->second.count < 2) return now_us;
  const int doublings = std::min(found->second.count - 2, kDoublingsMax);
  return now_us + (kSecondUs << doublings);
}

}  // namespace skein::plans
