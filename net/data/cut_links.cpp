#include "net/data/cut_links.hpp"

#include <algorithm>

namespace skein::net {
namespace {

/// Longer than any run, and far from the end of the clock.
constexpr double kSecondsMax = 1e9;

}  // namespace

void CutLinks::cut(const std::string& address, double seconds, uint64_t now_us) {
  std::optional<uint64_t>& until_us = until_us_[address];
  until_us.reset();
  if (seconds > 0) until_us = now_us + static_cast<uint64_t>(std::min(seconds, kSecondsMax) * 1e6);
}

bool CutLinks::is_cut(const std::string& address, uint64_t now_us) const {
  const auto found = until_us_.find(address);
  return found != until_us_.end() && (!found->second || now_us < *found->second);
}

}  // namespace skein::net
