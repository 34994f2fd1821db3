// Plans DAPPLE's models on DAPPLE's and on unlike clusters with every planner, simulates each plan,
// and prints one table. Every planner that takes the rows of a micro-batch as given is asked for
// each number of rows and judged by its best plan. Fails if ours is slower anywhere.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "dapple_clusters.hpp"
#include "dapple_models.hpp"
#include "plans/planner/planner.hpp"

namespace skein::bench {
namespace {

using plans::Plan;

/// Sums in another order differ by less.
constexpr double kRounding = 1e-9;

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

/// A planner's best plan for a cell.
struct Result {
  double step_us = std::numeric_limits<double>::infinity();
  Plan plan;
};

/// "8:8", "16" for data parallelism, "straight" for many stages of one device.
std::string shape_of(const Plan& plan) {
  if (plan.stages.empty()) return "-";
  const bool all_single = std::all_of(plan.stages.begin(), plan.stages.end(),
                                      [](const auto& stage) { return stage.replicas.size() == 1; });
  if (all_single && plan.stages.size() > 2) return "straight";
  std::string shape;
  for (const plans::StagePlan& stage : plan.stages) {
    if (!shape.empty()) shape += ":";
    shape += std::to_string(stage.replicas.size());
  }
  return shape;
}

plans::PlanRequest request_for(const DappleModel& model, const DappleCluster& cluster) {
  plans::PlanRequest request;
  request.profile = model.profile;
  request.cluster = cluster.cluster;
  request.global_batch_rows = model.global_batch_rows;
  for (int64_t rows = model.profile.rows.front(); rows <= model.global_batch_rows; rows *= 2) {
    request.microbatch_rows.push_back(rows);
  }
  request.schedules = {plans::ScheduleKind::k1F1B, plans::ScheduleKind::k1F1BPB};
  request.simulation.bucketed_reduction = true;  // The strongest form of every planner.
  request.simulation.keeps_records = false;
  return request;
}

void keep_better(const plans::Planner& planner, const plans::PlanRequest& request, Result& result) {
  const auto made = planner.make_plan(request);
  if (!made.ok()) return;
  const auto simulation =
      plans::simulate(made->plan, request.profile, request.cluster, request.simulation);
  if (!simulation.ok() || simulation->step_us >= result.step_us) return;
  result = {simulation->step_us, made->plan};
}

/// By planner, in the order of `planners()`.
std::vector<Result> plan_cell(const plans::PlanRequest& request) {
  std::vector<Result> results;
  for (const plans::Planner& planner : plans::planners()) {
    Result& result = results.emplace_back();
    if (results.size() == 1) {  // Ours chooses the rows.
      keep_better(planner, request, result);
      continue;
    }
    plans::PlanRequest asked = request;
    for (const int64_t rows : request.microbatch_rows) {
      asked.microbatch_rows = {rows};
      keep_better(planner, asked, result);
    }
  }
  return results;
}

/// Gains of ours, collected over the cells where a planner has a plan.
struct Gains {
  int cells = 0;
  double log_sum = 0;
  double largest = 0;
  void add(double gain) {
    if (!std::isfinite(gain)) return;
    ++cells;
    log_sum += std::log(gain);
    largest = std::max(largest, gain);
  }
};

/// What the cells of some clusters come to.
struct Side {
  std::vector<Gains> of = std::vector<Gains>(plans::planners().size());
  Gains better_dapple;  // Over whichever of DAPPLE's two planners is better in the cell.
  int ties = 0;         // With that one.
  Gains pipedream;      // PipeDream's steps over those of the better one of DAPPLE's.
};

/// What is printed below the table.
struct Summary {
  Side like, unlike;  // Clusters A, B and C; D, E and F.
  int published = 0;
  int dapple_agrees = 0;
  int ours_agrees = 0;
  int worse = 0;
};

size_t place_of(const std::string& planner) {
  const auto& all = plans::planners();
  return static_cast<size_t>(
      std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.name == planner; }) -
      all.begin());
}

void print_cell(const DappleModel& model, const DappleCluster& cluster,
                const std::vector<Result>& results, Summary& summary) {
  Side& side = cluster.name <= "C" ? summary.like : summary.unlike;
  std::printf("%-13s %-2s", model.name.c_str(), cluster.name.c_str());
  for (size_t i = 0; i < results.size(); ++i) {
    if (std::isinf(results[i].step_us)) {
      std::printf(" %9s", "-");
    } else {
      std::printf(" %9.1f", results[i].step_us / 1000);
    }
    const double gain = results[i].step_us / results[0].step_us;
    side.of[i].add(gain);
    if (gain < 1 - kRounding) ++summary.worse;
  }
  const auto step_us = [&](const char* planner) { return results[place_of(planner)].step_us; };
  const double dapple_us = std::min(step_us("dapple"), step_us("dapple_released"));
  const double dapple_gain = dapple_us / results[0].step_us;
  side.better_dapple.add(dapple_gain);
  if (dapple_gain < 1 + kRounding) ++side.ties;
  // Without a plan of DAPPLE's the ratio is 0, which has no logarithm.
  if (std::isfinite(dapple_us)) side.pipedream.add(step_us("pipedream") / dapple_us);
  std::string best_shape = shape_of(results[0].plan);
  if (best_shape.size() > 24) best_shape = best_shape.substr(0, 22) + "..";
  std::string dapple_shape = shape_of(results[1].plan);
  if (dapple_shape.size() > 12) dapple_shape = dapple_shape.substr(0, 10) + "..";
  std::printf("  %-24s %-12s", best_shape.c_str(), dapple_shape.c_str());
  for (const PublishedPlan& published : kPublished) {
    if (model.name != published.model || cluster.name != published.cluster) continue;
    ++summary.published;
    summary.ours_agrees += shape_of(results[0].plan) == published.shape ? 1 : 0;
    summary.dapple_agrees += shape_of(results[1].plan) == published.shape ? 1 : 0;
    std::printf(" %s", published.shape);
  }
  std::printf("\n");
  std::fflush(stdout);
}

void print_gain(const char* name, const Gains& gains) {
  std::printf("  %-16s %5.2fx %6.2fx %4d\n", name,
              std::exp(gains.log_sum / std::max(1, gains.cells)), gains.largest, gains.cells);
}

void print_gains(const char* where, const Side& side) {
  std::printf("\nStep time of others / ours, %s: geometric mean, largest, of cells\n", where);
  for (size_t i = 1; i < side.of.size(); ++i) print_gain(plans::planners()[i].name, side.of[i]);
  print_gain("better of DAPPLE", side.better_dapple);
  std::printf("  ... with which ours ties in %d\n", side.ties);
  std::printf(
      "Step time of PipeDream's plans / those of the better of DAPPLE's, the same "
      "(DAPPLE states up to 3.23x [R, abstract])\n");
  print_gain("pipedream", side.pipedream);
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
    for (const DappleCluster& cluster : clusters) {
      print_cell(model, cluster, plan_cell(request_for(model, cluster)), summary);
    }
  }
  print_gains("like devices (A, B, C)", summary.like);
  print_gains("unlike devices (D, E, F)", summary.unlike);
  std::printf(
      "\n[M]: DAPPLE, PPoPP'21, table of plans, remembered and not read again\n"
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

int main() { return skein::bench::run(); }
