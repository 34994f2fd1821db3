// What synchronisation policies make of pipeline replicas of unlike speeds, simulated: throughput
// beside all-reduce, group sizes, staleness, waiting, and steps per pipeline replica. Five seeds,
// with their spread. Each table says what it is of and whose the figures are that it did not
// measure.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/policy_simulation/figure_nine.hpp"
#include "bench/policy_simulation/policy_table.hpp"

namespace skein::bench {
namespace {

constexpr uint64_t kSeeds = 5;
constexpr double kSeconds = 300;

struct Spread {
  double mean = 0, deviation = 0;
};

/// Mean and standard deviation of values of the seeds 1 to `kSeeds`.
Spread spread_of(const std::vector<double>& each) {
  Spread spread{std::accumulate(each.begin(), each.end(), 0.0) / kSeeds, 0};
  for (const double value : each) spread.deviation += (value - spread.mean) * (value - spread.mean);
  spread.deviation = std::sqrt(spread.deviation / (kSeeds - 1));
  return spread;
}

Spread relative_over_seeds(const TableRow& row, const NamedPolicy& policy) {
  std::vector<double> each;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    each.push_back(relative_throughput(row, policy, seed, kSeconds));
  }
  return spread_of(each);
}

std::vector<plans::PolicySimulation> simulations(const TableRow& row, const NamedPolicy& policy) {
  std::vector<plans::PolicySimulation> each;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    each.push_back(simulate(row, policy, seed, kSeconds));
  }
  return each;
}

template <class Value>
Spread spread_of(const std::vector<plans::PolicySimulation>& results, Value value) {
  std::vector<double> each;
  for (const plans::PolicySimulation& result : results) each.push_back(value(result));
  return spread_of(each);
}

/// What holds of all tables.
void print_ground() {
  std::printf(
      "All tables: simulated by this run, %g s after %g s to warm up, seeds 1 to %llu; a+-b is the "
      "mean and the standard deviation over the seeds, +-0 where nothing is drawn.\n"
      "What is simulated is our form of each policy, not its authors' program. NxS: N pipeline "
      "replicas of S stages. These constants are ours: undisturbed, each stage computes %g ms "
      "forward and %g ms backward; a group of n exchanges for %g ms x 2 (n - 1) / n; a server "
      "takes %g ms / N for each member, and a member at least %g ms x (N - 1) / N.\n"
      "dynamic h=0.1: before each forward and backward, with probability 0.1, a sleep of %g s, as "
      "SDPipe's artefact emulates it [R]. one 4x slow: one pipeline replica, for good.\n"
      "Marks of what this run did not measure: [R] read in the paper named or its artefact; [S] an "
      "earlier simulation of ours, made once and thrown away. Speeds that SDPipe's authors "
      "measured are not known to us, so none is here.\n",
      kSeconds, kWarmUpUs / 1e6, static_cast<unsigned long long>(kSeeds), kForwardUs / 1e3,
      kBackwardUs / 1e3, kExchangeUs / 1e3, 2 * kExchangeUs / 1e3, 2 * kExchangeUs / 1e3,
      kSleepUs / 1e6);
}

void print_artefact_policies() {
  const std::vector<NamedPolicy> policies = artefact_policies();
  std::printf(
      "\nThroughput / all-reduce of our forms of the policies of SDPipe's artefact: this run; in "
      "brackets [S], of 5 seeds with deviations of at most 0.02\n%-20s",
      "");
  for (const NamedPolicy& policy : policies) std::printf(" %17s", policy.name.c_str());
  std::printf("\n");
  for (const TableRow& row : table_rows()) {
    std::printf("%-20s", row.name().c_str());
    for (size_t p = 0; p < policies.size(); ++p) {
      const Spread spread = relative_over_seeds(row, policies[p]);
      std::printf("  %4.2f+-%4.2f (%4.2f)", spread.mean, spread.deviation, row.earlier[p]);
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

void print_others() {
  std::printf("\nThroughput / all-reduce of the other policies: this run\n%-12s", "");
  for (const TableRow& row : table_rows()) std::printf(" %19s", row.name().c_str());
  std::printf("\n");
  for (const NamedPolicy& policy : other_policies()) {
    std::printf("%-12s", policy.name.c_str());
    for (const TableRow& row : table_rows()) {
      const Spread spread = relative_over_seeds(row, policy);
      std::printf("          %4.2f+-%4.2f", spread.mean, spread.deviation);
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

/// "6" or, where seeds differ, "6-7".
std::string over_seeds(const std::vector<std::array<uint64_t, 5>>& seeds, size_t quarter) {
  uint64_t least = seeds[0][quarter], most = least;
  for (const auto& sizes : seeds) {
    least = std::min(least, sizes[quarter]);
    most = std::max(most, sizes[quarter]);
  }
  return least == most ? absl::StrCat(least) : absl::StrCat(least, "-", most);
}

struct FigureNineForm {
  const char* name;
  std::function<NamedPolicy(uint64_t period)> make;
};
const FigureNineForm kFigureNineForms[] = {
    {"plans/sync/sdpipe", [](uint64_t period) { return sdpipe_artefact(period); }},
    {"missing edges",
     [](uint64_t period) { return figure_nine_scheduler(period, HoldRule::kMissingEdges); }},
    {"everybody",
     [](uint64_t period) { return figure_nine_scheduler(period, HoldRule::kEverybody); }}};

void print_sizes_of(const FigureNineForm& form, SizeOf counted, const std::string& slowdown,
                    const std::function<plans::PipelineScenario(uint64_t seed)>& scenario) {
  std::printf("%-15s %-27s %-9s", slowdown.c_str(), form.name,
              counted == SizeOf::kUpdates ? "updates" : "averages");
  uint64_t off_by = 0;
  for (const FigureNineBox& box : kFigureNine) {
    std::vector<std::array<uint64_t, 5>> seeds;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      seeds.push_back(size_quantiles(
          simulate(kFigureNineLayout, scenario(seed), form.make(box.period), seed, kSeconds),
          counted));
      off_by = std::max(off_by, quartiles_off_by(seeds.back(), box));
    }
    std::printf(" |");
    for (size_t quarter = 0; quarter < 5; ++quarter) {
      std::printf(" %3s", over_seeds(seeds, quarter).c_str());
    }
  }
  std::printf(" | %llu\n", static_cast<unsigned long long>(off_by));
  std::fflush(stdout);
}

void print_figure_nine() {
  std::printf(
      "\nGroup sizes of SDPipe's scheduler, 8 pipeline replicas of one stage: least, lower "
      "quartile, median, upper quartile, most; seeds 1 to %llu, a-b where they differ. off: how "
      "far a quartile or the median is from the figure at most, over P and the seeds.\n"
      "[R]: SDPipe, PVLDB 16(9), 2023, appendix, figure 9, read off a plot, so about right; that "
      "P=1 equals all-reduce is stated. Not known to us, so varied here:\n"
      "  slowdown: none, or before each forward and backward, with probability 0.1, a sleep of h "
      "seconds, as the artefact emulates it [R]; or one pipeline replica 4 times slower\n"
      "  held: for whom a group waits after P*N updates: for members that supply the missing "
      "edges, as the artefact's code does with up to 8 pipeline replicas [R]; or for everybody, "
      "which its code for more comes to [R]. plans/sync/sdpipe, in its form after the "
      "artefact, waits for missing edges, and counts updates anew from each hold\n"
      "  sizes of: updates, each with the size of its group, a local step with 1; or averages, "
      "groups of two or more\n"
      "  jitter: undisturbed pieces take equally long to the microsecond, or each ready signal "
      "comes "
      "later by up to so much\n"
      "  window: 1 ms at first, between 0.01 and 10 ms by the groups so far, as the artefact's "
      "code "
      "[R]; or, where it says window 1 ms, that\n",
      static_cast<unsigned long long>(kSeeds));
  std::printf("%-15s %-27s %-9s | %-19s | %-19s | %-19s | off\n", "slowdown,jitter", "held",
              "sizes of", "P=1", "P=2", "P=5");
  std::printf("%-53s", "figure 9 [R]");
  for (const FigureNineBox& box : kFigureNine) {
    std::printf(" |");
    for (const uint64_t size : box.sizes)
      std::printf(" %3llu", static_cast<unsigned long long>(size));
    std::printf("   ?");
  }
  std::printf(" |\n");
  for (const double sleep_s : {0.0, 0.05, 0.1, 0.2}) {
    for (const FigureNineForm& form : kFigureNineForms) {
      for (const SizeOf counted : {SizeOf::kUpdates, SizeOf::kAverages}) {
        print_sizes_of(
            form, counted, sleep_s > 0 ? absl::StrCat("h=", sleep_s) : "none", [&](uint64_t seed) {
              return sleep_s > 0
                         ? plans::sleeping_pieces(sleep_s * 1e6, kForwardUs + kBackwardUs, seed)
                         : plans::homogeneous();
            });
      }
    }
  }
  for (const uint64_t jitter_us : {10, 100, 500}) {
    for (const WindowRule window : {WindowRule::kAdapts, WindowRule::kStays}) {
      for (const HoldRule rule : {HoldRule::kMissingEdges, HoldRule::kEverybody}) {
        const std::string name =
            absl::StrCat(rule == HoldRule::kEverybody ? "everybody" : "missing edges",
                         window == WindowRule::kStays ? ", window 1 ms" : "");
        const FigureNineForm form{name.c_str(), [rule, window, jitter_us](uint64_t period) {
                                    return with_jitter(figure_nine_scheduler(period, rule, window),
                                                       jitter_us);
                                  }};
        print_sizes_of(form, SizeOf::kAverages,
                       absl::StrCat("h=0.1, ", static_cast<double>(jitter_us) / 1e3, " ms"),
                       [](uint64_t seed) {
                         return plans::sleeping_pieces(kSleepUs, kForwardUs + kBackwardUs, seed);
                       });
      }
    }
  }
  for (const FigureNineForm& form : kFigureNineForms) {
    for (const SizeOf counted : {SizeOf::kUpdates, SizeOf::kAverages}) {
      print_sizes_of(form, counted, "one 4x slow",
                     [](uint64_t) { return plans::slow_pipelines(kFigureNineLayout, 1, 4); });
    }
  }
}

void print_details(const TableRow& row) {
  std::printf(
      "\n%s, this run: steps/s, mean size of a group, waiting and averaging share of the time; "
      "least and most of the seeds: the most stale group, in steps or, at a server, updates, and "
      "the steps of the pipeline replicas with fewest and with most\n",
      row.name().c_str());
  std::vector<NamedPolicy> policies = {allreduce()};
  for (NamedPolicy& policy : artefact_policies()) policies.push_back(std::move(policy));
  for (NamedPolicy& policy : other_policies()) policies.push_back(std::move(policy));
  for (const NamedPolicy& policy : policies) {
    const std::vector<plans::PolicySimulation> results = simulations(row, policy);
    const Spread speed = spread_of(results, [](const auto& r) { return r.steps_per_second; });
    const Spread size = spread_of(results, [](const auto& r) { return r.size_mean(); });
    const Spread waiting = spread_of(results, [](const auto& r) { return r.waiting_share; });
    const Spread averaging = spread_of(results, [](const auto& r) { return r.averaging_share; });
    std::vector<uint64_t> stale, steps;
    bool is_stuck = false;
    for (const plans::PolicySimulation& result : results) {
      stale.push_back(result.staleness.rbegin()->first);
      steps.insert(steps.end(), result.steps_by_pipeline.begin(), result.steps_by_pipeline.end());
      is_stuck |= result.is_stuck;
    }
    const auto [least_stale, most_stale] = std::minmax_element(stale.begin(), stale.end());
    const auto [fewest, most] = std::minmax_element(steps.begin(), steps.end());
    std::printf("%-12s %6.1f+-%-4.1f %4.2f+-%4.2f %4.2f+-%4.2f %4.2f+-%4.2f  %11s  %6llu %6llu%s\n",
                policy.name.c_str(), speed.mean, speed.deviation, size.mean, size.deviation,
                waiting.mean, waiting.deviation, averaging.mean, averaging.deviation,
                absl::StrCat(*least_stale, "-", *most_stale).c_str(),
                static_cast<unsigned long long>(*fewest), static_cast<unsigned long long>(*most),
                is_stuck ? "  STUCK" : "");
  }
}

/// All-reduce has fixed members, so it ends with the first death of H7.
void print_suite(const plans::PipelineLayout& layout) {
  std::printf(
      "\n%ux%u, steps/s in the suite H0-H7 (docs/heterogeneity.md), this run; all-reduce ends with "
      "the first death of H7\n%-24s",
      layout.pipelines, layout.stages, "");
  std::vector<NamedPolicy> policies = {allreduce(), sdpipe_artefact(5), adpsgd_wait_free()};
  for (NamedPolicy& policy : other_policies()) policies.push_back(std::move(policy));
  for (const NamedPolicy& policy : policies) std::printf(" %11s", policy.name.c_str());
  std::printf("\n");
  std::vector<std::vector<plans::PipelineScenario>> suites;  // [seeds]
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) suites.push_back(suite(layout, kSeconds, seed));
  for (size_t s = 0; s < suites[0].size(); ++s) {
    std::printf("%-24s", suites[0][s].name.c_str());
    for (const NamedPolicy& policy : policies) {
      std::vector<double> each;
      for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
        each.push_back(
            simulate(layout, suites[seed - 1][s], policy, seed, kSeconds).steps_per_second);
      }
      const Spread spread = spread_of(each);
      std::printf(" %6.1f+-%3.1f", spread.mean, spread.deviation);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace skein::bench

int main() {
  skein::bench::print_ground();
  skein::bench::print_artefact_policies();
  skein::bench::print_others();
  skein::bench::print_figure_nine();
  for (const skein::bench::TableRow& row : skein::bench::table_rows()) {
    if (row.disturbance != skein::bench::Disturbance::kNone) skein::bench::print_details(row);
  }
  skein::bench::print_suite({8, 1});
  skein::bench::print_suite({4, 4});
  return 0;
}
