#include "cli/report/plan_table.hpp"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/report/number_text.hpp"
#include "plans/plan/layout_plan.hpp"

namespace skein::cli {
namespace {

using Cells = std::vector<std::string>;

/// Columns as wide as their widest cell, two spaces between them.
std::string aligned(const std::vector<Cells>& lines) {
  std::vector<size_t> widths;
  for (const Cells& line : lines) {
    widths.resize(std::max(widths.size(), line.size()), 0);
    for (size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
  }
  std::string text;
  for (const Cells& line : lines) {
    std::string row;
    for (size_t c = 0; c < line.size(); ++c) {
      row += line[c];
      if (c + 1 < line.size()) row += std::string(widths[c] + 2 - line[c].size(), ' ');
    }
    absl::StrAppend(&text, row, "\n");
  }
  return text;
}

std::string memory_text(int64_t peak_bytes, int64_t capacity_bytes) {
  if (capacity_bytes <= 0) return bytes_text(peak_bytes);
  const double share = static_cast<double>(peak_bytes) / static_cast<double>(capacity_bytes);
  return absl::StrFormat("%s of %s (%.0f%%)", bytes_text(peak_bytes), bytes_text(capacity_bytes),
                         100 * share);
}

}  // namespace

std::string plan_table(const plans::Plan& plan, const plans::Simulation& simulation,
                       const plans::PlanRequest& request) {
  std::map<uint32_t, int64_t> peaks;
  for (const plans::SimulatedWorker& worker : simulation.workers) {
    peaks[worker.id.value] = worker.peak_bytes;
  }
  std::vector<Cells> lines = {
      {"stage", "layers", "worker", "device", "rows", "F", "B", "memory of the worker"}};
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const plans::StagePlan& stage = plan.stages[s];
    for (const plans::ReplicaPlan& replica : stage.replicas) {
      const bool first = replica.id == stage.replicas.front().id;
      const plans::ClusterDevice& device = request.cluster.devices[replica.worker.value - 1];
      const plans::LayerTimes times =
          plans::range_times(request.profile, stage.layers, replica.rows.count);
      const double backward = times.backward_us() + (plan.recompute ? times.forward_us : 0);
      lines.push_back({first ? absl::StrCat(s) : "",
                       first ? range_text(stage.layers.begin, stage.layers.end) : "",
                       absl::StrCat("w", replica.worker.value), device.name,
                       range_text(replica.rows.begin, replica.rows.end()),
                       time_text(times.forward_us / device.speed, true),
                       time_text(backward / device.speed, true),
                       memory_text(peaks[replica.worker.value], device.memory_bytes)});
    }
  }
  return aligned(lines);
}

std::vector<ReportPlanner> report_planners(const std::vector<plans::PlanVerdict>& verdicts,
                                           const plans::PlanVerdict& chosen) {
  std::vector<ReportPlanner> planners;
  for (const plans::PlanVerdict& verdict : verdicts) {
    ReportPlanner planner;
    planner.name = verdict.planner;
    if (!verdict.status.ok()) {
      planner.error = std::string(verdict.status.message());
    } else {
      planner.stages = plans::stages_text(verdict.pipeline.plan);
      planner.step_us = verdict.simulation.step_us;
      planner.bubble = verdict.simulation.bubble;
      if (chosen.simulation.step_us > 0) {
        planner.advantage = planner.step_us / chosen.simulation.step_us;
      }
    }
    planners.push_back(planner);
  }
  return planners;
}

std::string planner_table(const std::vector<ReportPlanner>& planners, const std::string& chosen) {
  std::vector<Cells> lines = {
      {"planner", "step", "against " + chosen, "bubble", "layers x replicas"}};
  for (const ReportPlanner& planner : planners) {
    if (!planner.error.empty()) {
      lines.push_back({planner.name, "-", "-", "-", "no plan: " + planner.error});
      continue;
    }
    lines.push_back({planner.name, time_text(planner.step_us, true),
                     absl::StrFormat("%.3fx", planner.advantage),
                     absl::StrFormat("%.1f%%", planner.bubble * 100), planner.stages});
  }
  return aligned(lines);
}

std::vector<std::pair<std::string, std::string>> prediction_facts(
    const PlanningInputs& inputs, const plans::Simulation& simulation) {
  const plans::Profile& profile = inputs.request.profile;
  std::string source = inputs.estimated ? "estimated from the model, not measured" : profile.source;
  if (!profile.device.empty()) absl::StrAppend(&source, " (", profile.device, ")");
  const Throughput rate = throughput(inputs, simulation.step_us);
  std::string rates = rate_text(rate.samples) + " samples/s";
  if (inputs.has_job) absl::StrAppend(&rates, ", ", rate_text(rate.tokens), " tok/s");
  int64_t peak = 0;
  for (const plans::SimulatedWorker& worker : simulation.workers) {
    peak = std::max(peak, worker.peak_bytes);
  }
  return {{"model", model_text(inputs)},
          {"profile", source},
          {"step", time_text(simulation.step_us, true)},
          {"throughput", rates},
          {"bubble", absl::StrFormat("%.1f%%", simulation.bubble * 100)},
          {"memory", bytes_text(peak) + " on the fullest device"}};
}

}  // namespace skein::cli
