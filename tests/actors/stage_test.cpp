#include "actors/stage.hpp"

#include <gtest/gtest.h>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/send.hpp>

#include "plans/sync/allreduce.hpp"

namespace skein::actors {
namespace {

struct StageTest : testing::Test {
  StageTest() {
    config.set("scheduler.policy", caf::atom("testing"));
    system = std::make_unique<caf::actor_system>(config);
    StageListener listener = system->spawn([this]() -> StageListener::behavior_type {
      return {[this](const plans::GroupStartDecision& decision) { decisions.push_back(decision); }};
    });
    const plans::ReductionGroup group{{2}, plans::GroupScope::kStage, 2, {{4}, {5}}};
    actor = system->spawn(stage, std::make_shared<plans::AllreducePolicy>(group, 10), 7, listener);
    held = std::move(listener);
  }
  ~StageTest() override {
    caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(held, caf::exit_reason::user_shutdown);
    run();
  }

  void ready(uint32_t replica, uint64_t step) {
    caf::anon_send(actor, plans::ReadySignal{{replica}, step});
    run();
  }
  void run() { dynamic_cast<caf::scheduler::test_coordinator&>(system->scheduler()).run(); }

  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> system;
  std::vector<plans::GroupStartDecision> decisions;
  StageListener held;
  Stage actor;
};

TEST_F(StageTest, FormsAGroupWhenTheLastMemberIsReady) {
  ready(4, 10);
  EXPECT_TRUE(decisions.empty());
  ready(5, 10);
  ASSERT_EQ(decisions.size(), 1u);
  EXPECT_EQ(decisions[0].step, 10u);
  EXPECT_EQ(decisions[0].members.size(), 2u);
}

TEST_F(StageTest, RepeatsLateAndForeignSignalsChangeNothing) {
  ready(4, 10);
  ready(4, 10);
  ready(9, 10);
  ready(5, 9);
  ready(5, 11);
  EXPECT_TRUE(decisions.empty());
  ready(5, 10);
  ready(5, 10);
  EXPECT_EQ(decisions.size(), 1u);
}

}  // namespace
}  // namespace skein::actors
