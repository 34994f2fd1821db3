#include "planner_cells.hpp"

#include <algorithm>
#include <cstdio>

namespace skein::bench {
namespace {

using plans::Plan;

void keep_better(const plans::Planner& planner, const plans::PlanRequest& request,
                 CellResult& result) {
  const auto made = planner.make_plan(request);
  if (!made.ok()) return;
  const auto simulation =
      plans::simulate(made->plan, request.profile, request.cluster, request.simulation);
  if (!simulation.ok() || simulation->step_us >= result.step_us) return;
  result = {simulation->step_us, made->plan};
}

}  // namespace

plans::PlanRequest cell_request(const plans::Profile& profile, int64_t global_batch_rows,
                                const plans::ClusterSpec& cluster) {
  plans::PlanRequest request;
  request.profile = profile;
  request.cluster = cluster;
  request.global_batch_rows = global_batch_rows;
  for (int64_t rows = profile.rows.front(); rows <= global_batch_rows; rows *= 2) {
    request.microbatch_rows.push_back(rows);
  }
  request.schedules = {plans::ScheduleKind::k1F1B, plans::ScheduleKind::k1F1BPB};
  request.simulation.bucketed_reduction = true;
  request.simulation.keeps_records = false;
  return request;
}

CellResult plan_with(const plans::Planner& planner, const plans::PlanRequest& request) {
  CellResult result;
  if (planner.chooses_rows) {
    keep_better(planner, request, result);
    return result;
  }
  plans::PlanRequest asked = request;
  for (const int64_t rows : request.microbatch_rows) {
    asked.microbatch_rows = {rows};
    keep_better(planner, asked, result);
  }
  return result;
}

std::vector<CellResult> plan_cell(const plans::PlanRequest& request) {
  std::vector<CellResult> results;
  for (const plans::Planner& planner : plans::planners()) {
    results.push_back(plan_with(planner, request));
  }
  return results;
}

const plans::Planner& planner_named(const std::string& name) {
  const auto& all = plans::planners();
  return *std::find_if(all.begin(), all.end(),
                       [&](const plans::Planner& each) { return each.name == name; });
}

const CellResult& result_of(const std::string& planner, const std::vector<CellResult>& results) {
  return results[static_cast<size_t>(&planner_named(planner) - plans::planners().data())];
}

std::string shape_of(const Plan& plan, size_t length) {
  if (plan.stages.empty()) return "-";
  const bool all_single = std::all_of(plan.stages.begin(), plan.stages.end(),
                                      [](const auto& stage) { return stage.replicas.size() == 1; });
  if (all_single && plan.stages.size() > 2) return "straight";
  std::string shape;
  for (const plans::StagePlan& stage : plan.stages) {
    if (!shape.empty()) shape += ":";
    shape += std::to_string(stage.replicas.size());
  }
  return shape.size() > length ? shape.substr(0, length - 2) + ".." : shape;
}

void print_gains(const char* name, const Gains& gains) {
  std::printf("  %-16s %5.2fx %6.2fx %4d\n", name, gains.mean(), gains.largest, gains.cells);
}

}  // namespace skein::bench
