#include "plans/sync/staleness.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

/// Older than this counts as this old, so that no weight is rounded to 0.
constexpr uint64_t kLagMax = 64;

}  // namespace

std::vector<double> staleness_weights(std::span<const uint64_t> versions, double decay) {
  SKEIN_CHECK(!versions.empty() && decay > 0 && decay < 1) << versions.size() << " " << decay;
  const uint64_t newest = *std::max_element(versions.begin(), versions.end());
  const auto lag_of = [&](uint64_t version) { return std::min(newest - version, kLagMax); };
  std::map<uint64_t, double> sharers;  // By lag.
  for (const uint64_t version : versions) sharers[lag_of(version)] += 1;
  double sum = 0;
  for (const auto& [lag, count] : sharers) sum += std::pow(decay, static_cast<double>(lag));
  std::vector<double> weights;
  for (const uint64_t version : versions) {
    const uint64_t lag = lag_of(version);
    weights.push_back(std::pow(decay, static_cast<double>(lag)) / sum / sharers[lag]);
  }
  return weights;
}

}  // namespace skein::plans
