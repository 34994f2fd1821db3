#pragma once

#include <string>

#include "cli/config/json_text.hpp"
#include "plans/chaos/churn_trace.hpp"
#include "plans/simulator/churn_simulation.hpp"

namespace skein::cli {

/// What a recording was made into: "members as in trace.csv: every 3rd machine, ...".
struct ChurnSource {
  std::string name;
  int64_t devices = 0;
  plans::ChurnOptions options;
};

/// What became of each way to train, for people.
std::string churn_table(const ChurnSource& source, const plans::Churn& churn,
                        const plans::ChurnSimulation& simulation);
/// The same for programs.
Json churn_json(const ChurnSource& source, const plans::Churn& churn,
                const plans::ChurnSimulation& simulation);

}  // namespace skein::cli
