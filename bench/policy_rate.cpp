// Updates a second of pipeline replicas under a policy, as the simulator says. Prints one number.
//   policy_rate POLICY PIPELINES STAGES FORWARD_US BACKWARD_US UPDATE_US LATENCY_US
//               ROUND_STEPS GLOBAL_US ROUNDS SCENARIO
// A step is an update of each pipeline replica. LATENCY_US: for each member of a group. Of so many
// rounds the first one does not count. SCENARIO: as `skein simulate --scenario` reads it.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "plans/job/job_spec.hpp"
#include "plans/simulator/policy_rounds.hpp"
#include "plans/simulator/policy_simulation.hpp"
#include "plans/sync/policy_kind.hpp"

int main(int argc, char** argv) {
  using namespace skein::plans;  // NOLINT: a program of one screen.
  if (argc != 12) {
    std::fprintf(stderr, "the first lines of bench/policy_rate.cpp say what to give\n");
    return 2;
  }
  const auto number = [&](int place) { return std::strtod(argv[place], nullptr); };
  JobSpec job;
  job.sync.policy = argv[1];
  PolicySimulationOptions options;
  options.layout = {static_cast<uint32_t>(number(2)), static_cast<uint32_t>(number(3))};
  options.forward_us.assign(options.layout.stages, number(4));
  options.backward_us.assign(options.layout.stages, number(5));
  options.update_us = number(6);
  options.latency_us = number(7);
  const auto scenario = parse_scenario(argv[11]);
  const auto kind = parse_policy_kind(job.sync.policy);
  if (!scenario.ok() || !kind.ok()) {
    const absl::Status why = scenario.ok() ? kind.status() : scenario.status();
    std::fprintf(stderr, "%s\n", std::string(why.message()).c_str());
    return 2;
  }
  options.scenario = {.name = argv[11], .slowdown = *scenario};
  job.training.global_batch_size = options.layout.pipelines;
  job.sync.round_steps = static_cast<int64_t>(number(8));
  job.training.steps = job.sync.round_steps;
  job.validation.batches = 0;
  job.checkpoint.enable = false;
  const double updating_share = set_rounds(job, number(9), number(10), options);
  const auto policy = make_policy(job, options.layout);
  std::printf("%.6f\n", updating_share * simulate_policy(*policy, options).steps_per_second);
  return 0;
}
