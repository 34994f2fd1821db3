#pragma once

#include "cli/verbs/plan_verb.hpp"
#include "cli/verbs/simulate_verb.hpp"

namespace CLI {
class App;
}

namespace skein::cli {

// The words of `skein plan` and `skein simulate`. The options are filled in when the verb is parsed
// and must outlive that.
CLI::App* add_plan_verb(CLI::App& app, PlanOptions& options);
CLI::App* add_simulate_verb(CLI::App& app, SimulateOptions& options);

}  // namespace skein::cli
