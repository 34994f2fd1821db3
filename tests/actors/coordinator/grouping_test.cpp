#include "actors/coordinator/grouping.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/send.hpp>

#include "plans/sync/allreduce.hpp"

namespace skein::actors {
namespace {

using std::chrono::microseconds;

/// Starts a group of one `kPatienceUs` after the last ready signal, and counts what it is told.
class PatientPolicy final : public plans::GroupScheduler {
 public:
  static constexpr uint64_t kPatienceUs = 1000;

  plans::GroupDecisions on_ready(const plans::ReadySignal& signal, uint64_t now_us) override {
    waits_ = signal;
    due_us_ = now_us + kPatienceUs;
    return {{}, due_us_};
  }
  plans::GroupDecisions on_timer(uint64_t now_us) override {
    ++timers;
    EXPECT_GE(now_us, due_us_);
    plans::GroupStart start;
    start.members = {{waits_.replica, waits_.step, 1}};
    return {{start}, {}};
  }
  plans::GroupDecisions on_group_end(const plans::GroupOutcome&, uint64_t) override {
    ++outcomes;
    return {};
  }
  plans::GroupDecisions on_membership(const plans::MembershipChange&, uint64_t) override {
    ++changes;
    return {};
  }

  int timers = 0, outcomes = 0, changes = 0;

 private:
  plans::ReadySignal waits_;
  uint64_t due_us_ = 0;
};

struct GroupingTest : testing::Test {
  GroupingTest() {
    config.set("scheduler.policy", caf::atom("testing"));
    system = std::make_unique<caf::actor_system>(config);
    listener = system->spawn([this]() -> GroupingListener::behavior_type {
      return {[this](const GroupStarted& each) { started.push_back(each); }};
    });
  }
  ~GroupingTest() override {
    caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(listener, caf::exit_reason::user_shutdown);
    run();
  }

  void host(std::shared_ptr<plans::GroupScheduler> policy) {
    actor = system->spawn(grouping, std::move(policy), 7, listener);
  }
  void host_allreduce() {
    host(std::make_shared<plans::AllreducePolicy>(
        std::vector<plans::ReductionGroup>{{{0}, plans::GroupScope::kStage, 1, {{2}, {3}}},
                                           {{1}, plans::GroupScope::kStage, 2, {{4}, {5}}},
                                           {{2}, plans::GroupScope::kTied, 0, {{3}, {5}}}},
        10));
  }
  void ready(uint32_t replica, uint64_t step) {
    caf::anon_send(actor, plans::ReadySignal{{replica}, step});
    run();
  }
  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system->scheduler());
  }
  void run() { scheduler().run(); }
  void advance(microseconds time) {
    scheduler().advance_time(time);
    run();
  }

  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> system;
  std::vector<GroupStarted> started;
  GroupingListener listener;
  Grouping actor;
};

TEST_F(GroupingTest, FormsAGroupWhenTheLastMemberIsReady) {
  host_allreduce();
  ready(4, 10);
  EXPECT_TRUE(started.empty());
  ready(5, 10);
  ASSERT_EQ(started.size(), 1u);
  EXPECT_EQ(started[0].generation, 7u);
  EXPECT_EQ(started[0].start.group, plans::GroupId{1});
  const std::vector<plans::GroupMember> members = {{{4}, 10, 1}, {{5}, 10, 1}};
  EXPECT_EQ(started[0].start.members, members);
}

TEST_F(GroupingTest, StartsAllGroupsThatAReplicaCompletes) {
  host_allreduce();
  ready(4, 10);
  ready(3, 10);
  ready(5, 10);
  ASSERT_EQ(started.size(), 2u);
  EXPECT_EQ(started[0].start.group, plans::GroupId{1});
  EXPECT_EQ(started[1].start.group, plans::GroupId{2});
}

TEST_F(GroupingTest, RepeatsLateAndForeignSignalsChangeNothing) {
  host_allreduce();
  ready(4, 10);
  ready(4, 10);
  ready(9, 10);
  ready(5, 9);
  ready(5, 11);
  EXPECT_TRUE(started.empty());
  ready(5, 10);
  ready(5, 10);
  EXPECT_EQ(started.size(), 1u);
}

TEST_F(GroupingTest, WakesThePolicyAtItsLastWishOnly) {
  auto policy = std::make_shared<PatientPolicy>();
  host(policy);
  ready(0, 1);
  advance(microseconds(PatientPolicy::kPatienceUs / 2));
  ready(1, 1);
  advance(microseconds(PatientPolicy::kPatienceUs - 1));
  EXPECT_EQ(policy->timers, 0);
  advance(microseconds(1));
  advance(microseconds(10 * PatientPolicy::kPatienceUs));
  EXPECT_EQ(policy->timers, 1);
  ASSERT_EQ(started.size(), 1u);
  EXPECT_EQ(started[0].start.members[0].replica, plans::ReplicaId{1});
}

TEST_F(GroupingTest, TellsThePolicyOfOutcomesAndMembers) {
  auto policy = std::make_shared<PatientPolicy>();
  host(policy);
  caf::anon_send(actor, plans::GroupOutcome{0, false});
  caf::anon_send(actor, plans::MembershipChange{1, true, 5});
  run();
  EXPECT_EQ(policy->outcomes, 1);
  EXPECT_EQ(policy->changes, 1);
}

}  // namespace
}  // namespace skein::actors
