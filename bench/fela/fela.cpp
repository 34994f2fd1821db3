// Fela's comparison in simulated time: Skein's tokens, and Fela with each of its policies, beside
// data parallelism, pipelines and a hybrid.
//   fela [--profile FILE] [--quick]
//   fela [--profile FILE] --plan SAMPLES    what `bench/tokens.py --fela` trains in real processes:
//   a line for each sub-model, "level LAYERS SAMPLES WORKERS FORWARD_US BACKWARD_US" of one of its
//   tokens, and one for the scenarios, "step US" of data parallelism
// Eight like workers at 10 Gbit/s. A layer takes c0 max(b, threshold) for b rows. Without a file it
// is VGG-19, its times in proportion to multiply-adds; with one (docs/profile.md, one number of
// rows) the times measured there. Both besides with convolutions of a quarter of the work.
// Thresholds are from memory of the paper: 16 rows for the first half of the convolutions, 64 for
// the others, 2,048 for layers that have more weights than outputs of 64 rows; swept by a quarter
// and four. H3: in each step one worker in turn sleeps for two steps of data parallelism, H4: each,
// with probability 0.1, for six, before its work (straggler models of the paper, from memory).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/fela/fela_baselines.hpp"
#include "cli/config/profile_file.hpp"
#include "plans/planner/planner.hpp"
#include "plans/tokens/sub_models.hpp"
#include "plans/tokens/token_tuner.hpp"

namespace skein::bench {
namespace {

using plans::Profile;

constexpr double kRequestUs = 200;
constexpr int64_t kMeasuredRows = 64;

/// 16 convolutions and 3 fully connected layers (Simonyan, Zisserman, ICLR'15, configuration E, 224
/// x 224), in float32; times of 64 rows, F a third, at 4 TFLOP/s.
Profile vgg_19() {
  Profile profile;
  profile.source = "written by hand";
  profile.rows = {kMeasuredRows};
  const auto add = [&](std::string name, double macs, double parameters, double outputs) {
    plans::LayerProfile& layer = profile.layers.emplace_back();
    const double forward_us = 2 * macs * kMeasuredRows / 4e12 * 1e6;
    layer.name = std::move(name);
    layer.at = {{forward_us, forward_us, forward_us}};
    layer.parameter_bytes = static_cast<int64_t>(4 * parameters);
    layer.activation_row_bytes = static_cast<int64_t>(4 * outputs);
    layer.stash_row_bytes = 2 * layer.activation_row_bytes;
  };
  const struct {
    int convolutions;
    double side, channels, inputs;
  } groups[] = {
      {2, 224, 64, 3}, {2, 112, 128, 64}, {4, 56, 256, 128}, {4, 28, 512, 256}, {4, 14, 512, 512}};
  for (const auto& group : groups) {
    for (int n = 0; n < group.convolutions; ++n) {
      const double inputs = n == 0 ? group.inputs : group.channels;
      const bool is_pooled = n + 1 == group.convolutions;
      const double area = group.side * group.side;
      add(absl::StrCat("conv", profile.layers.size()), area * 9 * inputs * group.channels,
          9 * inputs * group.channels, area * group.channels / (is_pooled ? 4 : 1));
    }
  }
  for (const auto& [inputs, outputs] : std::initializer_list<std::pair<double, double>>{
           {25088, 4096}, {4096, 4096}, {4096, 1000}}) {
    add(absl::StrCat("fc", profile.layers.size()), inputs * outputs, inputs * outputs, outputs);
  }
  return profile;
}

/// More weights than 64 rows of what goes in and comes out.
bool is_fully_connected(const Profile& profile, size_t n) {
  const int64_t in = n == 0 ? 0 : profile.layers[n - 1].activation_row_bytes;
  const int64_t out = profile.layers[n].activation_row_bytes;
  return profile.layers[n].parameter_bytes > kMeasuredRows * std::max(in, out);
}

std::vector<int64_t> thresholds_of(const Profile& profile, double scale) {
  std::vector<int64_t> thresholds;
  size_t convolutions = 0;
  while (convolutions < profile.layers.size() && !is_fully_connected(profile, convolutions)) {
    ++convolutions;
  }
  bool is_behind = false;  // What follows a fully connected layer belongs to it.
  for (size_t n = 0; n < profile.layers.size(); ++n) {
    is_behind = is_behind || is_fully_connected(profile, n);
    const double rows = is_behind ? 2048 : n < convolutions / 2 ? 16 : 64;
    thresholds.push_back(std::max<int64_t>(1, std::lround(rows * scale)));
  }
  return thresholds;
}

/// c0 max(b, threshold), so that what was measured with 64 rows holds.
Profile with_thresholds(Profile profile, const std::vector<int64_t>& thresholds) {
  std::vector<int64_t> rows = thresholds;
  rows.push_back(1);
  rows.push_back(2 * *std::max_element(thresholds.begin(), thresholds.end()));
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  for (size_t n = 0; n < profile.layers.size(); ++n) {
    const plans::LayerTimes measured = profile.layers[n].at.front();
    const auto flat = static_cast<double>(thresholds[n]);
    const double saturated = std::max<double>(kMeasuredRows, flat);
    profile.layers[n].at.clear();
    for (int64_t each : rows) {
      const double scale = std::max(static_cast<double>(each), flat) / saturated;
      profile.layers[n].at.push_back({measured.forward_us * scale,
                                      measured.backward_input_us * scale,
                                      measured.backward_weight_us * scale});
    }
  }
  profile.rows = std::move(rows);
  return profile;
}

struct Cell {
  std::string name;
  Profile profile;
  std::vector<int64_t> thresholds;
  int64_t samples = 0;
  FelaCluster cluster;
};

/// Pipelines of the named planner, the best number of micro-batches; infinite if it has none.
double planned_us(const Cell& cell, const char* planner) {
  plans::PlanRequest request;
  request.profile = cell.profile;
  for (uint32_t n = 0; n < cell.cluster.workers; ++n) {
    const plans::LinkSpeed card{cell.cluster.bytes_per_second, cell.cluster.latency_us / 2};
    request.cluster.hosts.push_back({absl::StrCat("h", n), {1e12, 0}, card});
    request.cluster.devices.push_back({absl::StrCat("d", n), static_cast<int32_t>(n)});
  }
  request.global_batch_rows = cell.samples;
  request.simulation.steps = static_cast<int32_t>(cell.cluster.steps);
  request.simulation.scenario = cell.cluster.scenario;
  request.simulation.bucketed_reduction = true;
  request.simulation.keeps_records = false;
  double best_us = std::numeric_limits<double>::infinity();
  for (int64_t count = 1; count <= 32 && cell.samples % count == 0; count *= 2) {
    request.microbatch_rows = {cell.samples / count};
    for (const plans::Planner& each : plans::planners()) {
      if (std::string(each.name) != planner) continue;
      const auto plan = each.make_plan(request);
      if (!plan.ok()) continue;
      const auto simulated =
          plans::simulate(plan->plan, request.profile, request.cluster, request.simulation);
      if (simulated.ok()) best_us = std::min(best_us, simulated->step_us);
    }
  }
  return best_us;
}

/// The first one is Skein's training mode, the others are Fela as it is remembered.
struct Variant {
  const char* name;
  plans::TokenPolicy policy;
  bool tunes_sizes = true, limits_workers = true, follows_training_mode = false;
};
const std::vector<Variant> kVariants = {
    {"tokens", {}, true, true, true}, {"Fela", {}},
    {"no ADS", {false, true}},        {"no HF", {true, false}},
    {"no CTD", {}, true, false},      {"untuned", {}, false, true}};

/// Tuned where nothing disturbs, then run in the scenario.
plans::TunedTokens tokens_of(const Cell& cell, const Variant& variant) {
  plans::TokenSimulationOptions options;
  options.profile = cell.profile;
  options.speeds.assign(cell.cluster.workers, 1);
  options.bytes_per_second = cell.cluster.bytes_per_second;
  options.latency_us = cell.cluster.latency_us;
  options.request_us = kRequestUs;
  options.follows_training_mode = variant.follows_training_mode;
  options.steps = 1;
  const plans::TokenSearch search{plans::bin_sub_models(cell.thresholds, 3),
                                  static_cast<uint64_t>(cell.samples), variant.policy,
                                  variant.tunes_sizes, variant.limits_workers};
  plans::TunedTokens best = plans::tune_tokens(search, options)->tried.front();
  options.scenario = cell.cluster.scenario;
  options.steps = cell.cluster.steps;
  best.step_us = plans::simulate_tokens(best.plan, options)->mean_step_us();
  return best;
}

std::string text_of(const plans::TokenPlan& plan) {
  std::string text;
  for (size_t level = 0; level < plan.sub_models.size(); ++level) {
    absl::StrAppend(&text, level == 0 ? "" : " | ", plan.sub_models[level].begin, "-",
                    plan.sub_models[level].end - 1, ": ", plan.shape.samples_of_token[level], " x",
                    plan.level_workers[level].size());
  }
  return text;
}

Cell cell_of(const Profile& profile, double threshold_scale, int64_t samples) {
  Cell cell;
  cell.thresholds = thresholds_of(profile, threshold_scale);
  cell.profile = with_thresholds(profile, cell.thresholds);
  cell.samples = samples;
  return cell;
}

void print_plan(const Cell& cell) {
  const plans::TokenPlan plan = tokens_of(cell, kVariants.front()).plan;
  for (size_t level = 0; level < plan.sub_models.size(); ++level) {
    const plans::LayerRange& layers = plan.sub_models[level];
    const uint64_t rows = plan.shape.samples_of_token[level];
    const plans::LayerTimes times =
        plans::range_times(cell.profile, layers, static_cast<int64_t>(rows));
    std::printf("level %d %d %zu %.1f %.1f\n", static_cast<int>(layers.end - layers.begin),
                static_cast<int>(rows), plan.level_workers[level].size(), times.forward_us,
                times.backward_us());
  }
  std::printf("step %.1f\n", data_parallel_us(cell.profile, cell.samples, cell.cluster));
}

struct Tally {
  int cells = 0, below = 0;
  double worst = 1e9, best_data = 0, best_model = 0, best_hybrid = 0, best_own = 0;
};

void print(const Cell& cell, Tally& tally) {
  const double data = data_parallel_us(cell.profile, cell.samples, cell.cluster);
  const double model = planned_us(cell, "straight"), own = planned_us(cell, "skein");
  const double hybrid = hybrid_us(cell.profile, cell.samples, cell.cluster);
  std::printf("%-26s %8.1f %8.1f %8.1f %8.1f |", cell.name.c_str(), data / 1e3, model / 1e3,
              hybrid / 1e3, own / 1e3);
  plans::TunedTokens tokens;
  for (const Variant& variant : kVariants) {
    const plans::TunedTokens tuned = tokens_of(cell, variant);
    if (&variant == &kVariants.front()) tokens = tuned;
    std::printf(" %8.1f", tuned.step_us / 1e3);
  }
  const double us = tokens.step_us;
  std::printf(" | %5.2f %6.2f %5.2f %5.2f | %s\n", data / us, model / us, hybrid / us, own / us,
              text_of(tokens.plan).c_str());
  const double against = std::min({data, model, hybrid}) / us;
  ++tally.cells;
  tally.below += against < 0.98 ? 1 : 0;
  tally.worst = std::min(tally.worst, against);
  tally.best_data = std::max(tally.best_data, data / us);
  tally.best_model = std::max(tally.best_model, model / us);
  tally.best_hybrid = std::max(tally.best_hybrid, hybrid / us);
  tally.best_own = std::max(tally.best_own, own / us);
}

int run(int argc, char** argv) {
  Profile vgg = vgg_19();
  bool is_quick = false;
  int64_t planned_samples = 0;
  for (int n = 1; n < argc; ++n) {
    if (std::string(argv[n]) == "--quick") is_quick = true;
    if (std::string(argv[n]) == "--plan" && n + 1 < argc) planned_samples = std::atoll(argv[n + 1]);
    if (std::string(argv[n]) != "--profile" || n + 1 == argc) continue;
    auto loaded = cli::load_profile(argv[n + 1]);
    if (!loaded.ok()) {
      std::fprintf(stderr, "%s\n", std::string(loaded.status().message()).c_str());
      return 1;
    }
    vgg = *std::move(loaded);
  }
  if (planned_samples > 0) {
    print_plan(cell_of(vgg, 1, planned_samples));
    return 0;
  }
  Profile heavy = vgg;
  for (size_t n = 0; n < heavy.layers.size(); ++n) {
    if (is_fully_connected(heavy, n)) continue;
    for (plans::LayerTimes& at : heavy.layers[n].at) {
      at.forward_us /= 4, at.backward_input_us /= 4, at.backward_weight_us /= 4;
    }
  }
  std::printf(
      "milliseconds a step, simulated; then how many times as fast Skein's tokens are; then their "
      "sub-models: samples of a token, workers\n%-26s %8s %8s %8s %8s |",
      "", "data", "model", "hybrid", "skein");
  for (const Variant& variant : kVariants) std::printf(" %8s", variant.name);
  std::printf(" | %5s %6s %5s %5s |\n", "data", "model", "hyb.", "skein");
  Tally tally;
  for (const auto& [name, profile] : {std::pair{"vgg", &vgg}, std::pair{"fc-heavy", &heavy}}) {
    for (double scale : is_quick ? std::vector<double>{1} : std::vector<double>{0.25, 1, 4}) {
      for (int64_t samples :
           is_quick ? std::vector<int64_t>{128} : std::vector<int64_t>{64, 128, 256, 512, 1024}) {
        Cell cell = cell_of(*profile, scale, samples);
        const double step_us = data_parallel_us(cell.profile, samples, cell.cluster);
        for (const char* scenario : {"H0", "H3", "H4"}) {
          const std::string kind = scenario;
          const double sleep_us = (kind == "H3" ? 2 : 6) * step_us;
          const std::string text =
              kind == "H0" ? kind
                           : absl::StrCat(kind, " sleep=", sleep_us,
                                          kind == "H4" ? " probability=0.1 seed=1" : "");
          cell.cluster.scenario = plans::parse_scenario(text).value();
          cell.name = absl::StrCat(name, " ", samples, " x", scale, " ", scenario);
          print(cell, tally);
        }
      }
    }
  }
  std::printf(
      "%d cells; at most %.2f times as fast as data, %.2f as model, %.2f as hybrid, %.2f as "
      "skein's plan; at worst %.2f times the best of the first three, below 0.98 in %d\n",
      tally.cells, tally.best_data, tally.best_model, tally.best_hybrid, tally.best_own,
      tally.worst, tally.below);
  return 0;
}

}  // namespace
}  // namespace skein::bench

int main(int argc, char** argv) { return skein::bench::run(argc, argv); }
