#include "tests/plans/simulator/pipelines.hpp"

#include "plans/base/check.hpp"
#include "plans/plan/plan_ranks.hpp"

namespace skein::plans {

Profile equal_layers(int64_t layers, double forward_us, double backward_us, int64_t rows) {
  Profile profile;
  profile.rows = {rows};
  const LayerProfile layer{"layer", {{forward_us, backward_us / 3, backward_us * 2 / 3}}, 0, 0, 0};
  profile.layers.assign(static_cast<size_t>(layers), layer);
  return profile;
}

ClusterSpec equal_cluster(int32_t devices, int32_t per_host, double bytes_per_second) {
  ClusterSpec cluster;
  for (int32_t d = 0; d < devices; ++d) {
    if (d % per_host == 0) {
      cluster.hosts.push_back({"host", {bytes_per_second, 0}, {bytes_per_second, 0}});
    }
    ClusterDevice device;
    device.host = d / per_host;
    cluster.devices.push_back(device);
  }
  return cluster;
}

Plan pipeline(const PipelineShape& shape) {
  Plan plan;
  plan.microbatch_count = shape.M;
  plan.microbatch_rows = shape.B;
  plan.recompute = shape.recompute;
  int64_t layer = 0;
  uint32_t worker = 0;
  for (size_t s = 0; s < shape.layers.size(); ++s) {
    StagePlan& stage = plan.stages.emplace_back();
    stage.layers = {layer, layer + shape.layers[s]};
    layer = stage.layers.end;
    for (int64_t r = 0; r < shape.replicas[s]; ++r) {
      stage.replicas.push_back({{},
                                WorkerId{++worker},
                                even_rows(shape.B, r, shape.replicas[s]),
                                static_cast<int32_t>(s)});
    }
  }
  number_replicas(plan.stages);
  plan.groups = reduction_groups(plan.stages, shape.tied);
  SKEIN_CHECK(set_schedule(plan, shape.schedule).ok());
  return plan;
}

Plan straight_pipeline(int64_t S, int64_t M, ScheduleKind schedule) {
  const std::vector<int64_t> ones(static_cast<size_t>(S), 1);
  PipelineShape shape;
  shape.layers = shape.replicas = ones;
  shape.M = M;
  shape.schedule = schedule;
  return pipeline(shape);
}

Plan looped_pipeline(PipelineShape shape, int64_t ranks) {
  const auto R = static_cast<size_t>(ranks);
  for (size_t s = R; s < shape.replicas.size(); ++s) shape.replicas[s] = shape.replicas[s % R];
  Plan plan = pipeline(shape);
  plan.actions.assign(R, {});
  const auto M = static_cast<int32_t>(shape.M);
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    StagePlan& stage = plan.stages[s];
    for (size_t r = 0; r < stage.replicas.size(); ++r) {
      stage.replicas[r].worker = plan.stages[s % R].replicas[r].worker;
      stage.replicas[r].rank = static_cast<int32_t>(s % R);
    }
    for (int32_t m = 0; m < M; ++m) {
      plan.actions[s % R].push_back({static_cast<int32_t>(s), ActionType::kForward, m});
    }
  }
  for (size_t s = plan.stages.size(); s-- > 0;) {
    for (int32_t m = 0; m < M; ++m) {
      plan.actions[s % R].push_back({static_cast<int32_t>(s), ActionType::kBackward, m});
    }
  }
  return plan;
}

void split_backwards(Plan& plan) {
  for (ActionList& actions : plan.actions) {
    ActionList weights;
    for (Action& action : actions) {
      if (action.type != ActionType::kBackward) continue;
      action.type = ActionType::kBackwardInput;
      weights.push_back({action.stage, ActionType::kBackwardWeight, action.microbatch});
    }
    actions.insert(actions.end(), weights.begin(), weights.end());
  }
}

}  // namespace skein::plans
