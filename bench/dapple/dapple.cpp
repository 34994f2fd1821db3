// Plans DAPPLE's models on DAPPLE's and on unlike clusters with every planner, simulates each plan,
// and prints one table. With `--profiles FOLDER`, models whose measured layers were published with
// PipeDream instead. Fails if ours is slower anywhere.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "dapple_claim.hpp"
#include "dapple_clusters.hpp"
#include "dapple_models.hpp"
#include "others_value.hpp"
#include "planner_cells.hpp"
#include "plans/planner/planner.hpp"
#include "published_profiles.hpp"

namespace skein::bench {
namespace {

/// [M] A published plan: devices of each stage. Source: DAPPLE, PPoPP'21, table of plans,
/// remembered and not read again.
struct PublishedPlan {
  const char* model;
  const char* cluster;
  const char* shape;
};
constexpr PublishedPlan kPublished[] = {
    {"ResNet-50", "A", "16"},     {"ResNet-50", "B", "16"},      {"ResNet-50", "C", "16"},
    {"VGG-19", "A", "16"},        {"VGG-19", "B", "16"},         {"VGG-19", "C", "15:1"},
    {"GNMT-16", "A", "8:8"},      {"GNMT-16", "B", "8:8"},       {"GNMT-16", "C", "straight"},
    {"BERT-48", "A", "8:8"},      {"BERT-48", "B", "straight"},  {"BERT-48", "C", "straight"},
    {"XLNet-36", "A", "8:8"},     {"XLNet-36", "B", "8:8"},      {"XLNet-36", "C", "straight"},
    {"AmoebaNet-36", "A", "8:8"}, {"AmoebaNet-36", "B", "11:5"}, {"AmoebaNet-36", "C", "11:5"},
};

/// What the cells of some clusters come to: times of others / ours.
struct Side {
  std::vector<Gains> of = std::vector<Gains>(plans::planners().size());
  Gains better_dapple;  // Over whichever of DAPPLE's two planners is better in the cell.
  int ties = 0;         // With that one.
};

/// What is printed below the table.
struct Summary {
  Side like, unlike;  // Clusters A, B and C; D, E and F.
  DappleClaim claim;  // Like devices only, as in the paper.
  OthersValue others;
  int published = 0;
  int dapple_agrees = 0;
  int ours_agrees = 0;
  int worse = 0;
};

void add_gains(const std::vector<CellResult>& results, Side& side, int& worse) {
  for (size_t i = 0; i < results.size(); ++i) {
    const double gain = results[i].step_us / results[0].step_us;
    side.of[i].add(gain);
    if (gain < 1 - kRounding) ++worse;
  }
  const double dapple_us =
      std::min(result_of("dapple", results).step_us, result_of("dapple_released", results).step_us);
  const double dapple_gain = dapple_us / results[0].step_us;
  side.better_dapple.add(dapple_gain);
  if (dapple_gain < 1 + kRounding) ++side.ties;
}

void print_cell(const DappleModel& model, const DappleCluster& cluster,
                const std::vector<CellResult>& results, Summary& summary) {
  std::printf("%-13s %-2s", model.name.c_str(), cluster.name.c_str());
  for (const CellResult& result : results) {
    if (std::isinf(result.step_us)) {
      std::printf(" %9s", "-");
    } else {
      std::printf(" %9.1f", result.step_us / 1000);
    }
  }
  std::printf("  %-24s %-12s", shape_of(results[0].plan, 24).c_str(),
              shape_of(result_of("dapple", results).plan, 12).c_str());
  for (const PublishedPlan& published : kPublished) {
    if (model.name != published.model || cluster.name != published.cluster) continue;
    ++summary.published;
    summary.ours_agrees += shape_of(results[0].plan) == published.shape ? 1 : 0;
    summary.dapple_agrees += shape_of(result_of("dapple", results).plan) == published.shape ? 1 : 0;
    std::printf(" %s", published.shape);
  }
  std::printf("\n");
  std::fflush(stdout);
}

void plan_model_on(const DappleModel& model, const DappleCluster& cluster, Summary& summary) {
  const plans::PlanRequest request =
      cell_request(model.profile, model.global_batch_rows, cluster.cluster);
  const std::vector<CellResult> results = plan_cell(request);
  print_cell(model, cluster, results, summary);
  const bool is_like = cluster.name <= "C";
  add_gains(results, is_like ? summary.like : summary.unlike, summary.worse);
  if (is_like) summary.claim.add(model.name + " on " + cluster.name, request);
  summary.others.add(request, results[0]);
}

void print_side(const char* where, const Side& side) {
  std::printf("\nStep time of others / ours, %s: geometric mean, largest, of cells\n", where);
  for (size_t i = 1; i < side.of.size(); ++i) print_gains(plans::planners()[i].name, side.of[i]);
  print_gains("better of DAPPLE", side.better_dapple);
  std::printf("  ... with which ours ties in %d\n", side.ties);
}

int run() {
  Summary summary;
  const std::vector<DappleCluster> clusters = dapple_clusters();
  for (const DappleCluster& cluster : clusters) {
    std::printf("%s  %s\n", cluster.name.c_str(), cluster.text.c_str());
  }
  std::printf("\nSimulated step, ms\n%-13s %-2s", "model", "");
  for (const plans::Planner& planner : plans::planners()) {
    std::printf(" %9.9s", planner.name);
  }
  std::printf("  %-24s %-12s %s\n", "devices of ours", "of dapple", "published [M]");
  for (const DappleModel& model : dapple_models()) {
    for (const DappleCluster& cluster : clusters) plan_model_on(model, cluster, summary);
  }
  print_side("like devices (A, B, C)", summary.like);
  summary.claim.print();
  print_side("unlike devices (D, E, F)", summary.unlike);
  summary.others.print();
  std::printf(
      "\nNothing here is a real run: every step is simulated, on layers written by hand from "
      "published totals\n(bench/planner_cells.py has real runs, --profiles FOLDER measured "
      "layers). No seed, no spread: same cell, same plan\n"
      "[M]: DAPPLE, PPoPP'21, table of plans, remembered and not read again\n"
      "Shape as published [M]: dapple %d, ours %d of %d\n",
      summary.dapple_agrees, summary.ours_agrees, summary.published);
  std::printf(
      "Cells where another planner is faster than ours: %d (none by construction: ours simulates "
      "the others' plans, too, with the simulator that judges here)\n",
      summary.worse);
  return summary.worse == 0 ? 0 : 1;
}

}  // namespace
}  // namespace skein::bench

int main(int argc, char** argv) {
  if (argc == 1) return skein::bench::run();
  if ((argc == 3 || argc == 4) && std::string(argv[1]) == "--profiles") {
    const int devices = argc == 4 ? std::atoi(argv[3]) : 64;
    return skein::bench::judge_published_profiles(argv[2], devices);
  }
  std::fprintf(stderr, "usage: dapple [--profiles FOLDER [DEVICES]]\n");
  return 2;
}
