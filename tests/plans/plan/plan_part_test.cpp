#include "plans/plan/plan_part.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "plans/base/rng.hpp"
#include "plans/collectives/exchange_partners.hpp"
#include "plans/plan/plan_ranks.hpp"

namespace skein::plans {
namespace {

/// A model of as many layers as the plans below have.
ModelSpec model_of(int64_t layers, bool tied) {
  ModelSpec model;
  model.layers = layers - 2;
  model.channels = 8;
  model.heads = 2;
  model.vocab_size = 16;
  model.positions = 8;
  model.tied_head = tied;
  return model;
}

struct Made {
  Plan plan;
  ModelSpec model;
  PartNeeds needs;
  std::vector<WorkerId> snapshot_peers;
};

/// Stages of unlike numbers of layers and replicas, with unlike rows, on workers of any numbers;
/// some with two stages on each worker.
Made random_plan(uint64_t seed) {
  Rng rng(seed);
  Made made;
  Plan& plan = made.plan;
  plan.generation = 1 + rng.below(9);
  plan.microbatch_count = static_cast<int64_t>(1 + rng.below(5));
  plan.microbatch_rows = static_cast<int64_t>(6 + rng.below(12));
  plan.recompute = rng.below(2) == 1;
  const bool is_virtual = rng.below(4) == 0;
  const bool is_local = rng.below(4) == 0;
  const size_t ranks = 1 + rng.below(4);
  const size_t stages = is_virtual ? 2 * ranks : ranks;
  std::vector<WorkerId> workers;
  std::vector<uint32_t> numbers;
  for (uint32_t number = 1; number <= 60; ++number) numbers.push_back(number);
  for (size_t i = numbers.size(); i > 1; --i) std::swap(numbers[i - 1], numbers[rng.below(i)]);
  int64_t layer = 0;
  const size_t like = 1 + rng.below(6);
  for (size_t s = 0; s < stages; ++s) {
    StagePlan& stage = plan.stages.emplace_back();
    stage.layers = {layer, layer + 1 + static_cast<int64_t>(rng.below(3))};
    layer = stage.layers.end;
    const size_t count = is_local || is_virtual ? like : 1 + rng.below(6);
    int64_t row = 0;
    for (size_t r = 0; r < count; ++r) {
      const bool is_last = r + 1 == count;
      const auto rest = static_cast<int64_t>(count - r - 1);
      const int64_t rows =
          is_local ? even_rows(plan.microbatch_rows, static_cast<int64_t>(r),
                               static_cast<int64_t>(count))
                         .count
          : is_last ? plan.microbatch_rows - row
                    : 1 + static_cast<int64_t>(
                              rng.below(static_cast<uint64_t>(plan.microbatch_rows - row - rest)));
      WorkerId worker;
      if (s < ranks) {
        worker.value = numbers.back();
        numbers.pop_back();
        workers.push_back(worker);
      } else {
        worker = plan.stages[s - ranks].replicas[r].worker;
      }
      stage.replicas.push_back({{}, worker, {row, rows}, static_cast<int32_t>(s % ranks)});
      row += rows;
    }
  }
  number_replicas(plan.stages);
  if (layer < 2) plan.stages.back().layers.end = layer = 2;
  const bool ends_meet = stages > 1 && plan.stages.front().rank() == plan.stages.back().rank();
  const bool tied = (is_local || !ends_meet) && rng.below(2) == 1;
  made.model = model_of(layer, tied);
  plan.groups = reduction_groups(plan.stages, tied);
  if (is_local) plan.mode = kLocalMode;
  EXPECT_TRUE(set_schedule(plan, is_virtual ? ScheduleKind::kGreedy : ScheduleKind::k1F1B).ok());
  made.needs.reducer = static_cast<ReducerKind>(rng.below(7));
  made.needs.all_of_stage = is_local;
  made.needs.devices = !is_local && rng.below(2) == 0;
  for (size_t s = 0; s < stages; ++s) {
    made.snapshot_peers.push_back(rng.below(3) == 0 ? WorkerId{}
                                                    : workers[rng.below(workers.size())]);
  }
  EXPECT_TRUE(validate(plan, made.model).ok()) << validate(plan, made.model) << to_text(plan);
  return made;
}

std::set<WorkerId> workers_in(const Plan& plan) {
  std::set<WorkerId> workers;
  for (const StagePlan& stage : plan.stages) {
    for (const ReplicaPlan& each : stage.replicas) workers.insert(each.worker);
  }
  return workers;
}

void expect_same_group(const Made& made, const PlanPart& part, const ReductionGroup& group,
                       ReplicaId member) {
  const GroupPart& own = group_at(part, group.id);
  EXPECT_EQ(own.scope, group.scope);
  EXPECT_EQ(own.member, member);
  EXPECT_EQ(own.rank_count, group.members.size());
  EXPECT_EQ(group.members.at(own.rank), member);
  const bool is_tied = group.scope == GroupScope::kTied;
  const auto partners =
      exchange_partners(is_tied ? ReducerKind::kSum : made.needs.reducer, own.rank, own.rank_count);
  ASSERT_EQ(own.partners.size(), partners.size());
  for (uint32_t rank : partners) {
    EXPECT_EQ(own.partners.at(rank), replica_of(made.plan, group.members.at(rank)).worker);
  }
}

/// Its own groups of devices, or, of the one who decides, all; who has to know the members does.
void expect_same_devices(const Made& made, const PlanPart& part, WorkerId worker) {
  if (!made.needs.devices) {
    EXPECT_TRUE(part.device_leader.value == 0 && part.device_groups.empty());
    for (const StagePart& stage : part.stages) EXPECT_EQ(stage.ends, StageEnds());
    return;
  }
  const std::vector<StageEnds> ends = action_ends(made.plan, {});
  for (const StagePart& stage : part.stages) {
    EXPECT_EQ(stage.ends, ends[static_cast<size_t>(stage.stage)]);
  }
  EXPECT_EQ(part.device_leader, made.plan.stages[0].replicas[0].worker);
  auto next = part.device_groups.begin();
  for (const WantedGroup& wanted : wanted_groups(made.plan, made.needs.reducer)) {
    std::vector<WorkerId> ascending = wanted.members;
    std::sort(ascending.begin(), ascending.end());
    const auto own = std::find(ascending.begin(), ascending.end(), worker);
    const bool is_member = own != ascending.end();
    if (!is_member && worker != part.device_leader) continue;
    ASSERT_NE(next, part.device_groups.end());
    const DeviceGroupPart& group = *next++;
    EXPECT_EQ(group.id, wanted.id);
    EXPECT_EQ(group.use, wanted.use);
    EXPECT_EQ(group.front, wanted.front);
    EXPECT_EQ(group.rank_count, ascending.size());
    ASSERT_EQ(group.rank.has_value(), is_member);
    if (is_member) {
      EXPECT_EQ(*group.rank, own - ascending.begin());
    }
    const bool knows_all = worker == part.device_leader || group.rank == 0;
    EXPECT_EQ(group.members, knows_all ? wanted.members : std::vector<WorkerId>{});
    for (const auto& [other, rank] : group.neighbours) EXPECT_EQ(ascending.at(rank), other);
  }
  EXPECT_EQ(next, part.device_groups.end());
}

/// All that a worker asks of the plan has the answer of the whole plan.
void expect_same(const Made& made, const PlanPart& part, WorkerId worker) {
  const Plan& plan = made.plan;
  std::vector<ReplicaPlan> hosted;
  std::set<GroupId> groups;
  for (const StagePlan& stage : plan.stages) {
    for (const ReplicaPlan& own : stage.replicas) {
      if (own.worker != worker) continue;
      hosted.push_back(own);
      const int32_t number = stage_of(plan, own.id);
      EXPECT_EQ(stage_of(part, own.id), number);
      EXPECT_EQ(replica_of(part, own.id), own);
      EXPECT_EQ(stage_at(part, number).layers, stage.layers);
      EXPECT_EQ(stage_at(part, number).first, stage.replicas.front().id);
      EXPECT_EQ(part.actions, plan.actions[static_cast<size_t>(stage.rank())]);
      for (int step : {+1, -1}) {
        const std::vector<Route> routes = routes_from(plan, own.id, step);
        EXPECT_EQ(routes_from(part, own.id, step), routes);
        for (const Route& route : routes) {
          EXPECT_EQ(replica_of(part, route.to), replica_of(plan, route.to));
        }
      }
      if (made.needs.all_of_stage) {
        EXPECT_EQ(stage_at(part, number).replicas, stage.replicas);
      }
      for (const ReductionGroup& group : plan.groups) {
        const auto& members = group.members;
        if (members.size() < 2 || std::count(members.begin(), members.end(), own.id) == 0) continue;
        if (group.scope == GroupScope::kTied && plan.mode == kLocalMode) {
          const size_t other = number == 0 ? plan.stages.size() - 1 : 0;
          const auto index = own.id.value - stage.replicas.front().id.value;
          const ReplicaPlan& end = plan.stages[other].replicas[index];
          EXPECT_EQ(other_end(part, own.id), end.id);
          EXPECT_EQ(replica_of(part, end.id), end);
          continue;
        }
        groups.insert(group.id);
        expect_same_group(made, part, group, own.id);
      }
    }
  }
  EXPECT_EQ(hosted_by(part, worker), hosted);
  EXPECT_EQ(part.groups.size(), groups.size());
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    if (made.snapshot_peers[s] != worker) continue;
    EXPECT_EQ(stage_at(part, static_cast<int32_t>(s)).layers, plan.stages[s].layers);
  }
  EXPECT_EQ(part.generation, plan.generation);
  EXPECT_EQ(part.mode, plan.mode);
  EXPECT_EQ(part.microbatch_count, plan.microbatch_count);
  EXPECT_EQ(part.microbatch_rows, plan.microbatch_rows);
  EXPECT_EQ(part.recompute, plan.recompute);
  EXPECT_EQ(part.stage_count, static_cast<int32_t>(plan.stages.size()));
  EXPECT_EQ(part.worker_max, workers_in(plan).rbegin()->value);
  expect_same_devices(made, part, worker);
}

TEST(PlanPart, AnswersAsTheWholePlanDoes) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const Made made = random_plan(seed);
    SCOPED_TRACE(absl::StrCat("seed ", seed, "\n", to_text(made.plan)));
    const PlanParts parts(made.plan, made.needs, made.snapshot_peers);
    for (WorkerId worker : workers_in(made.plan)) {
      const PlanPart part = parts.of(worker);
      expect_same(made, part, worker);
      const absl::Status status = validate(part, worker, made.model, made.needs.reducer);
      EXPECT_TRUE(status.ok()) << status;
    }
    const PlanPart stranger = parts.of({999});
    EXPECT_TRUE(stranger.stages.empty() && stranger.groups.empty() && stranger.actions.empty());
    EXPECT_TRUE(validate(stranger, {999}, made.model, made.needs.reducer).ok());
  }
}

/// Breaks something that a worker relies on; false: there is nothing of that kind.
using Break = bool (*)(PlanPart& part, WorkerId worker);
const std::vector<std::pair<const char*, Break>> kBreaks = {
    {"no stages", [](PlanPart& part, WorkerId) { return (part.stage_count = 0, true); }},
    {"a stage is missing",
     [](PlanPart& part, WorkerId worker) {
       for (size_t i = 0; i < part.stages.size(); ++i) {
         const auto& replicas = part.stages[i].replicas;
         const bool routes = std::any_of(replicas.begin(), replicas.end(),
                                         [&](const auto& each) { return each.worker != worker; });
         const bool is_own = std::any_of(replicas.begin(), replicas.end(),
                                         [&](const auto& each) { return each.worker == worker; });
         if (!routes || is_own) continue;
         part.stages.erase(part.stages.begin() + static_cast<ptrdiff_t>(i));
         return true;
       }
       return false;
     }},
    {"layers beyond the model",
     [](PlanPart& part, WorkerId) { return (part.stages.back().layers.end += 100, true); }},
    {"a row twice", [](PlanPart& part,
                       WorkerId) { return (part.stages[0].replicas.at(0).rows.begin = -1, true); }},
    {"an action twice",
     [](PlanPart& part, WorkerId) {
       part.actions.push_back(part.actions.front());
       return true;
     }},
    {"an action is missing",
     [](PlanPart& part, WorkerId) { return (part.actions.pop_back(), true); }},
    {"a partner is missing",
     [](PlanPart& part, WorkerId) {
       if (part.groups.empty()) return false;
       part.groups.front().partners.erase(part.groups.front().partners.begin());
       return true;
     }},
    {"a partner beyond the group",
     [](PlanPart& part, WorkerId) {
       if (part.groups.empty()) return false;
       GroupPart& group = part.groups.front();
       group.partners[group.rank_count] = group.partners.begin()->second;
       return true;
     }},
    {"a rank beyond the group",
     [](PlanPart& part, WorkerId) {
       if (part.groups.empty()) return false;
       part.groups.front().rank += 1;
       return true;
     }},
    {"a group is missing",
     [](PlanPart& part, WorkerId) {
       if (part.groups.empty()) return false;
       part.groups.pop_back();
       return true;
     }},
    {"a group twice",
     [](PlanPart& part, WorkerId) {
       if (part.groups.empty()) return false;
       part.groups.push_back(part.groups.back());
       return true;
     }},
    {"nobody decides for the devices",
     [](PlanPart& part, WorkerId) {
       if (part.device_groups.empty()) return false;
       return (part.device_leader = {}, true);
     }},
    {"a group of devices is missing",
     [](PlanPart& part, WorkerId) {
       if (part.device_groups.empty() || part.groups.empty()) return false;
       return (part.device_groups.erase(part.device_groups.begin()), true);
     }},
    {"a group of devices twice",
     [](PlanPart& part, WorkerId) {
       if (part.device_groups.empty()) return false;
       return (part.device_groups.push_back(part.device_groups.back()), true);
     }},
    {"a rank beyond the devices",
     [](PlanPart& part, WorkerId) {
       if (part.device_groups.empty()) return false;
       DeviceGroupPart& group = part.device_groups.front();
       return (group.rank = group.rank_count, true);
     }},
    {"a member of the devices is missing",
     [](PlanPart& part, WorkerId) {
       if (part.device_groups.empty()) return false;
       return (part.device_groups.front().members.pop_back(), true);
     }},
    {"a member of the devices twice",
     [](PlanPart& part, WorkerId) {
       if (part.device_groups.empty()) return false;
       std::vector<WorkerId>& members = part.device_groups.front().members;
       return (members.back() = members.front(), true);
     }},
    {"a neighbour is missing",
     [](PlanPart& part, WorkerId) {
       for (DeviceGroupPart& group : part.device_groups) {
         if (group.neighbours.empty()) continue;
         return (group.neighbours.erase(group.neighbours.begin()), true);
       }
       return false;
     }},
    {"a neighbour beyond the devices",
     [](PlanPart& part, WorkerId) {
       for (DeviceGroupPart& group : part.device_groups) {
         if (group.neighbours.empty()) continue;
         return (group.neighbours.begin()->second = group.rank_count, true);
       }
       return false;
     }},
    {"a link at another stage",
     [](PlanPart& part, WorkerId) {
       for (DeviceGroupPart& group : part.device_groups) {
         if (group.use != DeviceUse::kActivations || !group.rank) continue;
         return (group.front += part.stage_count, true);
       }
       return false;
     }},
    {"the ends of a stage are missing",
     [](PlanPart& part, WorkerId) {
       if (part.device_leader.value == 0) return false;
       return (part.stages.front().ends.forward.pop_back(), true);
     }},
    {"an action that ends before its inputs",
     [](PlanPart& part, WorkerId) {
       if (part.device_leader.value == 0 || part.stage_count < 2) return false;
       // Another stage's: the worker hosts the first one, whose backwards wait for the next.
       return (part.stages.at(1).ends.backward.back() += kEndMax, true);
     }},
    {"an action that ends with the one before",
     [](PlanPart& part, WorkerId) {
       if (part.device_leader.value == 0) return false;
       StageEnds& ends = part.stages.front().ends;
       return (ends.backward.front() = ends.forward.front(), true);
     }},
};

TEST(PlanPart, WhatIsBrokenIsNamed) {
  std::map<std::string, int> tried;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Made made = random_plan(seed);
    const PlanParts parts(made.plan, made.needs, {});
    const WorkerId worker = made.plan.stages.front().replicas.front().worker;
    for (const auto& [name, break_it] : kBreaks) {
      PlanPart part = parts.of(worker);
      if (!break_it(part, worker)) continue;
      ++tried[name];
      const absl::Status status = validate(part, worker, made.model, made.needs.reducer);
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << name << ", seed " << seed;
    }
  }
  EXPECT_EQ(tried.size(), kBreaks.size()) << "each was tried";
}

}  // namespace
}  // namespace skein::plans
