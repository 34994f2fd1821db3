#pragma once

#include <string>

#include "absl/status/status.h"
#include "cli/pictures/report_html.hpp"
#include "cli/plan_verb.hpp"
#include "cli/planning_inputs.hpp"

namespace skein::cli {

/// "quickstart: 1F1B, 2 stages, 4 micro-batches of 8".
std::string plan_title(const std::string& job, const plans::Plan& plan);

/// Writes the pictures and the schedule that are wanted; `report.planned` is the picture.
/// Errors of `gpu::write_durably` and `load_trace`.
absl::Status write_pictures(const PictureFiles& files, const plans::Schedule& schedule,
                            Report report);

}  // namespace skein::cli
