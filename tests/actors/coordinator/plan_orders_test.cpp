#include "actors/coordinator/plan_orders.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plans/plan/layout_plan.hpp"
#include "tests/actors/small_job.hpp"

namespace skein::actors {
namespace {

using testing::ElementsAre;

constexpr uint64_t kSecret = 77;

/// Two stages on the first two of four workers.
class PlanOrdersTest : public testing::Test {
 protected:
  PlanOrdersTest() {
    decision_.plan = plans::make_layout_plan(small_job(2, 1), {{1}, {2}}, 5).value();
    for (uint32_t id = 1; id <= 4; ++id) {
      plans::Member member;
      member.request.data_address = "127.0.0.1:" + std::to_string(id);
      members_[{id}] = member;
    }
  }
  net::Assign order_of(uint32_t worker) const {
    net::Assign common;
    common.secret = kSecret;
    return PlanOrders(decision_, members_, {}, common).of({worker});
  }
  std::vector<bool> who_knows_the_secret() const {
    std::vector<bool> knows;
    for (uint32_t id = 1; id <= 4; ++id) knows.push_back(order_of(id).secret == kSecret);
    return knows;
  }

  plans::AssignPlan decision_;
  std::map<plans::WorkerId, plans::Member> members_;
};

TEST_F(PlanOrdersTest, WhoExchangesNoTensorsIsNotToldTheSecret) {
  EXPECT_THAT(who_knows_the_secret(), ElementsAre(true, true, false, false));
  EXPECT_EQ(order_of(3).secret, 0u);
}

TEST_F(PlanOrdersTest, WhoKeepsSnapshotsOrHandsOverStateIsToldTheSecret) {
  decision_.snapshot_peers = {{3}, {3}};
  EXPECT_THAT(who_knows_the_secret(), ElementsAre(true, true, true, false));
  decision_.restore.moves = {{0, {4}, {1}}};
  EXPECT_THAT(who_knows_the_secret(), ElementsAre(true, true, true, true));
}

TEST_F(PlanOrdersTest, DevicesThatMayFormGroupsAreToldTheSameEndsByTheTimesOfTheStages) {
  decision_.times = {{10, 11, 12}, {20, 21, 22}};
  const std::vector<plans::StageEnds> ends = plans::action_ends(decision_.plan, decision_.times);
  for (uint32_t id : {1, 2}) {
    const net::Assign assign = PlanOrders(decision_, members_, {.devices = true}, {}).of({id});
    EXPECT_EQ(assign.plan.device_leader, plans::WorkerId{1});
    for (size_t stage : {0, 1}) EXPECT_EQ(assign.plan.stages.at(stage).ends, ends[stage]) << stage;
    EXPECT_EQ(assign.peers.size(), 2u) << "workers 3 and 4 are none";
  }
}

}  // namespace
}  // namespace skein::actors
