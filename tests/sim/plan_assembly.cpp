#include "tests/sim/plan_assembly.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace skein::sim {

std::optional<plans::Plan> PlanAssembly::add(const plans::PlanPart& part) {
  if (part.generation < head_.generation) return std::nullopt;
  if (part.generation > head_.generation) {
    head_ = part;
    stages_.clear();
    replicas_.clear();
    is_taken_ = false;
  }
  for (const plans::StagePart& stage : part.stages) {
    stages_[stage.stage] = stage;
    for (const plans::ReplicaPlan& each : stage.replicas) replicas_[stage.stage][each.id] = each;
  }
  if (is_taken_ || !is_complete()) return std::nullopt;
  is_taken_ = true;
  plans::Plan plan;
  plan.generation = head_.generation;
  plan.mode = head_.mode;
  plan.microbatch_count = head_.microbatch_count;
  plan.microbatch_rows = head_.microbatch_rows;
  for (const auto& [number, stage] : stages_) {
    plans::StagePlan& to = plan.stages.emplace_back();
    to.layers = stage.layers;
    for (const auto& [id, replica] : replicas_.at(number)) to.replicas.push_back(replica);
  }
  return plan;
}

bool PlanAssembly::is_complete() const {
  if (static_cast<int32_t>(stages_.size()) < head_.stage_count) return false;
  return std::all_of(stages_.begin(), stages_.end(), [this](const auto& each) {
    const auto found = replicas_.find(each.first);
    return found != replicas_.end() &&
           static_cast<int64_t>(found->second.size()) == each.second.replica_count;
  });
}

std::string difference(const plans::PlanPart& part, const plans::Plan& plan) {
  if (part.stage_count != static_cast<int32_t>(plan.stages.size()) || part.mode != plan.mode ||
      part.microbatch_count != plan.microbatch_count ||
      part.microbatch_rows != plan.microbatch_rows) {
    return "a part of another plan";
  }
  for (const plans::StagePart& stage : part.stages) {
    const plans::StagePlan& there = plan.stages.at(static_cast<size_t>(stage.stage));
    if (stage.layers != there.layers || stage.first != there.replicas.front().id ||
        stage.replica_count != static_cast<int64_t>(there.replicas.size())) {
      return absl::StrCat("another stage ", stage.stage);
    }
    for (const plans::ReplicaPlan& each : stage.replicas) {
      if (each == there.replicas.at(each.id.value - stage.first.value)) continue;
      return absl::StrCat("another replica ", each.id.value);
    }
  }
  return "";
}

}  // namespace skein::sim
