#include "others_value.hpp"

#include <algorithm>
#include <cstdio>
#include <ctime>

namespace skein::bench {
namespace {

/// Longer steps than this share of the other plan's count as slower.
constexpr double kSlower = 1e-3;

struct TimedStep {
  double step_us = 0;
  double cpu_s = 0;
};

TimedStep time_ours(const plans::PlanRequest& request) {
  TimedStep timed;
  const std::clock_t begin = std::clock();
  const auto made = plans::planners().front().make_plan(request);
  timed.cpu_s = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  if (!made.ok()) return timed;
  const auto simulation =
      plans::simulate(made->plan, request.profile, request.cluster, request.simulation);
  if (simulation.ok()) timed.step_us = simulation->step_us;
  return timed;
}

void print_seconds(const char* name, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  double sum = 0;
  for (const double each : seconds) sum += each;
  std::printf("  %-16s %6.2f %6.2f %6.2f %7.1f\n", name, seconds[seconds.size() / 2],
              seconds.front(), seconds.back(), sum);
}

}  // namespace

void OthersValue::add(const plans::PlanRequest& request, const CellResult& ours) {
  plans::PlanRequest asked = request;
  with_s_.push_back(time_ours(asked).cpu_s);
  asked.asks_others = false;
  const TimedStep alone = time_ours(asked);
  without_s_.push_back(alone.cpu_s);
  if (alone.step_us <= 0) {
    ++without_a_plan_;
    return;
  }
  steps_.add(alone.step_us / ours.step_us);
  if (alone.step_us > ours.step_us * (1 + kSlower)) ++slower_;
}

void OthersValue::print() const {
  if (with_s_.empty()) return;
  std::printf("\nWhat the others' plans buy ours (parallelism.plans_of_others)\n");
  std::printf("Step without them / with them: geometric mean, largest, of cells\n");
  print_gains("ours", steps_);
  std::printf("  slower by more than %.1f%% in %d, without a plan in %d\n", 100 * kSlower, slower_,
              without_a_plan_);
  std::printf("CPU seconds of ours: median, least, most, all cells\n");
  print_seconds("with them", with_s_);
  print_seconds("without them", without_s_);
}

}  // namespace skein::bench
