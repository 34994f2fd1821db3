#pragma once

#include "cli/config/json_text.hpp"
#include "plans/plan/plan.hpp"

namespace skein::cli {

/// The plan for programs: what plan.json holds.
Json plan_json(const plans::Plan& plan);

}  // namespace skein::cli
