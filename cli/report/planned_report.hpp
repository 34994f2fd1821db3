#pragma once

#include <string>

#include "absl/status/status.h"
#include "cli/config/planning_inputs.hpp"
#include "cli/pictures/report_html.hpp"
#include "cli/verbs/plan_verb.hpp"

namespace skein::cli {

/// "quickstart: 1F1B, 2 stages, 4 micro-batches of 8".
std::string plan_title(const std::string& job, const plans::Plan& plan);

/// Writes the pictures and the schedule that are wanted; `report.planned` is the picture.
/// Errors of `gpu::write_durably` and `load_trace`.
absl::Status write_pictures(const PictureFiles& files, const plans::Schedule& schedule,
                            Report report);

}  // namespace skein::cli
