#include "plans/job/sample_mixture.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/job/sample_order.hpp"

namespace skein::plans {
namespace {

/// Another order than that of the windows of a source.
constexpr uint64_t kMixtureSeed = 0x6d69787475726521;

}  // namespace

absl::StatusOr<SampleMixture> SampleMixture::make(const std::vector<double>& weights,
                                                  uint64_t seed) {
  const bool fits = !weights.empty() && weights.size() <= kBlock &&
                    std::all_of(weights.begin(), weights.end(),
                                [](double weight) { return weight > 0 && std::isfinite(weight); });
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (!fits || !std::isfinite(sum)) {
    return absl::InvalidArgumentError("weights of sources must be above 0");
  }
  // Largest remainder: rounded down first, then those that lost most have one more.
  std::vector<uint64_t> shares;
  std::vector<std::pair<double, size_t>> lost;
  uint64_t given = 0;
  for (size_t n = 0; n < weights.size(); ++n) {
    const double exact = weights[n] / sum * static_cast<double>(kBlock);
    shares.push_back(static_cast<uint64_t>(exact));
    lost.emplace_back(static_cast<double>(shares.back()) - exact, n);
    given += shares.back();
  }
  std::sort(lost.begin(), lost.end());
  for (size_t n = 0; given < kBlock; ++n, ++given) ++shares[lost[n % lost.size()].second];
  SampleMixture mixture;
  std::vector<uint64_t> ends;
  uint64_t end = 0;
  for (size_t n = 0; n < shares.size(); ++n) {
    if (shares[n] == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("weight ", weights[n], " is less than one in ", kBlock, " of all weights"));
    }
    ends.push_back(end += shares[n]);
  }
  const SampleOrder order{seed ^ kMixtureSeed, kBlock};
  std::vector<uint64_t> taken(shares.size());
  for (uint64_t sample = 0; sample < kBlock; ++sample) {
    const auto found = std::upper_bound(ends.begin(), ends.end(), order.window(sample));
    const auto source = static_cast<size_t>(found - ends.begin());
    mixture.block_.push_back({source, taken[source]++});
  }
  mixture.shares_ = std::move(shares);
  return mixture;
}

}  // namespace skein::plans
