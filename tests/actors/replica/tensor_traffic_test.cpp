#include "actors/replica/tensor_traffic.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "gpu/device.hpp"
#include "plans/plan/pipeline_cuts.hpp"
#include "plans/plan/plan_part.hpp"
#include "tests/actors/averaging/flying_plane.hpp"
#include "tests/actors/small_job.hpp"

namespace skein::actors {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = net::schema::TensorKind;

/// Two pipeline replicas, of which that of worker 1 is whole and the other one is cut, so that the
/// plan has two stages. `self`: whose tensors are looked at.
struct TwoStages {
  explicit TwoStages(plans::WorkerId self) {
    plans::JobSpec job = small_job(1, 2);
    job.sync.policy = "sdpipe";
    const plans::Plan plan =
        plans::make_plan_of_cuts(job, {{{{1}}, {}}, {{{2}, {3}}, {2}}}, 1).value();
    const plans::PlanPart part = plans::PlanParts(plan, {}, {}).of(self);
    for (const plans::StagePlan& stage : plan.stages) {
      for (const plans::ReplicaPlan& replica : stage.replicas) {
        addresses[replica.worker] = "127.0.0.1:1";
        if (replica.worker != self) continue;
        StageReplica own = make_stage_replica(job, part, {.id = replica.id});
        replicas.emplace(own.stage, std::move(own));
      }
    }
    TensorTraffic::Options options;
    options.plan = part;
    options.row_floats = 3;
    options.device = gpu::make_host_device(1);
    options.plane = plane;
    options.addresses = addresses;
    options.on_tensor = [this](const net::TensorKey& key, net::TensorHandle tensor) {
      arrived.emplace_back(key, std::move(tensor));
    };
    traffic.emplace(std::move(options), replicas);
  }
  /// Makes the output of the stage, and sends it.
  net::TensorHandle pass_on(int32_t stage, Kind kind) {
    Outgoing output = traffic->outgoing(replicas.at(stage), kind, /*step=*/4, /*microbatch=*/1);
    const net::TensorHandle memory = output.memory;
    output.send(/*now_us=*/0);
    return memory;
  }

  std::vector<Flying> flying;
  std::shared_ptr<FlyingPlane> plane = std::make_shared<FlyingPlane>("127.0.0.1:2", flying);
  std::map<plans::WorkerId, std::string> addresses;
  StageReplicas replicas;
  std::vector<std::pair<net::TensorKey, net::TensorHandle>> arrived;
  std::optional<TensorTraffic> traffic;
};

TEST(TensorTraffic, StagesOfOneWorkerHandOverTheMemoryItself) {
  TwoStages whole({1});
  ASSERT_THAT(whole.replicas, SizeIs(2));
  const net::TensorHandle activation = whole.pass_on(0, Kind::ACTIVATION);
  const net::TensorHandle gradient = whole.pass_on(1, Kind::GRADIENT);
  EXPECT_THAT(whole.flying, IsEmpty());
  ASSERT_THAT(whole.arrived, SizeIs(2));
  EXPECT_EQ(whole.arrived[0].second->data(), activation->data());
  EXPECT_EQ(whole.arrived[1].second->data(), gradient->data());
  EXPECT_EQ(whole.traffic->input_key(whole.arrived[0].first),
            (plans::InputKey{plans::InputKind::kActivation, 4, 1, 1}));
  EXPECT_EQ(whole.traffic->input_key(whole.arrived[1].first),
            (plans::InputKey{plans::InputKind::kGradient, 4, 0, 1}));
}

TEST(TensorTraffic, StagesOfTwoWorkersSendOverTheDataPlane) {
  TwoStages front({2});
  ASSERT_THAT(front.replicas, SizeIs(1));
  front.pass_on(0, Kind::ACTIVATION);
  EXPECT_THAT(front.arrived, IsEmpty());
  EXPECT_THAT(front.flying, SizeIs(1));
}

/// Nobody behind the last stage and in front of the first one takes anything.
TEST(TensorTraffic, TheEndsOfAPipelinePassNothingOn) {
  TwoStages whole({1});
  EXPECT_EQ(whole.pass_on(1, Kind::ACTIVATION), nullptr);
  EXPECT_EQ(whole.pass_on(0, Kind::GRADIENT), nullptr);
  EXPECT_THAT(whole.arrived, IsEmpty());
}

}  // namespace
}  // namespace skein::actors
