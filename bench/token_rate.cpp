// The time of a step that is trained by tokens, as the simulator says. Prints milliseconds.
//   token_rate WORKERS SAMPLES SAMPLES_OF_TOKEN BLOCKS FORWARD_US BACKWARD_US WARM_UP STEPS
//   SCENARIO
// SAMPLES_OF_TOKEN: "1,4", one for each sub-model; these have as many layers each. FORWARD_US and
// BACKWARD_US: of a block, for a sample. Steps up to WARM_UP are not counted. SCENARIO: as `skein
// simulate --scenario` reads it.
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "plans/tokens/token_simulation.hpp"

namespace skein::plans {
namespace {

// A control message or a small tensor between two processes of one machine, from guesses; they are
// thousandths of what is computed.
constexpr double kLatencyUs = 100;
constexpr double kBytesPerSecond = 1e9;

/// Blocks between an embedding and a head that cost nothing.
Profile sleeping_blocks(int64_t blocks, double forward_us, double backward_us) {
  Profile profile;
  profile.source = "written by hand";
  profile.rows = {1};
  for (int64_t layer = 0; layer < blocks + 2; ++layer) {
    const bool is_block = layer > 0 && layer <= blocks;
    LayerProfile each;
    each.at = {is_block ? LayerTimes{forward_us, backward_us, 0} : LayerTimes{}};
    each.activation_row_bytes = 1;
    each.parameter_bytes = 1;
    profile.layers.push_back(std::move(each));
  }
  return profile;
}

int run(char** words) {
  const auto number = [&](int place) { return std::strtod(words[place], nullptr); };
  const auto workers = static_cast<uint32_t>(number(1));
  TokenPlan plan;
  plan.shape.samples = static_cast<uint64_t>(number(2));
  for (const auto samples : absl::StrSplit(words[3], ',')) {
    uint64_t parsed = 0;
    if (!absl::SimpleAtoi(samples, &parsed)) return 2;
    plan.shape.samples_of_token.push_back(parsed);
  }
  TokenSimulationOptions options;
  options.profile = sleeping_blocks(static_cast<int64_t>(number(4)), number(5), number(6));
  const auto layers = static_cast<int64_t>(options.profile.layers.size());
  std::vector<WorkerId> all(workers);
  for (uint32_t worker = 0; worker < workers; ++worker) all[worker] = WorkerId{worker + 1};
  const auto levels = static_cast<int64_t>(plan.shape.samples_of_token.size());
  for (int64_t level = 0; level < levels; ++level) {
    plan.sub_models.push_back({level * layers / levels, (level + 1) * layers / levels});
    plan.level_workers.push_back(all);
  }
  const auto warm_up = static_cast<size_t>(number(7));
  const auto scenario = parse_scenario(words[9]);
  if (!scenario.ok()) return 2;
  options.scenario = *scenario;
  options.follows_training_mode = true;
  options.steps = static_cast<uint32_t>(warm_up) + static_cast<uint32_t>(number(8));
  options.speeds.assign(workers, 1.0);
  options.bytes_per_second = kBytesPerSecond;
  options.latency_us = kLatencyUs;
  options.request_us = 2 * kLatencyUs;
  const auto found = simulate_tokens(plan, options);
  if (!found.ok()) {
    std::fprintf(stderr, "%s\n", std::string(found.status().message()).c_str());
    return 1;
  }
  const auto first = found->step_us.begin() + static_cast<std::ptrdiff_t>(warm_up);
  const double counted_us = std::accumulate(first, found->step_us.end(), 0.0);
  std::printf("%.3f\n", counted_us / static_cast<double>(found->step_us.end() - first) * 1e-3);
  return 0;
}

}  // namespace
}  // namespace skein::plans

int main(int argc, char** argv) {
  const int result = argc == 10 ? skein::plans::run(argv) : 2;
  if (result == 2)
    std::fprintf(stderr, "the first lines of bench/token_rate.cpp say what to give\n");
  return result;
}
