#include "actors/coordinator/coordinator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/send.hpp>

#include "absl/strings/str_cat.h"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "tests/actors/recording_link.hpp"
#include "tests/actors/small_job.hpp"

namespace skein::actors {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Body = RecordingLink::Body;

constexpr uint64_t kTerm = 3;
constexpr uint64_t kGeneration = 1;

/// Keeps the events of a run.
struct Events : RunObserver {
  void on_plan(const plans::Plan&, double) override {}
  void on_profiles(const plans::ReportProfiles&) override {}
  void on_step(const StepReport& report) override { steps.push_back(report); }
  void on_validation(const ValidationReport&) override {}
  void on_checkpoint(const CheckpointReport&) override {}
  void on_timings(const TimingsReport&) override {}
  void on_event(const EventReport& report) override { all.push_back(report); }

  std::vector<EventReport> named(const std::string& name) const {
    std::vector<EventReport> found;
    for (const EventReport& each : all) {
      if (each.name == name) found.push_back(each);
    }
    return found;
  }

  std::vector<EventReport> all;
  std::vector<StepReport> steps;
};

/// A coordinator with everything around it played by the test, in virtual time. Two workers hold
/// two stages, or two replicas of one. Worker n is on connection n.
struct CoordinatorRig {
  explicit CoordinatorRig(int64_t ranks = 2, int64_t replicas = 1, bool saves = false) {
    config.set("scheduler.policy", caf::atom("testing"));
    system = std::make_unique<caf::actor_system>(config);
    journal = system->spawn([this]() -> JournalIo::behavior_type {
      return {[this](const JournalRequest& request, const JournalListener&) {
                journaled.push_back(request.record.step);
                norms.push_back(request.record.gradient_norm);
              },
              [](const plans::RewindJournal&) {}, [](const plans::Plan&) {},
              [this](LaterLifeRequest, const LaterLifeListener&) { ++asked_for_later_life; },
              [](TickAtom) {}};
    });
    checkpoints = system->spawn([this]() -> CheckpointIo::behavior_type {
      return {[this](const CheckpointRequest& request, const CheckpointListener&) {
                saved.push_back(request.state.steps_done);
              },
              [](const plans::DeletePartials&) {},
              [](const StartRequest&, const CheckpointListener&) {},
              [this](const LeftStateRequest&, const CheckpointListener& listener) {
                ++asked_for_left_state;
                if (answers_left_state) caf::anon_send(listener, LeftStateFound());
              }};
    });
    remote_shards = system->spawn([this]() -> RemoteShardIo::behavior_type {
      return {[this](const plans::ReceiveShard& shard, const RemoteShardListener&) {
                received.push_back(shard);
              },
              [](const StateArrived&) {}, [](const plans::AbandonShard&) {},
              [](const plans::EndTransfers&) {}};
    });
    layer_source = system->spawn([this]() -> LayerSourceIo::behavior_type {
      return {[this](const LayersRequest& request, const LayersListener&) {
                served.push_back(request);
              },
              [](const plans::EndTransfers&) {}};
    });
    observer = system->spawn(observer_io, static_cast<RunObserver*>(&events), [] {});
    CoordinatorConfig made;
    made.options.job = small_job(ranks, replicas);
    made.options.job.checkpoint.enable = saves;
    made.options.job.checkpoint.interval = 1;
    made.options.worker_count = 2;
    made.term = kTerm;
    made.journal = journal;
    made.checkpoints = checkpoints;
    made.remote_shards = remote_shards;
    made.layer_source = layer_source;
    made.data_address = "127.0.0.1:9";
    made.observer = observer;
    planner_actor = system->spawn(planner, PlannerConfig{});
    made.planner = planner_actor;
    made.checks_invariants = true;
    made.on_result = [this](const RunResult& result) { results.push_back(result.status); };
    actor = system->spawn(coordinator, std::move(made));
    run();
  }
  ~CoordinatorRig() {
    for (const auto& each :
         {caf::actor_cast<caf::actor>(actor), caf::actor_cast<caf::actor>(journal),
          caf::actor_cast<caf::actor>(checkpoints), caf::actor_cast<caf::actor>(remote_shards),
          caf::actor_cast<caf::actor>(layer_source), caf::actor_cast<caf::actor>(observer),
          caf::actor_cast<caf::actor>(planner_actor)}) {
      caf::anon_send_exit(each, caf::exit_reason::user_shutdown);
    }
    run();
    scheduler().clock().cancel_all();
  }

  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system->scheduler());
  }
  void run() { scheduler().run(); }
  template <class Message>
  void tell(Message message) {
    caf::anon_send(actor, std::move(message));
    run();
  }
  void open(plans::PeerNumber peer, net::schema::Role role = net::schema::Role::WORKER) {
    links[peer] = std::make_shared<RecordingLink>();
    tell(PeerOpened{peer, links[peer], role});
  }
  void send(plans::PeerNumber from, net::ControlBody body) {
    tell(PeerMessage{from, {{generation, term, 0, 0, 0, 0}, std::move(body)}});
  }
  void join(plans::PeerNumber from) {
    plans::JoinRequest join;
    join.data_address = absl::StrCat("127.0.0.1:", from);
    send(from, std::move(join));
  }
  void quiesced(plans::PeerNumber from) { send(from, net::Quiesced()); }
  void prepared(plans::PeerNumber from) { send(from, net::Prepared()); }
  /// Starts the plan; both stages are ready, and their step is in the journal.
  void commit_first_step() {
    start();
    ready(0, 0);
    ready(1, 0);
    tell(CommitJournaled{0, absl::OkStatus()});
  }
  void ready(uint32_t replica, uint64_t step, bool needs_groups = false, double norm = 1) {
    plans::ReadyReport ready;
    ready.replica = {replica};
    ready.step = step;
    ready.needs_groups = needs_groups;
    ready.norm_squared = norm;
    send(replica + 1, ready);
  }
  void reduced(uint32_t replica, uint64_t step) {
    send(replica + 1, net::Reduced{{replica}, step, 1});
  }
  void shard_saved(uint32_t stage, uint64_t step) {
    net::ShardSaved saved;
    saved.stage = static_cast<int32_t>(stage);
    saved.step = step;
    for (const std::string kind : {"model", "optimizer"}) {
      saved.files.push_back({gpu::shard_name(kind, saved.stage, 2), 8, 0, {}});
    }
    send(stage + 1, std::move(saved));
  }
  void gather() {
    for (plans::PeerNumber peer : {1, 2}) {
      open(peer);
      join(peer);
    }
    for (plans::PeerNumber peer : {1, 2}) quiesced(peer);
  }
  void start() {
    gather();
    prepared(1);
    prepared(2);
  }
  /// Number of messages of a kind that a worker was sent.
  size_t count(plans::PeerNumber peer, Body::Which kind) {
    return links.at(peer)->bodies(kind).size();
  }
  /// Steps of the commits that a worker was sent.
  std::vector<uint64_t> commits(plans::PeerNumber peer) {
    std::vector<uint64_t> steps;
    for (auto body : links.at(peer)->bodies(Body::COMMIT)) {
      steps.push_back(body.getCommit().getStep());
    }
    return steps;
  }

  uint64_t generation = kGeneration;  // In what workers send.
  uint64_t term = kTerm;
  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> system;
  std::map<plans::PeerNumber, std::shared_ptr<RecordingLink>> links;
  std::vector<uint64_t> journaled;  // Steps.
  int asked_for_later_life = 0;
  int asked_for_left_state = 0;
  bool answers_left_state = true;
  std::vector<double> norms;  // The norms of those steps.
  std::vector<uint64_t> saved;
  std::vector<absl::Status> results;
  JournalIo journal;
  CheckpointIo checkpoints;
  RemoteShardIo remote_shards;
  std::vector<plans::ReceiveShard> received;
  LayerSourceIo layer_source;
  std::vector<LayersRequest> served;
  Events events;
  ObserverIo observer;
  Planner planner_actor;
  Coordinator actor;
};

TEST(Coordinator, ASecondJoinOnOneConnectionIsDropped) {
  CoordinatorRig rig;
  rig.open(1);
  rig.join(1);
  rig.join(1);
  EXPECT_EQ(rig.count(1, Body::JOINED), 1u);
  EXPECT_EQ(rig.count(1, Body::ASSIGN), 0u) << "one worker is not two";
  rig.open(2);
  rig.join(2);
  rig.quiesced(1);
  rig.quiesced(1);
  EXPECT_EQ(rig.count(1, Body::ASSIGN), 0u) << "one that has quiesced is not two";
  rig.quiesced(2);
  EXPECT_EQ(rig.count(1, Body::ASSIGN), 1u);
  rig.join(2);
  EXPECT_EQ(rig.count(2, Body::JOINED), 1u);
  EXPECT_EQ(rig.count(2, Body::ASSIGN), 1u);
  EXPECT_EQ(rig.count(2, Body::REFUSED), 0u);
}

/// Workers that it holds would be missing where the run goes on.
TEST(Coordinator, WhileItWaitsForWorkersItEndsOnceALaterLifeHasBegunAndLetsThemGo) {
  CoordinatorRig rig;
  rig.open(1);
  rig.join(1);
  for (int tick = 0; tick < 200 && rig.asked_for_later_life < 2; ++tick) {
    rig.send(1, net::Heartbeat());
    rig.scheduler().advance_time(std::chrono::milliseconds(200));
    rig.run();
  }
  EXPECT_EQ(rig.asked_for_later_life, 2) << "once a lease";
  rig.tell(LaterLifeBegun{absl::FailedPreconditionError("later")});
  ASSERT_EQ(rig.results.size(), 1u);
  EXPECT_TRUE(absl::IsFailedPrecondition(rig.results.front()));
  EXPECT_EQ(rig.count(1, Body::STOP), 0u) << "it finds the other one";
}

TEST(Coordinator, WhoseCommitIsALaterLifesEndsAndLetsItsWorkersGo) {
  CoordinatorRig rig;
  rig.gather();
  for (plans::PeerNumber worker : {1u, 2u}) rig.prepared(worker);
  rig.ready(0, 0);
  rig.ready(1, 0);
  rig.tell(CommitJournaled{0, absl::FailedPreconditionError("later")});
  ASSERT_EQ(rig.results.size(), 1u);
  EXPECT_EQ(rig.count(1, Body::STOP), 0u);
}

TEST(Coordinator, StrangersAndViewersAreNoMembers) {
  CoordinatorRig rig;
  rig.join(9);
  rig.open(3, net::schema::Role::VIEWER);
  rig.join(3);
  rig.prepared(3);
  EXPECT_THAT(rig.links.at(3)->kinds(), IsEmpty());
  rig.gather();
  rig.prepared(1);
  rig.prepared(3);
  EXPECT_EQ(rig.count(1, Body::START), 0u);
  rig.prepared(2);
  EXPECT_EQ(rig.count(1, Body::START), 1u);
}

TEST(Coordinator, OnlyAViewerIsToldHowTheRunIs) {
  CoordinatorRig rig;
  rig.start();
  rig.open(3, net::schema::Role::VIEWER);
  for (const plans::PeerNumber peer : {1, 3}) rig.send(peer, net::StatusRequest());
  EXPECT_EQ(rig.count(1, Body::STATUS), 0u);
  EXPECT_EQ(rig.count(3, Body::STATUS), 1u);
  rig.ready(0, 0);
  rig.ready(1, 0);
  rig.tell(CommitJournaled{0, absl::OkStatus()});
  ASSERT_EQ(rig.events.steps.size(), 1u);
  EXPECT_EQ(rig.events.steps[0].dropped.of(plans::DropReason::kNotAllowed), 1u);
}

TEST(Coordinator, MessagesOfAnotherTermOrGenerationChangeNothing) {
  const std::vector<std::pair<uint64_t, uint64_t>> wrong = {{kGeneration, kTerm - 1},
                                                            {kGeneration, kTerm + 1},
                                                            {kGeneration, 0},
                                                            {kGeneration - 1, kTerm},
                                                            {kGeneration + 1, kTerm}};
  for (const auto& [generation, term] : wrong) {
    CoordinatorRig rig;
    rig.gather();
    auto of_another = [&](auto act) {
      std::tie(rig.generation, rig.term) = std::pair(generation, term);
      act();
      std::tie(rig.generation, rig.term) = std::pair(kGeneration, kTerm);
    };
    rig.prepared(1);
    of_another([&] { rig.prepared(2); });
    EXPECT_EQ(rig.count(1, Body::START), 0u) << generation << " " << term;
    rig.prepared(2);
    EXPECT_EQ(rig.count(1, Body::START), 1u);
    rig.ready(0, 0);
    of_another([&] { rig.ready(1, 0); });
    EXPECT_THAT(rig.journaled, IsEmpty()) << generation << " " << term;
    rig.ready(1, 0, true);
    of_another([&] { rig.reduced(1, 0); });
    EXPECT_THAT(rig.journaled, IsEmpty()) << generation << " " << term;
    rig.reduced(1, 0);
    EXPECT_THAT(rig.journaled, ElementsAre(0u));
  }
}

TEST(Coordinator, PreparedTwiceStartsTheRunOnce) {
  CoordinatorRig rig;
  rig.gather();
  rig.prepared(1);
  rig.prepared(1);
  EXPECT_EQ(rig.count(1, Body::START), 0u);
  rig.prepared(2);
  rig.prepared(2);
  rig.prepared(1);
  EXPECT_EQ(rig.count(1, Body::START), 1u);
  EXPECT_EQ(rig.count(2, Body::START), 1u);
}

TEST(Coordinator, AReadyTwiceLateOrEarlyDoesNotCommitTwice) {
  CoordinatorRig rig;
  rig.ready(0, 0);
  rig.start();
  for (uint64_t step = 0; step < 3; ++step) {
    rig.ready(0, step, false, 1);
    rig.ready(0, step, false, 99);
    rig.ready(0, step + 1);
    rig.ready(1, step + 1);
    ASSERT_EQ(rig.journaled.size(), step) << "one ready signal is not two";
    rig.ready(1, step);
    rig.ready(1, step);
    ASSERT_EQ(rig.journaled.size(), step + 1);
    EXPECT_DOUBLE_EQ(rig.norms.back(), std::sqrt(2.0)) << "the repeat's norm does not count";
    EXPECT_EQ(rig.commits(1).size(), step) << "not before it is journaled";
    rig.tell(CommitJournaled{step + 1, absl::OkStatus()});
    EXPECT_EQ(rig.commits(1).size(), step) << "another step was journaled";
    rig.tell(CommitJournaled{step, absl::OkStatus()});
    rig.tell(CommitJournaled{step, absl::OkStatus()});
    rig.ready(0, step);
    rig.ready(1, step);
  }
  EXPECT_THAT(rig.journaled, ElementsAre(0u, 1u, 2u));
  EXPECT_THAT(rig.commits(1), ElementsAre(0u, 1u, 2u));
  EXPECT_THAT(rig.commits(2), ElementsAre(0u, 1u, 2u));
  EXPECT_THAT(rig.results, IsEmpty());
}

TEST(Coordinator, AReducedBeforeReadyIsDropped) {
  CoordinatorRig rig(1, 2);
  rig.start();
  rig.reduced(0, 0);
  rig.reduced(1, 0);
  rig.ready(0, 0, true);
  rig.ready(1, 0, true);
  EXPECT_THAT(rig.journaled, IsEmpty());
  rig.reduced(0, 0);
  rig.reduced(0, 0);
  rig.reduced(1, 7);
  EXPECT_THAT(rig.journaled, IsEmpty());
  rig.reduced(1, 0);
  EXPECT_THAT(rig.journaled, ElementsAre(0u));
}

TEST(Coordinator, AReportOfAReplicaThatTheSenderDoesNotHoldChangesNothing) {
  CoordinatorRig rig;
  rig.start();
  rig.ready(0, 0);
  plans::ReadyReport foreign;
  foreign.replica = {1};
  rig.send(1, foreign);
  EXPECT_THAT(rig.journaled, IsEmpty()) << "worker 1 speaks for worker 2";
  rig.ready(1, 0);
  EXPECT_THAT(rig.journaled, ElementsAre(0u));
}

TEST(Coordinator, AShardSavedTwiceCompletesNoCheckpoint) {
  CoordinatorRig rig(2, 1, true);
  rig.start();
  rig.shard_saved(0, 1);
  rig.shard_saved(1, 1);
  EXPECT_THAT(rig.saved, IsEmpty()) << "before the commit";
  rig.ready(0, 0);
  rig.ready(1, 0);
  rig.tell(CommitJournaled{0, absl::OkStatus()});
  rig.shard_saved(0, 1);
  rig.shard_saved(0, 1);
  rig.shard_saved(1, 2);
  EXPECT_THAT(rig.saved, IsEmpty());
  rig.shard_saved(1, 1);
  rig.shard_saved(1, 1);
  EXPECT_THAT(rig.saved, ElementsAre(1u));
}

TEST(Coordinator, AShardIsSavedByTheLeaderOfItsStageUnderItsOwnNames) {
  CoordinatorRig rig(2, 1, true);
  rig.commit_first_step();
  rig.shard_saved(0, 1);
  net::ShardSaved foreign;
  foreign.stage = 1;
  foreign.step = 1;
  foreign.files = {{gpu::shard_name("model", 1, 2), 8, 0, {}},
                   {gpu::shard_name("optimizer", 1, 2), 8, 0, {}}};
  rig.send(1, foreign);
  EXPECT_THAT(rig.saved, IsEmpty()) << "worker 1 speaks for stage 1";
  foreign.files[0].name = gpu::shard_name("model", 0, 2);
  rig.send(2, foreign);
  EXPECT_THAT(rig.saved, IsEmpty()) << "a file of stage 0";
  foreign.files.pop_back();
  rig.send(2, foreign);
  EXPECT_THAT(rig.saved, IsEmpty()) << "a file is missing";
  rig.shard_saved(1, 1);
  EXPECT_THAT(rig.saved, ElementsAre(1u));
}

TEST(Coordinator, AShardThatIsSentCountsOnceItIsWrittenHere) {
  CoordinatorRig rig(2, 1, true);
  rig.commit_first_step();
  rig.shard_saved(0, 1);
  rig.send(1, net::ShardSent{1, 1});
  EXPECT_THAT(rig.received, IsEmpty()) << "worker 1 speaks for stage 1";
  rig.send(2, net::ShardSent{1, 1});
  rig.send(2, net::ShardSent{1, 1});
  ASSERT_EQ(rig.received.size(), 1u);
  ShardReceived written{rig.received[0], std::vector<gpu::SavedFile>()};
  for (const std::string kind : {"model", "optimizer"}) {
    written.files->push_back({gpu::shard_name(kind, 1, 2), 8, 0, {}});
  }
  ShardReceived late = written;
  late.shard.generation = kGeneration - 1;
  rig.tell(late);
  EXPECT_THAT(rig.saved, IsEmpty()) << "of a plan that is over";
  rig.tell(written);
  rig.tell(written);
  EXPECT_THAT(rig.saved, ElementsAre(1u));
}

TEST(Coordinator, AShardThatCannotBeWrittenHereFailsItsCheckpoint) {
  CoordinatorRig rig(2, 1, true);
  rig.commit_first_step();
  rig.send(2, net::ShardSent{1, 1});
  ASSERT_EQ(rig.received.size(), 1u);
  rig.tell(ShardReceived{rig.received[0], absl::UnavailableError("disk full")});
  const std::vector<EventReport> failed = rig.events.named("checkpoint.failed");
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_THAT(failed[0].text, testing::HasSubstr("disk full"));
}

TEST(Coordinator, AWorkerThatDoesNotSeeTheCheckpointIsSentItsLayersOnce) {
  CoordinatorRig rig(2, 1, true);
  rig.gather();
  rig.send(2, net::LayersWanted());
  rig.send(2, net::LayersWanted());
  rig.send(3, net::LayersWanted());
  ASSERT_EQ(rig.served.size(), 1u) << "a repeat, and somebody who is no member";
  EXPECT_EQ(rig.served[0].order.worker, plans::WorkerId{2});
  EXPECT_EQ(rig.served[0].order.generation, kGeneration);
  EXPECT_THAT(rig.served[0].order.layers, ElementsAre(2, 3)) << "a block and the head";
  EXPECT_EQ(rig.served[0].address, "127.0.0.1:2");
  EXPECT_EQ(rig.events.named("checkpoint.served").size(), 1u);
  rig.tell(LayersUnreadable{kGeneration - 1, {2}, absl::DataLossError("damaged")});
  EXPECT_THAT(rig.events.named("checkpoint.unreadable"), IsEmpty()) << "of a plan that is over";
  rig.tell(LayersUnreadable{kGeneration, {2}, absl::DataLossError("damaged")});
  EXPECT_EQ(rig.events.named("checkpoint.unreadable").size(), 1u);
  rig.prepared(1);
  rig.prepared(2);
  rig.send(1, net::LayersWanted());
  EXPECT_EQ(rig.served.size(), 1u) << "it trains";
}

TEST(Coordinator, WhileNoCheckpointCanBeMadeOfWhatWorkersHaveLeftThereIsNoPlan) {
  CoordinatorRig rig(2, 1, true);
  rig.commit_first_step();
  rig.answers_left_state = false;
  rig.send(2, net::Failed{"its device is gone", /*bad_input=*/false, /*stays=*/false});
  rig.generation = kGeneration + 1;
  rig.quiesced(1);
  ASSERT_EQ(rig.asked_for_left_state, 1);
  for (int attempt = 0; attempt < 3; ++attempt) {
    rig.tell(LeftStateFound{absl::ResourceExhaustedError("no space"), {}, /*is_retried=*/true});
    EXPECT_EQ(rig.count(1, Body::ASSIGN), 1u) << "no step is taken back";
  }
  EXPECT_EQ(rig.events.named("checkpoint.waiting").size(), 1u);
  EXPECT_THAT(rig.events.named("checkpoint.passed_over"), IsEmpty());
  rig.tell(LeftStateFound{absl::OkStatus(), {"run/checkpoint/step-00000001", 1, {}}});
  EXPECT_EQ(rig.count(1, Body::ASSIGN), 2u);
  EXPECT_EQ(rig.events.named("checkpoint.adopted").size(), 1u);
  EXPECT_THAT(rig.events.named("run.rolled_back"), IsEmpty());
}

TEST(Coordinator, WhatAMemberWithoutAPartSaysReachesNobody) {
  CoordinatorRig rig;
  rig.start();
  rig.open(3);
  rig.join(3);
  const size_t before = rig.count(1, Body::RENDEZVOUS);
  rig.send(3, net::RendezvousEntry{"a key", {'v'}, {}});
  EXPECT_EQ(rig.count(1, Body::RENDEZVOUS), before);
  rig.send(2, net::RendezvousEntry{"a key", {'v'}, {}});
  EXPECT_EQ(rig.count(1, Body::RENDEZVOUS), before + 1);
  EXPECT_EQ(rig.count(3, Body::RENDEZVOUS), 0u) << "it has no part";
  rig.send(2, net::RendezvousEntry{"a key", {'v'}, {{1}, {2}, {3}, {99}}});
  EXPECT_EQ(rig.count(1, Body::RENDEZVOUS), before + 2);
  EXPECT_EQ(rig.count(2, Body::RENDEZVOUS), 0u) << "it was its own";
  EXPECT_EQ(rig.count(3, Body::RENDEZVOUS), 0u);
  rig.send(2, net::RendezvousEntry{"a key", {'v'}, {{3}}});
  EXPECT_EQ(rig.count(1, Body::RENDEZVOUS), before + 2) << "it is for another one";
}

TEST(Coordinator, ASilentWorkerIsTurnedOutOnceAndTheOthersQuiesce) {
  CoordinatorRig rig;
  rig.start();
  for (int second = 0; second < 15; ++second) {
    rig.send(1, net::Heartbeat());
    for (int tick = 0; tick < 5; ++tick) {
      rig.scheduler().advance_time(std::chrono::milliseconds(200));
      rig.run();
    }
    if (second < 9) {
      ASSERT_FALSE(rig.links.at(2)->closed()) << "after second " << second;
    }
  }
  EXPECT_TRUE(rig.links.at(2)->closed());
  EXPECT_FALSE(rig.links.at(1)->closed());
  EXPECT_EQ(rig.count(1, Body::QUIESCE), 2u) << "for the first plan and for the second";
  EXPECT_THAT(rig.results, IsEmpty());
}

TEST(Coordinator, WhatALostWorkerStillSendsHasNoEffect) {
  CoordinatorRig rig;
  rig.start();
  rig.ready(0, 0);
  rig.tell(PeerClosed{2, absl::UnavailableError("gone")});
  rig.ready(1, 0);
  rig.generation = kGeneration + 1;
  rig.ready(1, 0);
  rig.quiesced(2);
  EXPECT_THAT(rig.journaled, IsEmpty());
  EXPECT_EQ(rig.count(1, Body::ASSIGN), 1u);
  rig.quiesced(1);
  EXPECT_EQ(rig.count(1, Body::ASSIGN), 2u);
}

TEST(Coordinator, AMessageThatDoesNotDecodeIsToldOfAndItsWorkerIsLost) {
  CoordinatorRig rig;
  rig.start();
  const absl::Status why = absl::InvalidArgumentError("Ready.step is 9, at most 8");
  rig.tell(PeerClosed{2, why});
  rig.tell(PeerClosed{2, why});
  const std::vector<EventReport> told = rig.events.named("peer.malformed");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].fields.at("reason"), "Ready.step is 9, at most 8");
  EXPECT_EQ(told[0].fields.at("worker"), "2");
  EXPECT_EQ(rig.events.named("worker.lost").size(), 1u);
  // Whoever had not joined is told of, too.
  rig.open(3);
  rig.tell(PeerClosed{3, why});
  ASSERT_EQ(rig.events.named("peer.malformed").size(), 2u);
  EXPECT_EQ(rig.events.named("peer.malformed")[1].fields.at("count"), "2");
  rig.open(4);
  rig.tell(PeerClosed{4, absl::UnavailableError("gone")});
  EXPECT_EQ(rig.events.named("peer.malformed").size(), 2u);
}

TEST(Coordinator, WhoeverJoinsAndGoesFillsNoDisk) {
  CoordinatorRig rig;
  rig.start();
  const size_t before = rig.events.all.size();
  const absl::Status gone = absl::UnavailableError("gone");
  for (plans::PeerNumber peer = 3; peer < 3 + kJoinerLimits.at_once; ++peer) {
    rig.open(peer);
    rig.join(peer);
    rig.tell(PeerClosed{peer, gone});
  }
  EXPECT_LE(rig.events.all.size(), before + kJoinerLimits.at_once);
  EXPECT_GE(rig.events.named("worker.lost").size(), kJoinerLimits.at_once / 4) << "at first";

  rig.tell(PeerClosed{2, gone});
  EXPECT_EQ(rig.events.named("worker.lost").back().fields.at("worker"), "2")
      << "it had a part: it is told of";

  for (uint64_t us = 0; us <= kJoinerLimits.every_us; us += 200'000) {
    rig.scheduler().advance_time(std::chrono::milliseconds(200));
    rig.run();
  }
  EXPECT_EQ(rig.events.named("worker.unlisted").size(), 1u);
}

}  // namespace
}  // namespace skein::actors
