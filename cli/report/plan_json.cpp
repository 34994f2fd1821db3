#include "cli/report/plan_json.hpp"

#include <string>

#include "plans/schedule/schedule.hpp"

namespace skein::cli {

using OrderedJson = nlohmann::ordered_json;

OrderedJson plan_json(const plans::Plan& plan) {
  OrderedJson stages = OrderedJson::array();
  for (const plans::StagePlan& stage : plan.stages) {
    OrderedJson replicas = OrderedJson::array();
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
