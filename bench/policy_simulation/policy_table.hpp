#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plans/simulator/policy_simulation.hpp"
#include "plans/sync/group_scheduler.hpp"

// Figures that are not measured by the run that prints them carry a mark: [R] is read in the paper
// or its artefact, [M] remembered from the paper and not read again, [S] from a simulation of our
// own that was made once and thrown away, [D] derived from others by arithmetic.
namespace skein::bench {

/// What is the same in all tables, and ours; see `simulate`.
inline constexpr double kForwardUs = 20000, kBackwardUs = 40000, kExchangeUs = 20000;
inline constexpr double kSleepUs = 100000;
inline constexpr double kWarmUpUs = 20e6;

/// A policy of the table and how it is made.
struct NamedPolicy {
  std::string name;
  std::function<std::unique_ptr<plans::GroupScheduler>(const plans::PipelineLayout&, uint64_t seed)>
      make;
  bool hides_reductions = true;  // In `bench/policies`: gradients are reduced beside the backward.
};

NamedPolicy allreduce();
NamedPolicy sdpipe_artefact(uint64_t period);
NamedPolicy sdpipe_ours(uint64_t period);
NamedPolicy adpsgd_artefact();
NamedPolicy adpsgd_wait_free();
/// Grouped servers with so many even groups, pipeline replica 0 in the first one; "groups 4", or
/// "flat groups 4" without servers of groups.
NamedPolicy fixed_groups(int32_t count, bool has_group_servers = true);
/// Grouped servers that follow the stragglers: "progressive", or "flat progressive".
NamedPolicy progressive_groups(bool has_group_servers = true);

/// Our forms of the policies that SDPipe's artefact has, all-reduce left out. The artefact never
/// ran here.
std::vector<NamedPolicy> artefact_policies();
/// The rest: overlapped averages, SDPipe with our windows and turns, P-Reduce, Prague, and the
/// servers.
std::vector<NamedPolicy> other_policies();

enum class Disturbance { kNone, kDynamic, kOneSlow };

/// A row of the table.
struct TableRow {
  plans::PipelineLayout layout;
  Disturbance disturbance = Disturbance::kNone;
  /// [S] The throughput relative to all-reduce of `artefact_policies`, by an earlier simulation of
  /// ours: 5 seeds, deviation at most 0.02. They are not the authors', whose speeds are not known
  /// to us.
  std::vector<double> earlier;
  std::string name() const;
};
std::vector<TableRow> table_rows();

/// Simulated, after 20 s to warm up, with these constants: 20 ms forward, 40 ms backward,
/// 20 ms x 2 (n - 1) / n for a group, which are ours; dynamic: h = 0.1 s. A server is sharded over
/// the pipeline replicas' workers, so it serves a member in 40 ms / N, and push and pull take 40 ms
/// x (N - 1) / N.
plans::PolicySimulation simulate(const TableRow& row, const NamedPolicy& policy, uint64_t seed,
                                 double seconds);

/// What of that does not depend on the policy, in any scenario.
plans::PolicySimulationOptions simulation_options(const plans::PipelineLayout& layout,
                                                  const plans::PipelineScenario& scenario);

/// The same in any scenario.
plans::PolicySimulation simulate(const plans::PipelineLayout& layout,
                                 const plans::PipelineScenario& scenario, const NamedPolicy& policy,
                                 uint64_t seed, double seconds);
/// The suite H0-H7, sleeps in proportion to a step of these constants.
std::vector<plans::PipelineScenario> suite(const plans::PipelineLayout& layout, double seconds,
                                           uint64_t seed);

/// Throughput of the policy, relative to all-reduce with the same seed.
double relative_throughput(const TableRow& row, const NamedPolicy& policy, uint64_t seed,
                           double seconds);

}  // namespace skein::bench
