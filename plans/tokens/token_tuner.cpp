#include "plans/tokens/token_tuner.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::plans {
namespace {

constexpr uint64_t kFinestShare = 4;     // A worker's even share is cut into at most so many.
constexpr size_t kKeptOfFirstPhase = 3;  // The best of either kind go into the second.

/// The fastest, ascending by id.
std::vector<WorkerId> fastest(const std::vector<double>& speeds, size_t count) {
  std::vector<size_t> order(speeds.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return speeds[a] > speeds[b]; });
  std::vector<WorkerId> workers;
  for (size_t n = 0; n < count; ++n) workers.push_back({static_cast<uint32_t>(order[n]) + 1});
  std::sort(workers.begin(), workers.end());
  return workers;
}

/// The largest that divides `samples`, at most `most`.
uint64_t largest_divisor(uint64_t samples, uint64_t most) {
  uint64_t divisor = std::clamp<uint64_t>(most, 1, samples);
  while (samples % divisor != 0) --divisor;
  return divisor;
}

/// The smallest multiple of `size`, at least twice as large, that divides `samples`; `samples` has
/// none.
uint64_t next_size(uint64_t size, uint64_t samples) {
  uint64_t factor = 2;
  while (samples / size % factor != 0) ++factor;
  return size * factor;
}

/// All sizes of the levels from `sizes.size()` on, each that of the level before or a multiple that
/// makes no more inputs than may be named.
void add_sizes(std::vector<uint64_t>& sizes, size_t levels, uint64_t samples,
               std::vector<std::vector<uint64_t>>& all) {
  if (sizes.size() == levels) {
    all.push_back(sizes);
    return;
  }
  const uint64_t before = sizes.back();
  for (uint64_t size = before;; size = next_size(size, samples)) {
    if (size / before > static_cast<uint64_t>(kTokenInputsMax)) return;
    sizes.push_back(size);
    add_sizes(sizes, levels, samples, all);
    sizes.pop_back();
    if (size >= samples) return;
  }
}

std::vector<std::vector<uint64_t>> sizes_to_try(const TokenSearch& search, size_t workers) {
  const uint64_t share = largest_divisor(search.samples, (search.samples + workers - 1) / workers);
  const size_t levels = search.sub_models.size();
  const auto is_coarse = [&](uint64_t base) {
    return search.samples / base <= static_cast<uint64_t>(kTokensMax);
  };
  if (!search.tunes_sizes && is_coarse(share)) return {std::vector<uint64_t>(levels, share)};
  if (!search.tunes_sizes) return {};
  std::vector<std::vector<uint64_t>> all;
  uint64_t last = 0;
  for (uint64_t part = 1; part <= kFinestShare; part *= 2) {
    const uint64_t base = largest_divisor(search.samples, share / part);
    if (base == std::exchange(last, base) || !is_coarse(base)) continue;
    std::vector<uint64_t> sizes = {base};
    add_sizes(sizes, levels, search.samples, all);
  }
  return all;
}

bool is_better(const TunedTokens& a, const TunedTokens& b) { return a.step_us < b.step_us; }

}  // namespace

absl::StatusOr<std::vector<TunedTokens>> tune_tokens(const TokenSearch& search,
                                                     const TokenSimulationOptions& options) {
  SKEIN_CHECK(!search.sub_models.empty() && !options.speeds.empty()) << search.samples;
  const size_t levels = search.sub_models.size(), workers = options.speeds.size();
  const std::vector<std::vector<uint64_t>> all_sizes = sizes_to_try(search, workers);
  if (all_sizes.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("training.global_batch_size = ", search.samples, ": no even part of it, for ",
                     workers, " workers, makes at most ", kTokensMax,
                     " tokens in a step; use a smaller one, or one with more divisors"));
  }
  std::vector<TunedTokens> tried;
  const auto look_at = [&](TokenPlan plan) -> absl::Status {
    SKEIN_ASSIGN_OR_RETURN(const TokenSimulation simulated, simulate_tokens(plan, options));
    tried.push_back({std::move(plan), simulated.mean_step_us()});
    return absl::OkStatus();
  };
  std::vector<TunedTokens> best;
  // What sizes are good depends on whether the deepest level is reduced at all.
  for (const size_t deepest : {workers, size_t{1}}) {
    if (deepest < workers && (!search.limits_workers || levels == 1)) break;
    LevelWorkers level_workers(levels, fastest(options.speeds, workers));
    level_workers.back() = fastest(options.speeds, deepest);
    const auto first = static_cast<ptrdiff_t>(tried.size());
    for (const std::vector<uint64_t>& sizes : all_sizes) {
      SKEIN_RETURN_IF_ERROR(
          look_at({search.sub_models, {search.samples, sizes}, level_workers, search.policy}));
    }
    std::stable_sort(tried.begin() + first, tried.end(), is_better);
    const size_t kept = std::min(tried.size() - static_cast<size_t>(first), kKeptOfFirstPhase);
    best.insert(best.end(), tried.begin() + first,
                tried.begin() + first + static_cast<ptrdiff_t>(kept));
  }
  if (!search.limits_workers) best.clear();
  for (TunedTokens& now : best) {
    for (size_t level = levels - 1; level > 0; --level) {
      const TokenPlan before = now.plan;
      for (size_t count = workers / 2; count > 0; count /= 2) {
        TokenPlan fewer = before;
        fewer.level_workers[level] = fastest(options.speeds, count);
        SKEIN_RETURN_IF_ERROR(look_at(std::move(fewer)));
        if (is_better(tried.back(), now)) now = tried.back();
      }
    }
  }
  std::stable_sort(tried.begin(), tried.end(), is_better);
  return tried;
}

}  // namespace skein::plans
