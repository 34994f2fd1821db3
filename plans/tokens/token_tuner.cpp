#include "plans/tokens/token_tuner.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::plans {
namespace {

/// An even share is cut into at most so many for the slowest worker, which has that much less of it
/// to come to as it is slower than the fastest one.
constexpr double kFinestShare = 4;
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

std::vector<std::vector<uint64_t>> sizes_to_try(const TokenSearch& search,
                                                const std::vector<double>& speeds) {
  const size_t workers = speeds.size();
  const uint64_t share = largest_divisor(search.samples, (search.samples + workers - 1) / workers);
  const size_t levels = search.sub_models.size();
  const auto is_coarse = [&](uint64_t base) {
    return search.samples / base <= static_cast<uint64_t>(kTokensMax);
  };
  if (!search.tunes_sizes && is_coarse(share)) return {std::vector<uint64_t>(levels, share)};
  if (!search.tunes_sizes) return {};
  const auto [slowest, fastest] = std::minmax_element(speeds.begin(), speeds.end());
  const double parts_max = kFinestShare * *fastest / *slowest;
  std::vector<std::vector<uint64_t>> all;
  uint64_t last = 0;
  for (uint64_t part = 1; static_cast<double>(part) <= parts_max && last != 1; part *= 2) {
    const uint64_t base = largest_divisor(search.samples, share / part);
    if (base == std::exchange(last, base) || !is_coarse(base)) continue;
    std::vector<uint64_t> sizes = {base};
    add_sizes(sizes, levels, search.samples, all);
  }
  return all;
}

bool is_better(const TunedTokens& a, const TunedTokens& b) { return a.step_us < b.step_us; }

class Tuning {
 public:
  Tuning(const TokenSearch& search, const TokenSimulationOptions& options)
      : search_(search), options_(options) {}

  absl::StatusOr<TokenTuning> tune(const std::vector<std::vector<uint64_t>>& all_sizes) {
    const size_t levels = search_.sub_models.size(), workers = options_.speeds.size();
    // What sizes are good depends on whether the deepest level is reduced at all.
    std::vector<size_t> kinds = {workers};
    if (search_.limits_workers && levels > 1 && workers > 1) kinds.push_back(1);
    const bool has_second_phase = search_.limits_workers && levels > 1;
    const auto parts = static_cast<int64_t>(kinds.size() + (has_second_phase ? 1 : 0));
    std::vector<TunedTokens> best;
    int64_t part = 0;
    for (const size_t deepest : kinds) {
      const int64_t work_until = search_.work_max / parts * ++part;
      SKEIN_RETURN_IF_ERROR(try_sizes(affordable(all_sizes, work_until), deepest, best));
    }
    if (!has_second_phase) best.clear();
    if (tuning_.left_out > 0) std::stable_sort(best.begin(), best.end(), is_better);
    for (size_t n = 0; n < best.size(); ++n) {
      const int64_t left = search_.work_max - tuning_.work;
      const bool is_last = n + 1 == best.size();
      SKEIN_RETURN_IF_ERROR(try_fewer_workers(best[n], tuning_.work + (is_last ? left : left / 2)));
    }
    std::stable_sort(tuning_.tried.begin(), tuning_.tried.end(), is_better);
    return std::move(tuning_);
  }

 private:
  int64_t work_of(const std::vector<uint64_t>& sizes) const {
    return simulation_work({search_.samples, sizes}, options_);
  }

  /// Those that take least, as many as there is room for, at least one; in the order given.
  std::vector<std::vector<uint64_t>> affordable(const std::vector<std::vector<uint64_t>>& all_sizes,
                                                int64_t work_until) {
    std::vector<size_t> order(all_sizes.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return work_of(all_sizes[a]) < work_of(all_sizes[b]);
    });
    int64_t work = tuning_.work;
    size_t count = 0;
    for (; count < order.size(); ++count) {
      work += work_of(all_sizes[order[count]]);
      if (count > 0 && work > work_until) break;
    }
    tuning_.left_out += order.size() - count;
    order.resize(count);
    std::sort(order.begin(), order.end());
    std::vector<std::vector<uint64_t>> taken;
    for (size_t n : order) taken.push_back(all_sizes[n]);
    return taken;
  }

  absl::Status look_at(TokenPlan plan) {
    tuning_.work += simulation_work(plan.shape, options_);
    SKEIN_ASSIGN_OR_RETURN(const TokenSimulation simulated, simulate_tokens(plan, options_));
    tuning_.tried.push_back({std::move(plan), simulated.mean_step_us()});
    return absl::OkStatus();
  }

  /// With so many on the deepest level and everybody on the others. Adds those to `best` that are.
  absl::Status try_sizes(const std::vector<std::vector<uint64_t>>& sizes, size_t deepest,
                         std::vector<TunedTokens>& best) {
    LevelWorkers level_workers(search_.sub_models.size(),
                               fastest(options_.speeds, options_.speeds.size()));
    level_workers.back() = fastest(options_.speeds, deepest);
    std::vector<TunedTokens>& tried = tuning_.tried;
    const auto first = static_cast<ptrdiff_t>(tried.size());
    for (const std::vector<uint64_t>& each : sizes) {
      SKEIN_RETURN_IF_ERROR(
          look_at({search_.sub_models, {search_.samples, each}, level_workers, search_.policy}));
    }
    std::stable_sort(tried.begin() + first, tried.end(), is_better);
    const size_t kept = std::min(tried.size() - static_cast<size_t>(first), kKeptOfFirstPhase);
    best.insert(best.end(), tried.begin() + first,
                tried.begin() + first + static_cast<ptrdiff_t>(kept));
    return absl::OkStatus();
  }

  absl::Status try_fewer_workers(TunedTokens& now, int64_t work_until) {
    const int64_t work = simulation_work(now.plan.shape, options_);
    for (size_t level = search_.sub_models.size() - 1; level > 0; --level) {
      const TokenPlan before = now.plan;
      for (size_t count = options_.speeds.size() / 2; count > 0; count /= 2) {
        if (tuning_.work + work > work_until) {
          ++tuning_.left_out;
          continue;
        }
        TokenPlan fewer = before;
        fewer.level_workers[level] = fastest(options_.speeds, count);
        SKEIN_RETURN_IF_ERROR(look_at(std::move(fewer)));
        if (is_better(tuning_.tried.back(), now)) now = tuning_.tried.back();
      }
    }
    return absl::OkStatus();
  }

  const TokenSearch& search_;
  const TokenSimulationOptions& options_;
  TokenTuning tuning_;
};

}  // namespace

absl::StatusOr<TokenTuning> tune_tokens(const TokenSearch& search,
                                        const TokenSimulationOptions& options) {
  SKEIN_CHECK(!search.sub_models.empty() && !options.speeds.empty()) << search.samples;
  const size_t workers = options.speeds.size();
  const std::vector<std::vector<uint64_t>> all_sizes = sizes_to_try(search, options.speeds);
  if (all_sizes.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("training.global_batch_size = ", search.samples, ": no even part of it, for ",
                     workers, " workers, makes at most ", kTokensMax,
                     " tokens in a step; use a smaller one, or one with more divisors"));
  }
  return Tuning(search, options).tune(all_sizes);
}

}  // namespace skein::plans
