// What synchronisation policies make of pipeline replicas of unlike speeds, simulated: throughput
// beside all-reduce, group sizes, staleness, waiting, and samples per pipeline replica. Five seeds,
// mean and standard deviation; beside the values of another simulation of the same artefact, so
// shape and rank are what should agree.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "bench/policy_simulation/policy_table.hpp"

namespace skein::bench {
namespace {

constexpr uint64_t kSeeds = 5;
constexpr double kSeconds = 300;

struct Spread {
  double mean = 0, deviation = 0;
};

Spread relative_over_seeds(const TableRow& row, const NamedPolicy& policy) {
  std::vector<double> each;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    each.push_back(relative_throughput(row, policy, seed, kSeconds));
  }
  Spread spread{std::accumulate(each.begin(), each.end(), 0.0) / kSeeds, 0};
  for (const double value : each) spread.deviation += (value - spread.mean) * (value - spread.mean);
  spread.deviation = std::sqrt(spread.deviation / (kSeeds - 1));
  return spread;
}

void print_artefact_policies() {
  const std::vector<NamedPolicy> policies = artefact_policies();
  std::printf("throughput / all-reduce: measured here +- deviation ([S]: an earlier simulation of ours)\n%-20s", "");
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
  std::printf("\nthroughput / all-reduce of the other policies\n%-12s", "");
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

/// SDPipe, PVLDB'23, figure 9: P=1 always 8; P=2 median 8, quartiles 6 and 8, least 3; P=5 median
/// 4, quartiles 3 and 6, least 2.
void print_sizes() {
  std::printf(
      "\ngroup sizes of updates at 8x1, least quartile median quartile most (SDPipe, appendix, "
      "figure 9: P=1 "
      "always 8;"
      " P=2 3 6 8 8 8; P=5 2 3 4 6 -)\n");
  for (const TableRow& row : table_rows()) {
    if (row.layout.stages > 1) continue;
    for (const uint64_t period : {1, 2, 5, 10}) {
      const plans::PolicySimulation result = simulate(row, sdpipe_artefact(period), 1, kSeconds);
      std::printf("%-20s P=%-3llu", row.name().c_str(), static_cast<unsigned long long>(period));
      for (const double q : {0.0, 0.25, 0.5, 0.75, 1.0}) {
        std::printf(" %llu", static_cast<unsigned long long>(result.size_quantile(q)));
      }
      std::printf("\n");
    }
  }
}

void print_details(const TableRow& row) {
  std::printf(
      "\n%s: steps/s, mean group, most stale, waiting and averaging share, steps of the "
      "pipeline replica with fewest and most\n",
      row.name().c_str());
  std::vector<NamedPolicy> policies = {allreduce()};
  for (NamedPolicy& policy : artefact_policies()) policies.push_back(std::move(policy));
  for (NamedPolicy& policy : other_policies()) policies.push_back(std::move(policy));
  for (const NamedPolicy& policy : policies) {
    const plans::PolicySimulation result = simulate(row, policy, 1, kSeconds);
    const auto [fewest, most] =
        std::minmax_element(result.steps_by_pipeline.begin(), result.steps_by_pipeline.end());
    std::printf("%-12s %7.1f %5.2f %6llu   %4.2f %4.2f  %6llu %6llu%s\n", policy.name.c_str(),
                result.steps_per_second, result.size_mean(),
                static_cast<unsigned long long>(result.staleness.rbegin()->first),
                result.waiting_share, result.averaging_share,
                static_cast<unsigned long long>(*fewest), static_cast<unsigned long long>(*most),
                result.is_stuck ? "  STUCK" : "");
  }
}

/// All-reduce has fixed members, so it ends with the first death of H7.
void print_suite(const plans::PipelineLayout& layout) {
  std::printf("\n%ux%u, steps/s in the suite H0-H7\n%-24s", layout.pipelines, layout.stages, "");
  std::vector<NamedPolicy> policies = {allreduce(), sdpipe_artefact(5), adpsgd_wait_free()};
  for (NamedPolicy& policy : other_policies()) policies.push_back(std::move(policy));
  for (const NamedPolicy& policy : policies) std::printf(" %11s", policy.name.c_str());
  std::printf("\n");
  for (const plans::PipelineScenario& scenario : suite(layout, kSeconds, 1)) {
    std::printf("%-24s", scenario.name.c_str());
    for (const NamedPolicy& policy : policies) {
      const plans::PolicySimulation result = simulate(layout, scenario, policy, 1, kSeconds);
      std::printf(" %11.1f", result.steps_per_second);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace skein::bench

int main() {
  skein::bench::print_artefact_policies();
  skein::bench::print_others();
  skein::bench::print_sizes();
  for (const skein::bench::TableRow& row : skein::bench::table_rows()) {
    if (row.disturbance != skein::bench::Disturbance::kNone) skein::bench::print_details(row);
  }
  skein::bench::print_suite({8, 1});
  skein::bench::print_suite({4, 4});
  return 0;
}
