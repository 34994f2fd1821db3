// The time of a step that is trained by tokens, as the simulator says. Prints milliseconds.
//   token_rate WORKERS SAMPLES SAMPLES_OF_TOKEN BLOCKS FORWARD_US BACKWARD_US WARM_UP STEPS
//   SCENARIO [LEVEL_WORKERS]
// SAMPLES_OF_TOKEN: "1,4", one for each sub-model. BLOCKS: "4", these have as many layers each; or
// "3,1", as many blocks each. FORWARD_US and BACKWARD_US: of a block, for a sample. Steps up to
// WARM_UP are not counted. SCENARIO: as `skein simulate --scenario` reads it. LEVEL_WORKERS: "8,1",
// how many may train each, those with the smallest numbers; left out: all.
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

/// Numbers with commas between them; empty if one of them is none.
std::vector<uint64_t> numbers_of(const char* word) {
  std::vector<uint64_t> numbers;
  for (const auto each : absl::StrSplit(word, ',')) {
    if (!absl::SimpleAtoi(each, &numbers.emplace_back())) return {};
  }
  return numbers;
}

/// The embedding goes with the first sub-model, and the head with the last one.
std::vector<LayerRange> sub_models_of(const std::vector<uint64_t>& blocks, size_t levels) {
  const auto sum = std::accumulate(blocks.begin(), blocks.end(), uint64_t{0});
  const auto layers = static_cast<int64_t>(sum) + 2, count = static_cast<int64_t>(levels);
  std::vector<LayerRange> ranges;
  for (int64_t level = 0, end = 1; level < count; ++level) {
    const int64_t begin = ranges.empty() ? 0 : ranges.back().end;
    if (blocks.size() == levels) {
      end += static_cast<int64_t>(blocks[static_cast<size_t>(level)]);
    } else {
      end = (level + 1) * layers / count;
    }
    ranges.push_back({begin, level + 1 == count ? layers : end});
  }
  return ranges;
}

int run(char** words) {
  const auto number = [&](int place) { return std::strtod(words[place], nullptr); };
  const auto workers = static_cast<uint32_t>(number(1));
  TokenPlan plan;
  plan.shape.samples = static_cast<uint64_t>(number(2));
  plan.shape.samples_of_token = numbers_of(words[3]);
  const std::vector<uint64_t> blocks = numbers_of(words[4]);
  const size_t levels = plan.shape.samples_of_token.size();
  if (levels == 0 || (blocks.size() != 1 && blocks.size() != levels)) return 2;
  plan.sub_models = sub_models_of(blocks, levels);
  TokenSimulationOptions options;
  options.profile = sleeping_blocks(plan.sub_models.back().end - 2, number(5), number(6));
  std::vector<uint64_t> level_workers(levels, workers);
  if (words[10] != nullptr) level_workers = numbers_of(words[10]);
  if (level_workers.size() != levels) return 2;
  for (const uint64_t count : level_workers) {
    std::vector<WorkerId>& own = plan.level_workers.emplace_back();
    for (uint32_t id = 1; id <= count; ++id) own.push_back({id});
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
  const int result = argc == 10 || argc == 11 ? skein::plans::run(argv) : 2;
  if (result == 2)
    std::fprintf(stderr, "the first lines of bench/token_rate.cpp say what to give\n");
  return result;
}
