#include "cli/report/plan_json.hpp"

#include <string>

#include "cli/config/json_text.hpp"
#include "plans/schedule/schedule.hpp"

namespace skein::cli {

Json plan_json(const plans::Plan& plan) {
  Json stages = Json::array();
  for (const plans::StagePlan& stage : plan.stages) {
    Json replicas = Json::array();
    for (const plans::ReplicaPlan& replica : stage.replicas) {
      replicas.push_back({{"replica", replica.id.value},
                          {"worker", replica.worker.value},
                          {"rows", {replica.rows.begin, replica.rows.end()}},
                          {"rank", replica.rank}});
    }
    stages.push_back({{"layers", {stage.layers.begin, stage.layers.end}}, {"replicas", replicas}});
  }
  return {{"generation", plan.generation},
          {"schedule", std::string(plans::to_text(plan.schedule))},
          {"microbatches", plan.microbatch_count},
          {"microbatch_rows", plan.microbatch_rows},
          {"recompute", plan.recompute},
          {"stages", stages}};
}

}  // namespace skein::cli
