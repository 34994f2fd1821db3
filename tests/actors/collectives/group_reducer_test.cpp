#include "actors/collectives/group_reducer.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "gpu/device.hpp"
#include "gpu/model/stage_model.hpp"
#include "plans/collectives/exchange_partners.hpp"
#include "plans/plan/layout_plan.hpp"
#include "tests/actors/small_job.hpp"

namespace skein::actors {
namespace {

plans::ModelSpec small_model(bool tied) {
  plans::ModelSpec model;
  model.layers = 2;
  model.channels = 8;
  model.heads = 2;
  model.vocab_size = 16;
  model.positions = 8;
  model.tied_head = tied;
  return model;
}

TEST(GroupReducer, TensorsTileTheGradientsOfEveryRangeOfLayers) {
  auto device = gpu::make_host_device(1);
  for (bool tied : {false, true}) {
    const plans::ModelSpec model = small_model(tied);
    const int64_t count = plans::layer_count(model);
    for (int64_t begin = 0; begin < count; ++begin) {
      for (int64_t end = begin + 1; end <= count; ++end) {
        gpu::StageModelOptions options;
        options.model = model;
        options.layers = {begin, end};
        options.rows = 1;
        options.seq_len = 4;
        auto stage = gpu::StageModel::create(options, *device);
        ASSERT_TRUE(stage.ok()) << stage.status();
        const std::vector<size_t> floats = stage_tensor_floats(model, options.layers);
        EXPECT_EQ(std::accumulate(floats.begin(), floats.end(), size_t{0}),
                  (*stage)->stage_gradients().size())
            << begin << " to " << end;
      }
    }
  }
}

TEST(GroupReducer, NumbersHostsByTheirFirstMember) {
  EXPECT_EQ(host_numbers({"a:1", "b:1", "a:2", "[::1]:5", "[::1]:6", "b:9"}),
            (std::vector<uint32_t>{0, 1, 0, 3, 3, 1}));
  EXPECT_EQ(host_numbers({}), std::vector<uint32_t>{});
}

/// Also that of a tied embedding, which is summed whatever the job's reducer.
TEST(GroupReducer, ExactSumsAreFloat64InEveryGroup) {
  plans::JobSpec job = small_job(2, 2);
  job.model.tied_head = true;
  const plans::Plan plan = plans::make_layout_plan(job, {{1}, {2}, {3}, {4}}, 1).value();
  const plans::PlanPart part = plans::PlanParts(plan, {}, {}).of({1});
  ASSERT_EQ(part.groups.size(), 2u);
  for (const plans::GroupPart& group : part.groups) {
    PreparedReplica replica;
    replica.id = group.member;
    replica.options.model = job.model;
    replica.options.layers = plans::stage_at(part, 0).layers;
    EXPECT_FALSE(group_reducer(job, part, group, replica, {}, "a:1").is_float64);
    replica.options.exact_summands = 4;
    EXPECT_TRUE(group_reducer(job, part, group, replica, {}, "a:1").is_float64);
  }
}

/// Four members, of which each two are on one host: what each of them has of the plan is enough to
/// know who is where.
TEST(GroupReducer, ReducersThatGoByHostsKnowThemAtEveryMember) {
  auto device = gpu::make_host_device(1);
  plans::JobSpec job = small_job(1, 4);
  job.training.micro_batch_size = job.training.global_batch_size = 4;
  std::vector<plans::WorkerId> workers;
  std::map<plans::WorkerId, std::string> addresses;
  for (uint32_t id = 1; id <= 4; ++id) {
    workers.push_back({id});
    addresses[{id}] = (id <= 2 ? "10.0.0.1:" : "10.0.0.2:") + std::to_string(id);
  }
  const plans::Plan plan = plans::make_layout_plan(job, workers, 1).value();
  for (const char* name : {"sum", "topk", "topka2a", "hitopk", "hisum"}) {
    job.sync.reducer = name;
    const plans::ReducerKind kind = plans::parse_reducer_kind(name).value();
    const plans::PartNeeds needs{kind, false, false};
    const plans::PlanParts parts(plan, needs, {});
    for (const plans::WorkerId worker : workers) {
      const plans::PlanPart part = parts.of(worker);
      const plans::GroupPart& group = part.groups.front();
      PreparedReplica replica;
      replica.id = plans::hosted_by(part, worker).front().id;
      replica.options.model = job.model;
      replica.options.layers = {0, plans::layer_count(job.model)};
      replica.options.rows = 1;
      replica.options.seq_len = job.training.seq_len;
      replica.model = gpu::StageModel::create(replica.options, *device).value();
      std::map<plans::WorkerId, std::string> others = addresses;
      others.erase(worker);
      const net::ReducerOptions options =
          group_reducer(job, part, group, replica, others, addresses[worker]);
      EXPECT_EQ(options.kind, kind);
      EXPECT_DOUBLE_EQ(options.own_share, 0.25);
      const bool goes_by_hosts =
          kind == plans::ReducerKind::kHiTopK || kind == plans::ReducerKind::kHiSum;
      EXPECT_EQ(options.hosts,
                goes_by_hosts ? (std::vector<uint32_t>{0, 0, 2, 2}) : std::vector<uint32_t>{})
          << name << " at w" << worker.value;
      for (uint32_t partner : plans::exchange_partners(kind, group.rank, group.rank_count)) {
        EXPECT_TRUE(group.partners.contains(partner)) << name;
      }
    }
  }
}

}  // namespace
}  // namespace skein::actors
