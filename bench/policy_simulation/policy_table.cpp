#include "bench/policy_simulation/policy_table.hpp"

#include <utility>

#include "plans/sync/ad_psgd.hpp"
#include "plans/sync/allreduce.hpp"
#include "plans/sync/hetpipe.hpp"
#include "plans/sync/overlapped_average.hpp"
#include "plans/sync/paired_rounds.hpp"
#include "plans/sync/parameter_server.hpp"
#include "plans/sync/partial_reduce.hpp"
#include "plans/sync/prague.hpp"
#include "plans/sync/progressive_server.hpp"
#include "plans/sync/sdpipe.hpp"

namespace skein::bench {
namespace {

using plans::PipelineLayout;

/// A policy of `Policy(layout, arguments...)`.
template <class Policy, class... Arguments>
NamedPolicy named(std::string name, Arguments... arguments) {
  return {std::move(name), [arguments...](const PipelineLayout& layout, uint64_t) {
            return std::make_unique<Policy>(layout, arguments...);
          }};
}

NamedPolicy server(std::string name, plans::ServerMode mode, uint64_t bound = 0) {
  return {std::move(name), [mode, bound](const PipelineLayout& layout, uint64_t) {
            return plans::parameter_server(layout, {mode, bound});
          }};
}

}  // namespace

NamedPolicy allreduce() {
  return {"all-reduce", [](const PipelineLayout& layout, uint64_t) {
            return std::make_unique<plans::AllreducePolicy>(layout);
          }};
}

NamedPolicy sdpipe_artefact(uint64_t period) {
  return {"P=" + std::to_string(period), [period](const PipelineLayout& layout, uint64_t) {
            return std::make_unique<plans::SdpipePolicy>(
                layout, plans::sdpipe_artefact(layout.pipelines, period));
          }};
}

NamedPolicy sdpipe_ours(uint64_t period) {
  return named<plans::SdpipePolicy>("ours P=" + std::to_string(period),
                                    plans::SdpipeOptions{.period = period});
}

NamedPolicy adpsgd_artefact() {
  return {"AD pairs", [](const PipelineLayout& layout, uint64_t seed) {
            return std::make_unique<plans::PairedRoundsPolicy>(layout, seed);
          }};
}

NamedPolicy adpsgd_wait_free() {
  return {"AD free", [](const PipelineLayout& layout, uint64_t seed) {
            return std::make_unique<plans::AdPsgdPolicy>(layout, seed);
          }};
}

NamedPolicy fixed_groups(int32_t count, bool has_group_servers) {
  return {(has_group_servers ? "groups " : "flat groups ") + std::to_string(count),
          [count, has_group_servers](const PipelineLayout& layout, uint64_t) {
            // Pipeline replica 0, which may be slow, is in the first group.
            const std::vector<double> equal_us(layout.pipelines, 1);
            return std::make_unique<plans::GroupedServerPolicy>(
                layout, plans::group_by_speed(equal_us, count), has_group_servers);
          }};
}

NamedPolicy progressive_groups(bool has_group_servers) {
  return named<plans::ProgressiveServerPolicy>(
      has_group_servers ? "progressive" : "flat progressive",
      plans::ProgressiveServerOptions{.has_group_servers = has_group_servers});
}

std::vector<NamedPolicy> artefact_policies() {
  return {sdpipe_artefact(1),  sdpipe_artefact(2), sdpipe_artefact(5),
          sdpipe_artefact(10), adpsgd_artefact(),  adpsgd_wait_free()};
}

std::vector<NamedPolicy> other_policies() {
  using plans::ServerMode;
  return {
      named<plans::OverlappedAveragePolicy>("overlapped", plans::OverlappedAverageOptions{}),
      sdpipe_ours(2),
      sdpipe_ours(5),
      sdpipe_ours(10),
      named<plans::PartialReducePolicy>("P-Reduce 3", plans::PartialReduceOptions{}),
      {"Prague 4",
       [](const PipelineLayout& layout, uint64_t seed) {
         return std::make_unique<plans::PraguePolicy>(layout, plans::PragueOptions{.seed = seed});
       }},
      server("PS sync", ServerMode::kSynchronous),
      server("PS s=4", ServerMode::kBounded, 4),
      server("PS async", ServerMode::kAsynchronous),
      named<plans::HetPipePolicy>("HetPipe 4/1", plans::HetPipeOptions{.wave = 4, .distance = 1}),
      fixed_groups(2),
      fixed_groups(4),
      progressive_groups()};
}

std::string TableRow::name() const {
  const std::string shape = std::to_string(layout.pipelines) + "x" + std::to_string(layout.stages);
  if (disturbance == Disturbance::kNone) return shape + " homogeneous";
  return shape + (disturbance == Disturbance::kDynamic ? " dynamic h=0.1" : " one 4x slow");
}

std::vector<TableRow> table_rows() {
  return {{{8, 1}, Disturbance::kNone, {1.00, 1.01, 1.02, 1.02, 1.19, 1.19}},
          {{8, 1}, Disturbance::kDynamic, {1.00, 1.52, 1.70, 1.72, 1.32, 1.83}},
          {{8, 1}, Disturbance::kOneSlow, {1.01, 2.00, 2.62, 2.60, 1.07, 3.14}},
          {{4, 4}, Disturbance::kNone, {0.99, 1.05, 1.07, 1.04, 1.12, 1.12}},
          {{4, 4}, Disturbance::kDynamic, {1.08, 1.14, 1.35, 1.40, 1.12, 1.40}},
          {{4, 4}, Disturbance::kOneSlow, {1.66, 1.43, 1.60, 2.45, 1.04, 2.79}},
          {{8, 4}, Disturbance::kDynamic, {1.15, 1.24, 1.53, 1.55, 1.23, 1.59}},
          {{8, 4}, Disturbance::kOneSlow, {1.03, 1.52, 2.11, 2.44, 1.06, 3.13}}};
}

plans::PolicySimulation simulate(const TableRow& row, const NamedPolicy& policy, uint64_t seed,
                                 double seconds) {
  plans::PipelineScenario scenario = plans::homogeneous();
  if (row.disturbance == Disturbance::kDynamic) {
    scenario = plans::sleeping_pieces(kSleepUs, kForwardUs + kBackwardUs, seed);
  } else if (row.disturbance == Disturbance::kOneSlow) {
    scenario = plans::slow_pipelines(row.layout, 1, 4);
  }
  return simulate(row.layout, scenario, policy, seed, seconds);
}

plans::PolicySimulationOptions simulation_options(const PipelineLayout& layout,
                                                  const plans::PipelineScenario& scenario) {
  plans::PolicySimulationOptions options{.layout = layout, .scenario = scenario};
  options.forward_us.assign(layout.stages, kForwardUs);
  options.backward_us.assign(layout.stages, kBackwardUs);
  options.exchange_us = kExchangeUs;
  options.server_us = 2 * kExchangeUs / layout.pipelines;
  options.server_latency_us = 2 * kExchangeUs - options.server_us;
  return options;
}

plans::PolicySimulation simulate(const PipelineLayout& layout,
                                 const plans::PipelineScenario& scenario, const NamedPolicy& policy,
                                 uint64_t seed, double seconds) {
  plans::PolicySimulationOptions options = simulation_options(layout, scenario);
  options.warm_up_us = kWarmUpUs;
  options.duration_us = kWarmUpUs + seconds * 1e6;
  const auto scheduler = policy.make(layout, seed);
  return plans::simulate_policy(*scheduler, options);
}

std::vector<plans::PipelineScenario> suite(const PipelineLayout& layout, double seconds,
                                           uint64_t seed) {
  return plans::heterogeneity_suite(layout, kForwardUs + kBackwardUs, kWarmUpUs + seconds * 1e6,
                                    seed);
}

double relative_throughput(const TableRow& row, const NamedPolicy& policy, uint64_t seed,
                           double seconds) {
  return simulate(row, policy, seed, seconds).steps_per_second /
         simulate(row, allreduce(), seed, seconds).steps_per_second;
}

}  // namespace skein::bench
