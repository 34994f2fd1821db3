#pragma once

#include <string>
#include <vector>

#include "cli/config/planning_inputs.hpp"
#include "cli/pictures/report_html.hpp"
#include "plans/planner/planner.hpp"

namespace skein::cli {

/// The plan for people: a line per replica with layers, device, rows, times and memory.
std::string plan_table(const plans::Plan& plan, const plans::Simulation& simulation,
                       const plans::PlanRequest& request);

/// The verdicts as they are reported; `chosen` is compared with.
std::vector<ReportPlanner> report_planners(const std::vector<plans::PlanVerdict>& verdicts,
                                           const plans::PlanVerdict& chosen);

/// The planners for people, a line each.
std::string planner_table(const std::vector<ReportPlanner>& planners, const std::string& chosen);

/// Name and value of what is predicted of a step: time, throughput, bubble, largest memory.
std::vector<std::pair<std::string, std::string>> prediction_facts(
    const PlanningInputs& inputs, const plans::Simulation& simulation);

}  // namespace skein::cli
