#pragma once

#include <nlohmann/json.hpp>

#include "plans/plan/plan.hpp"

namespace skein::cli {

/// The plan for programs: what plan.json holds.
nlohmann::ordered_json plan_json(const plans::Plan& plan);

}  // namespace skein::cli
