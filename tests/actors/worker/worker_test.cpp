#include "actors/worker/worker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/end_process.hpp"
#include "plans/profile/estimate.hpp"
#include "tests/actors/replica/replica_rig.hpp"

namespace skein::actors {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Body = RecordingLink::Body;
using std::chrono_literals::operator""s;

/// Worker 1 with everything around it played by the test, in virtual time.
struct WorkerRig {
  WorkerRig() {
    config.set("scheduler.policy", caf::atom("testing"));
    system = std::make_unique<caf::actor_system>(config);
    prepare = system->spawn([this]() -> PrepareIo::behavior_type {
      return {[this](const PrepareRequest& request, const PrepareListener&) {
                prepares.push_back(request);
              },
              [this](const SendStateRequest& request, const PrepareListener&) {
                sent_states.push_back(request);
              },
              [](const ProfileWork&, const PrepareListener&) {},
              [this](const EmergencyRequest& request, const PrepareListener&) {
                emergencies.push_back(request);
              },
              [this](const EmergencyComing& each) { comings.push_back(each); }};
    });
    shards = system->spawn([]() -> ShardIo::behavior_type {
      return {[](const ShardRequest&, const ShardListener&) {},
              [](const SnapshotRequest&, const SnapshotListener&) {}};
    });
    text_stage = system->spawn([this]() -> TextStageIo::behavior_type {
      return {[this](const TextMeasurement&, const TextListener&) { texts += "measure "; },
              [this](const TextAssignment&) { texts += "assign "; },
              [this](const plans::TextStep&) { texts += "step "; }, [](const TextRow&) {}};
    });
    work = device->spawn(*system);
    actor = system->spawn(worker, make_config());
    run();
  }
  ~WorkerRig() {
    caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(prepare, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(shards, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(text_stage, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(work, caf::exit_reason::user_shutdown);
    run();
    device->drop_work();
  }

  WorkerConfig make_config() {
    WorkerConfig made;
    made.options.parse_job = [this](const std::string&) {
      return absl::StatusOr<plans::JobSpec>(job);
    };
    made.options.on_waiting = [this](const std::string& why, double) { waits.push_back(why); };
    made.parts.make_device = [this](const plans::JobSpec&, const std::string&) {
      return WorkerDevice{device, nullptr};
    };
    made.parts.spawn_device = [this](const std::shared_ptr<gpu::Device>&) { return work; };
    made.parts.make_text_stage = [this] { return text_stage; };
    made.parts.make_shard_io = [this](const ShardIoConfig&) { return shards; };
    made.plane = plane;
    made.prepare = prepare;
    made.connect = [this](uint64_t attempt, double) { attempts.push_back(attempt); };
    made.on_end = [this](absl::Status status, bool is_at_work) {
      ends.push_back(std::move(status));
      ends_at_work = is_at_work;
    };
    return made;
  }

  void run() { scheduler().run(); }
  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system->scheduler());
  }
  template <class Message>
  void tell(Message message) {
    caf::anon_send(actor, std::move(message));
    run();
  }
  void control(uint64_t generation, net::ControlBody body) {
    net::EnvelopeHead head;
    head.generation = generation;
    head.term = 1;
    tell(LinkMessage{attempts.back(), {head, std::move(body)}});
  }
  void open() { tell(LinkOpened{attempts.back(), link}); }
  void joined(const std::string& run = "small-1", uint64_t config_digest = 0) {
    net::Joined joined;
    joined.worker = {1};
    joined.run = run;
    joined.config_digest = config_digest;
    control(0, std::move(joined));
  }
  void join() {
    open();
    joined();
  }
  void quiesce(uint64_t generation) { control(generation, net::Quiesce()); }
  /// A plan of one stage on this worker, from step `first_step` on.
  void assign(uint64_t generation, uint64_t first_step = 0, bool fetches = false) {
    plan = plans::make_layout_plan(job, {{1}}, generation).value();
    net::Assign assign;
    assign.plan = plans::PlanParts(plan, {}, {}).of({1});
    assign.restore.first_step = first_step;
    assign.peers = {{{1}, "127.0.0.1:1"}, {{2}, "127.0.0.1:2"}};
    assign.config_digest = config_digest;
    if (fetches) assign.restore.moves.push_back({0, {2}, {1}});
    control(generation, std::move(assign));
  }
  void prepared(uint64_t generation, absl::Status status = absl::OkStatus()) {
    PreparedReplicas result;
    result.generation = generation;
    result.status = std::move(status);
    if (result.status.ok()) result.replicas.push_back(first_replica());
    tell(std::move(result));
  }
  PreparedReplica first_replica() {
    gpu::StageModelOptions options;
    options.model = job.model;
    options.layers = plan.stages[0].layers;
    options.rows = plans::replica_of(plan, {0}).rows.count;
    options.seq_len = job.training.seq_len;
    options.stash_count = 2;
    return {{0}, gpu::StageModel::create(options, *device).value(), options, {}};
  }
  void start(uint64_t generation) { control(generation, net::Start()); }
  /// Up to a Replica that waits for its start.
  void host(uint64_t generation) {
    quiesce(generation);
    assign(generation);
    prepared(generation);
  }
  /// Trained under the first plan, it is to prepare the second one.
  void train_until_plan_two() {
    host(1);
    start(1);
    quiesce(2);
    while (end_one()) continue;
    assign(2);
  }
  bool end_one() {
    const bool ended = device->end_one();
    run();
    return ended;
  }
  size_t count(Body::Which kind) const { return link->bodies(kind).size(); }
  /// Steps of the states that the newest inventory lists.
  std::vector<uint64_t> inventory() const {
    std::vector<uint64_t> steps;
    const auto all = link->bodies(Body::QUIESCED);
    if (all.empty()) return steps;
    auto last = all.back();
    for (auto each : last.getQuiesced().getInventory()) steps.push_back(each.getStep());
    return steps;
  }

  plans::JobSpec job = small_job(1, 1);
  plans::Plan plan;
  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> system;
  std::shared_ptr<HandDevice> device = std::make_shared<HandDevice>();
  std::shared_ptr<HandPlane> plane = std::make_shared<HandPlane>();
  std::shared_ptr<RecordingLink> link = std::make_shared<RecordingLink>();
  uint64_t config_digest = 0;  // The plans that are assigned have it.
  std::vector<std::string> waits;
  std::vector<uint64_t> attempts;
  std::vector<absl::Status> ends;
  bool ends_at_work = false;  // The last of `ends`.
  std::vector<PrepareRequest> prepares;
  std::vector<SendStateRequest> sent_states;
  std::vector<EmergencyRequest> emergencies;
  std::vector<EmergencyComing> comings;
  PrepareIo prepare;
  ShardIo shards;
  TextStageIo text_stage;
  std::string texts;  // What it was told.
  Device work;
  Worker actor;
};

TEST(Worker, JoinsOnceForEachLinkAndThenBeats) {
  WorkerRig rig;
  EXPECT_THAT(rig.attempts, ElementsAre(1u));
  rig.open();
  EXPECT_EQ(rig.count(Body::JOIN), 1u);
  rig.scheduler().advance_time(10s);
  rig.run();
  EXPECT_EQ(rig.count(Body::HEARTBEAT), 0u) << "it is no member yet";
  rig.joined();
  rig.joined();
  rig.scheduler().advance_time(1s);
  rig.run();
  EXPECT_GE(rig.count(Body::HEARTBEAT), 1u);
  EXPECT_EQ(rig.count(Body::JOIN), 1u);
}

TEST(Worker, ALostLinkIsMadeAnewAndSaysWhoItWas) {
  WorkerRig rig;
  rig.join();
  rig.tell(LinkClosed{7, absl::UnavailableError("of another attempt")});
  EXPECT_THAT(rig.attempts, ElementsAre(1u));
  rig.tell(LinkClosed{1, absl::UnavailableError("gone")});
  EXPECT_THAT(rig.attempts, ElementsAre(1u, 2u));
  rig.open();
  auto joins = rig.link->bodies(Body::JOIN);
  ASSERT_EQ(joins.size(), 2u);
  EXPECT_EQ(joins[0].getJoin().getPreviousWorker(), 0u);
  EXPECT_EQ(joins[1].getJoin().getPreviousWorker(), 1u);
  EXPECT_THAT(rig.ends, IsEmpty());
}

TEST(Worker, LooksOnForItsOwnRunWhereAnotherOneAnswers) {
  for (bool is_refused : {true, false}) {  // It is taken in by a coordinator that does not look.
    WorkerRig rig;
    rig.join();
    rig.host(1);
    rig.tell(LinkClosed{1, absl::UnavailableError("gone")});
    rig.open();
    const size_t quiesced = rig.count(Body::QUIESCED);
    if (is_refused) {
      rig.control(0,
                  net::Refused{"this worker serves run small-1, here is run other-2", "other-2"});
    } else {
      rig.joined("other-2");
    }
    rig.quiesce(2);
    while (rig.end_one()) continue;
    EXPECT_EQ(rig.count(Body::QUIESCED), quiesced) << "of another run";
    ASSERT_EQ(rig.waits.size(), 1u);
    EXPECT_THAT(rig.waits[0], ::testing::HasSubstr("serves run small-1"));
    EXPECT_THAT(rig.waits[0], ::testing::HasSubstr("is run other-2"));
    EXPECT_THAT(rig.attempts, ElementsAre(1u, 2u)) << "not at once";
    rig.scheduler().advance_time(3s);
    rig.run();
    ASSERT_EQ(rig.attempts.size(), 3u);
    rig.join();
    auto joins = rig.link->bodies(Body::JOIN);
    EXPECT_EQ(joins.back().getJoin().getRun(), "small-1");
    rig.quiesce(2);
    while (rig.end_one()) continue;
    EXPECT_EQ(rig.count(Body::QUIESCED), quiesced + 1) << "it goes on with its own run";
    EXPECT_THAT(rig.ends, IsEmpty());
  }
}

TEST(Worker, WhoWasOneOfTheRunIsNotToldThatItWasCalledWrongly) {
  for (const bool was_member : {false, true}) {
    WorkerRig rig;
    rig.job.checkpoint.enable = false;
    if (was_member) {
      rig.join();
      rig.tell(LinkClosed{1, absl::UnavailableError("gone")});
    }
    rig.open();
    rig.control(0, net::Refused{"the run takes no more workers", ""});
    ASSERT_EQ(rig.ends.size(), 1u);
    EXPECT_EQ(absl::IsUnavailable(rig.ends[0]), was_member) << rig.ends[0];
  }
}

TEST(Worker, LooksForItsRunNoLongerThanForACoordinatorThatDoesNotAnswer) {
  WorkerRig rig;
  rig.job.elastic.coordinator_timeout_seconds = 20;
  rig.join();
  rig.tell(LinkClosed{1, absl::UnavailableError("gone")});
  for (int second = 0; second < 30 && rig.ends.empty(); ++second) {
    if (rig.attempts.size() > rig.count(Body::JOIN)) {
      rig.open();
      rig.control(0, net::Refused{"another run", "other-2"});
    }
    rig.scheduler().advance_time(1s);
    rig.run();
  }
  ASSERT_EQ(rig.ends.size(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(rig.ends[0]));
  EXPECT_THAT(std::string(rig.ends[0].message()), ::testing::HasSubstr("other-2"));
  EXPECT_GE(rig.attempts.size(), 9u);
  EXPECT_LE(rig.attempts.size(), 25u);
}

/// Until its coordinator, which is gone, has been looked for in vain.
void abandon(WorkerRig& rig, bool saves = true) {
  rig.job.checkpoint.enable = saves;
  rig.join();
  rig.host(1);
  rig.start(1);
  rig.tell(LinkClosed{1, absl::UnavailableError("gone")});
  rig.tell(LinkClosed{2, absl::UnavailableError("nobody answers")});
  while (rig.end_one()) continue;
}

TEST(Worker, WhoGivesUpItsCoordinatorFirstWritesWhatItHolds) {
  WorkerRig rig;
  abandon(rig);
  EXPECT_THAT(rig.ends, IsEmpty()) << "it is being written";
  ASSERT_EQ(rig.emergencies.size(), 1u);
  EXPECT_EQ(rig.emergencies[0].run, "small-1");
  ASSERT_EQ(rig.emergencies[0].held.size(), 1u);
  EXPECT_EQ(rig.emergencies[0].held[0].layers.end, plans::layer_count(rig.job.model));
  rig.joined();  // Too late.
  rig.tell(EmergencySaved{{"/run/checkpoint/x"}, absl::OkStatus()});
  ASSERT_EQ(rig.ends.size(), 1u);
  EXPECT_THAT(std::string(rig.ends[0].message()), ::testing::HasSubstr("nobody answers"));
  EXPECT_THAT(std::string(rig.ends[0].message()), ::testing::HasSubstr("/run/checkpoint/x"));
}

TEST(Worker, WhoGivesUpItsCoordinatorWritesAlsoAStepOfWhichOnlyAQuiesceHasTold) {
  WorkerRig rig;
  rig.job.checkpoint.enable = true;
  rig.join();
  rig.host(1);
  rig.start(1);
  while (rig.end_one()) continue;
  net::Quiesce order;  // The commit was on a connection that broke.
  order.committed_steps = 1;
  order.committed_generation = 1;
  order.gradient_norm = 1;
  rig.control(2, order);
  while (rig.end_one()) continue;
  ASSERT_THAT(rig.inventory(), ElementsAre(1u));
  rig.tell(LinkClosed{1, absl::UnavailableError("gone")});
  rig.tell(LinkClosed{2, absl::UnavailableError("nobody answers")});
  ASSERT_EQ(rig.emergencies.size(), 1u);
  ASSERT_EQ(rig.emergencies[0].held.size(), 1u);
  EXPECT_EQ(rig.emergencies[0].held[0].step, 1u);
}

TEST(Worker, WhatAFailedRunLeavesBehindIsWrittenIfItIsNotOnDisk) {
  for (bool keeps_state : {true, false}) {
    WorkerRig rig;
    rig.job.checkpoint.enable = true;
    rig.join();
    rig.host(1);
    rig.start(1);
    while (rig.end_one()) continue;
    rig.control(1, net::Stop{"no progress for 300 s", keeps_state});
    while (rig.end_one()) continue;
    EXPECT_EQ(rig.emergencies.size(), keeps_state ? 1u : 0u);
    EXPECT_EQ(rig.ends.size(), keeps_state ? 0u : 1u);
    rig.tell(EmergencySaved{{"/run/checkpoint/x"}, absl::OkStatus()});
    ASSERT_EQ(rig.ends.size(), 1u);
    EXPECT_EQ(rig.ends[0].ok(), !keeps_state);
  }
}

TEST(Worker, WhoCannotReadItsInputStaysUntilWhatItHoldsHasMoved) {
  WorkerRig rig;
  rig.join();
  rig.host(1);
  rig.start(1);
  const absl::Status why = absl::DataLossError("data.bin: token 300 is none");
  rig.tell(WorkerFault{why, {}});
  rig.tell(WorkerFault{absl::CancelledError("what comes before it has failed"), {}});
  const auto told = rig.link->bodies(Body::FAILED);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].getFailed().getBadInput());
  EXPECT_TRUE(told[0].getFailed().getStays());
  EXPECT_THAT(rig.ends, IsEmpty());
  rig.tell(WorkerFault{absl::UnavailableError("no answer"), "127.0.0.1:2"});
  EXPECT_EQ(rig.count(Body::PEER_FAILURE), 1u) << "what it holds does not get there";
  rig.tell(LinkClosed{1, absl::UnavailableError("gone")});
  rig.join();
  EXPECT_EQ(rig.count(Body::FAILED), 2u) << "the next one has not heard of it";
  rig.quiesce(2);
  while (rig.end_one()) continue;
  EXPECT_THAT(rig.inventory(), ElementsAre(0u));
  rig.control(2, net::Stop{"drained", false});
  EXPECT_THAT(rig.ends, ElementsAre(why));
}

TEST(Worker, WhoHasNoMemoryForAnotherPlanGivesWhatItHolds) {
  WorkerRig rig;
  rig.join();
  rig.train_until_plan_two();
  rig.prepared(2, absl::ResourceExhaustedError("no memory"));
  ASSERT_EQ(rig.count(Body::FAILED), 1u);
  EXPECT_TRUE(rig.link->bodies(Body::FAILED)[0].getFailed().getStays());
  EXPECT_FALSE(rig.link->bodies(Body::FAILED)[0].getFailed().getBadInput());
  rig.quiesce(3);
  EXPECT_THAT(rig.inventory(), ElementsAre(0u));
}

TEST(Worker, WhoHasNoMemoryForItsFirstPlanStaysForTheNext) {
  WorkerRig rig;
  rig.join();
  rig.quiesce(1);
  rig.assign(1);
  rig.prepared(1, absl::ResourceExhaustedError("no memory"));
  ASSERT_EQ(rig.count(Body::FAILED), 1u);
  EXPECT_TRUE(rig.link->bodies(Body::FAILED)[0].getFailed().getStays());
  EXPECT_THAT(rig.ends, IsEmpty());
  rig.quiesce(2);
  EXPECT_EQ(rig.count(Body::QUIESCED), 2u);
  rig.assign(2);
  rig.prepared(2);
  EXPECT_EQ(rig.count(Body::PREPARED), 1u) << "its part is smaller";
}

TEST(Worker, PreparesAgainWithItsModelsMovedOffAFullDevice) {
  WorkerRig rig;
  rig.join();
  rig.train_until_plan_two();
  ASSERT_EQ(rig.prepares.size(), 2u);
  ASSERT_NE(rig.prepares[1].held.at(0).model, nullptr);
  PreparedReplicas full;
  full.generation = 2;
  full.status = absl::ResourceExhaustedError("no memory");
  full.moved = rig.prepares[1].held;
  full.moved[0].model.reset();
  rig.tell(full);
  ASSERT_EQ(rig.prepares.size(), 3u);
  EXPECT_EQ(rig.prepares[2].held.at(0).model, nullptr);
  EXPECT_EQ(rig.count(Body::FAILED), 0u);
  full.moved.clear();
  rig.tell(full);
  EXPECT_EQ(rig.count(Body::FAILED), 1u);
  rig.quiesce(3);
  rig.assign(3);
  rig.tell(LinkClosed{1, absl::UnavailableError("gone")});
  rig.join();
  EXPECT_EQ(rig.count(Body::FAILED), 1u) << "another plan may need less";
}

TEST(Worker, SaysWhatItHadMeasuredWhereItsPlanLeavesNoMemoryToMeasure) {
  WorkerRig rig;
  rig.join();
  net::ProfileRequest request = {{1}, {{{2}, "127.0.0.1:2"}}};
  rig.control(1, request);
  plans::MeasuredWorker measured;
  measured.profile = plans::estimate_profile(rig.job.model, rig.job.training.seq_len, {1},
                                             rig.job.optimizer, 1e9, 1e9);
  measured.links = {{{2}, {1e9, 50}}, {{3}, {1e9, 50}}};
  rig.tell(ProfileMeasured{absl::OkStatus(), measured});
  rig.host(1);
  rig.control(1, request);
  const absl::Status full = absl::ResourceExhaustedError("no memory");
  rig.tell(ProfileMeasured{full, {}});
  auto told = rig.link->bodies(Body::PROFILED);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].getProfiled().getLinks().size(), 2u);
  EXPECT_EQ(told[1].getProfiled().getLinks().size(), 1u) << "w3 is not asked about";
  request.rows = {2};
  rig.control(1, request);
  rig.tell(ProfileMeasured{full, {}});
  ASSERT_EQ(rig.count(Body::FAILED), 1u) << "it had measured no such rows";
  EXPECT_TRUE(rig.link->bodies(Body::FAILED)[0].getFailed().getStays());
  EXPECT_THAT(rig.ends, IsEmpty());
}

TEST(Worker, WhoHoldsNothingEndsAtOnceIfItCannotReadItsInput) {
  WorkerRig rig;
  rig.join();
  rig.quiesce(1);
  rig.assign(1);
  rig.prepared(1, absl::DataLossError("no such data"));
  ASSERT_EQ(rig.count(Body::FAILED), 1u);
  EXPECT_FALSE(rig.link->bodies(Body::FAILED)[0].getFailed().getStays());
  EXPECT_EQ(rig.ends.size(), 1u);
}

TEST(Worker, WhoGivesUpItsCoordinatorSaysWhyNothingCouldBeWritten) {
  WorkerRig rig;
  abandon(rig);
  rig.tell(EmergencySaved{{}, absl::UnavailableError("no such folder")});
  ASSERT_EQ(rig.ends.size(), 1u);
  EXPECT_THAT(std::string(rig.ends[0].message()), ::testing::HasSubstr("no such folder"));
}

TEST(Worker, WhoGivesUpItsCoordinatorWaitsForSpaceOnTheDisk) {
  WorkerRig rig;
  rig.job.elastic.coordinator_timeout_seconds = 20;
  abandon(rig);
  for (size_t tries = 1; tries < 5; ++tries) {
    ASSERT_EQ(rig.emergencies.size(), tries);
    rig.tell(EmergencySaved{{}, absl::UnavailableError("the disk is full"), true});
    EXPECT_EQ(rig.emergencies.size(), tries) << "not at once";
    rig.scheduler().advance_time(1s);
    rig.run();
  }
  EXPECT_EQ(rig.emergencies.back().held.size(), 1u);
  EXPECT_THAT(rig.ends, IsEmpty());
  for (int second = 0; second < 20; ++second) {
    rig.tell(EmergencySaved{{}, absl::UnavailableError("the disk is full"), true});
    rig.scheduler().advance_time(1s);
    rig.run();
  }
  ASSERT_EQ(rig.ends.size(), 1u);
  EXPECT_THAT(std::string(rig.ends[0].message()), ::testing::HasSubstr("the disk is full"));
  EXPECT_FALSE(rig.ends_at_work) << "nothing is being written";
}

TEST(Worker, AFaultDoesNotCutShortWhatIsWrittenAtTheEnd) {
  WorkerRig rig;
  abandon(rig);
  ASSERT_EQ(rig.emergencies.size(), 1u);
  rig.tell(WorkerFault{absl::InternalError("the CUDA device is lost")});
  rig.tell(StateSent{1, absl::InternalError("the CUDA device is lost")});
  EXPECT_THAT(rig.ends, IsEmpty());
  rig.tell(EmergencySaved{{"/run/checkpoint/x"}, absl::OkStatus()});
  ASSERT_EQ(rig.ends.size(), 1u);
  EXPECT_THAT(std::string(rig.ends[0].message()), ::testing::HasSubstr("/run/checkpoint/x"));
}

TEST(Worker, WhoGivesUpItsCoordinatorDoesNotWaitForADiskForEver) {
  WorkerRig rig;
  rig.job.elastic.coordinator_timeout_seconds = 20;
  abandon(rig);
  for (int second = 0; second < 25; ++second) {
    rig.scheduler().advance_time(1s);
    rig.run();
  }
  EXPECT_EQ(rig.ends.size(), 1u);
  EXPECT_TRUE(rig.ends_at_work) << "the process does not wait for it";
}

/// It has a part in plan 1, and is told to leave.
void begin_to_leave(WorkerRig& rig) {
  rig.join();
  rig.host(1);
  rig.start(1);
  rig.tell(LeaveRequest{"SIGTERM"});
}

/// Second by second, in which its device ends what it is at.
void pass_seconds(WorkerRig& rig, int seconds, bool is_answered) {
  for (int second = 0; second < seconds; ++second) {
    rig.scheduler().advance_time(1s);
    rig.run();
    if (is_answered) rig.control(1, net::HeartbeatAck());
    while (rig.end_one()) continue;
  }
}

/// A process that is told to go is often killed soon after.
TEST(Worker, ALeaverDoesNotWaitForItsCoordinatorAsLongAsOthers) {
  WorkerRig rig;
  rig.job.checkpoint.enable = true;
  rig.job.elastic.coordinator_timeout_seconds = 60;
  begin_to_leave(rig);
  const auto wait = [&](int seconds) { pass_seconds(rig, seconds, /*is_answered=*/true); };
  wait(6);
  EXPECT_THAT(rig.emergencies, IsEmpty()) << "there is somebody who can take what it holds";
  rig.tell(LinkClosed{1, absl::UnavailableError("gone")});
  wait(3);
  EXPECT_THAT(rig.emergencies, IsEmpty()) << "it may be back soon";
  wait(3);
  ASSERT_EQ(rig.emergencies.size(), 1u);
  EXPECT_EQ(rig.emergencies[0].held.size(), 1u);
  rig.tell(EmergencySaved{{"/run/checkpoint/x"}, absl::OkStatus()});
  ASSERT_EQ(rig.ends.size(), 1u);
  EXPECT_THAT(std::string(rig.ends[0].message()), ::testing::HasSubstr("SIGTERM"));
}

TEST(Worker, ALeaverWhoseCoordinatorIsStoppedWritesWhatItHoldsBeforeTheLeaseIsOver) {
  for (const bool can_write : {true, false}) {
    WorkerRig rig;
    rig.job.checkpoint.enable = can_write;
    rig.job.elastic.heartbeat_timeout_seconds = 10;
    begin_to_leave(rig);
    pass_seconds(rig, 3, /*is_answered=*/false);
    EXPECT_THAT(rig.emergencies, IsEmpty());
    pass_seconds(rig, 3, /*is_answered=*/false);
    EXPECT_EQ(rig.emergencies.size(), can_write ? 1u : 0u);
    EXPECT_THAT(rig.ends, IsEmpty()) << "the coordinator may go on, and take what it holds";
  }
}

/// What the coordinator has said meanwhile waits to be read.
TEST(Worker, ALeaverThatWasStoppedItselfGivesNobodyUp) {
  WorkerRig rig;
  rig.job.checkpoint.enable = true;
  rig.job.elastic.heartbeat_timeout_seconds = 10;
  begin_to_leave(rig);
  rig.scheduler().advance_time(5s);
  rig.run();
  while (rig.end_one()) continue;
  EXPECT_THAT(rig.emergencies, IsEmpty());
}

TEST(Worker, WithoutCheckpointsNothingIsWrittenInTheEnd) {
  WorkerRig rig;
  abandon(rig, false);
  EXPECT_THAT(rig.emergencies, IsEmpty());
  EXPECT_EQ(rig.ends.size(), 1u);
}

TEST(Worker, TakesTheConfigurationOfEachCoordinatorButKeepsItsDevice) {
  WorkerRig rig;
  rig.job.optimizer.lr = 1e-3;
  rig.open();
  rig.joined("small-1", 5);
  rig.tell(LinkClosed{1, absl::UnavailableError("gone")});
  rig.job.optimizer.lr = 1e-12;
  rig.job.device.threads = 7;
  rig.open();
  EXPECT_EQ(rig.link->bodies(Body::JOIN).back().getJoin().getConfigDigest(), 5u);
  rig.joined("small-1", 6);
  rig.config_digest = 6;
  rig.quiesce(1);
  rig.assign(1);
  ASSERT_EQ(rig.prepares.size(), 1u);
  EXPECT_EQ(rig.prepares[0].job.optimizer.lr, 1e-12);
  EXPECT_EQ(rig.prepares[0].job.device.threads, 1);
}

TEST(Worker, DoesNotTrainAPlanOfAnotherConfiguration) {
  WorkerRig rig;
  rig.open();
  rig.joined("small-1", 5);
  rig.config_digest = 6;
  rig.quiesce(1);
  rig.assign(1);
  EXPECT_THAT(rig.prepares, IsEmpty());
  EXPECT_EQ(rig.count(Body::FAILED), 1u);
}

TEST(Worker, WhoIsNoMemberConnectsAnewUntilNobodyIsThere) {
  WorkerRig rig;
  rig.open();
  rig.tell(LinkClosed{1, absl::UnavailableError("gone")});
  EXPECT_THAT(rig.ends, IsEmpty()) << "whoever answered may be about to start";
  rig.tell(LinkClosed{2, absl::UnavailableError("gone")});
  ASSERT_EQ(rig.ends.size(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(rig.ends[0]));
}

TEST(Worker, AnswersAQuiesceOnceWithItsInventory) {
  WorkerRig rig;
  rig.join();
  rig.quiesce(1);
  rig.quiesce(1);
  rig.quiesce(0);
  EXPECT_EQ(rig.count(Body::QUIESCED), 1u);
  EXPECT_THAT(rig.inventory(), IsEmpty());
}

TEST(Worker, AnAssignmentIsPreparedOnceAndOnlyInItsGeneration) {
  WorkerRig rig;
  rig.join();
  rig.assign(1);
  EXPECT_THAT(rig.prepares, IsEmpty()) << "nobody has quiesced it";
  rig.quiesce(1);
  rig.assign(1);
  rig.assign(1);
  ASSERT_EQ(rig.prepares.size(), 1u);
  rig.prepared(7);
  EXPECT_EQ(rig.count(Body::PREPARED), 0u) << "of another generation";
  rig.prepared(1);
  rig.prepared(1);
  rig.assign(1);
  EXPECT_EQ(rig.count(Body::PREPARED), 1u);
  EXPECT_EQ(rig.prepares.size(), 1u);
}

TEST(Worker, WaitsForTheLayersOfOthersAndTakesEachOnce) {
  WorkerRig rig;
  rig.join();
  rig.quiesce(1);
  rig.assign(1, 5, true);
  EXPECT_THAT(rig.prepares, IsEmpty());
  const auto kind = net::schema::TensorKind::STATE;
  ASSERT_TRUE(rig.plane->streams.contains(kind));
  const net::TensorHandle layer = make_layer_memory(layer_state_floats(rig.job.model, 0));
  rig.tell(StateArrived{{1, 0, kind, 4, 0}, layer});
  rig.tell(StateArrived{{7, 0, kind, 5, 0}, layer});
  EXPECT_THAT(rig.prepares, IsEmpty()) << "of another step, of another generation";
  rig.tell(StateArrived{{1, 0, kind, 5, 0}, layer});
  rig.tell(StateArrived{{1, 0, kind, 5, 0}, layer});
  ASSERT_EQ(rig.prepares.size(), 1u);
  ASSERT_EQ(rig.prepares[0].held.size(), 1u);
  EXPECT_EQ(rig.prepares[0].held[0].step, 5u);
}

TEST(Worker, ACheckpointThatIsNotSeenHereIsAskedOfTheCoordinator) {
  WorkerRig rig;
  rig.join();
  rig.quiesce(1);
  rig.assign(1, 5);
  PreparedReplicas unseen;
  unseen.generation = 1;
  unseen.status = absl::NotFoundError("no such folder");
  unseen.is_checkpoint_unseen = true;
  rig.tell(unseen);
  rig.tell(unseen);
  EXPECT_EQ(rig.count(Body::LAYERS_WANTED), 1u);
  const auto kind = net::schema::TensorKind::STATE;
  ASSERT_TRUE(rig.plane->streams.contains(kind));
  EXPECT_EQ(rig.plane->streams.at(kind).sender, plans::WorkerId{0}) << "from nobody else";
  const int64_t layers = plans::layer_count(rig.job.model);
  for (int64_t layer = 0; layer < layers; ++layer) {
    EXPECT_EQ(rig.prepares.size(), 1u);
    rig.tell(StateArrived{{1, static_cast<uint32_t>(layer), kind, 5, 0},
                          make_layer_memory(layer_state_floats(rig.job.model, layer))});
  }
  ASSERT_EQ(rig.prepares.size(), 2u);
  EXPECT_FALSE(rig.prepares[1].from_checkpoint);
  EXPECT_EQ(rig.prepares[1].held.size(), static_cast<size_t>(layers));
  rig.prepared(1);
  EXPECT_EQ(rig.count(Body::PREPARED), 1u);
  EXPECT_EQ(rig.count(Body::CHECKPOINT_UNREADABLE), 0u);
}

TEST(Worker, APlanThatIsOverBeforeItIsPreparedNeverRuns) {
  WorkerRig rig;
  rig.join();
  rig.quiesce(1);
  rig.assign(1);
  rig.quiesce(2);
  EXPECT_EQ(rig.count(Body::QUIESCED), 2u);
  rig.prepared(1);
  EXPECT_EQ(rig.count(Body::PREPARED), 0u);
  rig.assign(2);
  EXPECT_EQ(rig.prepares.size(), 2u);
  rig.prepared(2);
  EXPECT_EQ(rig.count(Body::PREPARED), 1u);
}

TEST(Worker, HostsAReplicaAndGivesItsStateWhenItIsQuiesced) {
  WorkerRig rig;
  rig.join();
  rig.host(1);
  EXPECT_EQ(rig.device->submitted.size(), 0u) << "it waits for the start";
  rig.start(1);
  while (rig.end_one()) continue;
  EXPECT_EQ(rig.count(Body::READY), 1u);
  rig.quiesce(2);
  EXPECT_EQ(rig.count(Body::QUIESCED), 1u) << "the device still has its last work";
  rig.assign(2);
  EXPECT_EQ(rig.prepares.size(), 1u) << "the old plan has not ended";
  rig.end_one();
  EXPECT_EQ(rig.count(Body::QUIESCED), 2u);
  EXPECT_THAT(rig.inventory(), ElementsAre(0u));
  rig.assign(2);
  ASSERT_EQ(rig.prepares.size(), 2u);
  EXPECT_EQ(rig.prepares[1].held.size(), 1u) << "the model goes on";
}

/// Its device is at work for plan 1, which is over, and it was let go twice for that.
void let_go_twice(WorkerRig& rig) {
  rig.quiesce(2);
  rig.tell(LinkClosed{1, absl::UnavailableError("dismissed")});
  ASSERT_THAT(rig.attempts, ElementsAre(1u, 2u)) << "it may be slow only";
  rig.join();
  rig.quiesce(3);
  rig.tell(LinkClosed{2, absl::UnavailableError("dismissed")});
}

void hang(WorkerRig& rig) {
  rig.job.elastic.coordinator_timeout_seconds = 20;
  rig.join();
  rig.host(1);
  rig.start(1);
  let_go_twice(rig);
}

TEST(Worker, WhoIsLetGoAgainForNotQuiescingComesBackWhenItsDeviceHasEnded) {
  WorkerRig rig;
  hang(rig);
  for (int second = 0; second < 5; ++second) {
    rig.scheduler().advance_time(1s);
    rig.run();
  }
  EXPECT_EQ(rig.attempts.size(), 2u) << "the others would wait for it";
  while (rig.end_one()) continue;
  for (int second = 0; second < 3; ++second) {
    rig.scheduler().advance_time(1s);
    rig.run();
  }
  EXPECT_EQ(rig.attempts.size(), 3u);
  rig.join();
  rig.quiesce(4);
  EXPECT_THAT(rig.inventory(), ElementsAre(0u));
  EXPECT_THAT(rig.ends, IsEmpty());
}

TEST(Worker, WhoseDeviceNeverEndsWhatItHasBegunEnds) {
  WorkerRig rig;
  hang(rig);
  for (int second = 0; second < 30; ++second) {
    rig.scheduler().advance_time(1s);
    rig.run();
  }
  EXPECT_EQ(rig.attempts.size(), 2u);
  ASSERT_EQ(rig.ends.size(), 1u);
  EXPECT_TRUE(absl::IsDeadlineExceeded(rig.ends[0]));
  EXPECT_THAT(std::string(rig.ends[0].message()), ::testing::HasSubstr("the device has not ended"));
}

/// A snapshot of a stage, in the host's memory.
void keep_snapshot(WorkerRig& rig) {
  SnapshotTaken taken;
  taken.state.layers = {0, plans::layer_count(rig.job.model)};
  rig.tell(std::move(taken));
}

TEST(Worker, WhoseDeviceHangsWritesWhatTheHostHasBeforeItEnds) {
  for (const bool is_coordinator_there : {false, true}) {
    WorkerRig rig;
    rig.job.checkpoint.enable = true;
    rig.job.elastic.coordinator_timeout_seconds = 20;
    rig.join();
    rig.host(1);
    rig.start(1);
    keep_snapshot(rig);
    if (is_coordinator_there) {  // It lets the worker go, twice.
      let_go_twice(rig);
    } else {
      rig.tell(LinkClosed{1, absl::UnavailableError("gone")});
      rig.tell(LinkClosed{2, absl::UnavailableError("nobody answers")});
    }
    for (int second = 0; second < 30 && rig.emergencies.empty(); ++second) {
      EXPECT_THAT(rig.ends, IsEmpty());
      rig.scheduler().advance_time(1s);
      rig.run();
    }
    ASSERT_EQ(rig.emergencies.size(), 1u);
    ASSERT_EQ(rig.emergencies[0].held.size(), 1u);
    EXPECT_EQ(rig.emergencies[0].held[0].model, nullptr) << "the device would have to give it";
    rig.tell(EmergencySaved{{"/run/checkpoint/x"}, absl::OkStatus()});
    EXPECT_EQ(rig.ends.size(), is_coordinator_there ? 1u : 0u) << "it was waited for already";
    for (int second = 0; second < 30; ++second) {
      rig.scheduler().advance_time(1s);
      rig.run();
    }
    EXPECT_EQ(rig.emergencies.size(), 1u);
    ASSERT_EQ(rig.ends.size(), 1u);
    EXPECT_TRUE(rig.ends_at_work) << "the process does not wait for it";
    EXPECT_EQ(absl::IsUnavailable(rig.ends[0]), !is_coordinator_there) << rig.ends[0];
    EXPECT_THAT(std::string(rig.ends[0].message()), ::testing::HasSubstr("only on the device"));
    EXPECT_THAT(std::string(rig.ends[0].message()), ::testing::HasSubstr("/run/checkpoint/x"));
  }
}

TEST(Worker, WhoseDeviceHangsSaysThatWhatItHasIsLost) {
  for (const bool is_coordinator_there : {false, true}) {
    WorkerRig rig;
    rig.job.checkpoint.enable = true;
    if (is_coordinator_there) {
      hang(rig);
    } else {
      rig.job.elastic.coordinator_timeout_seconds = 20;
      rig.join();
      rig.host(1);
      rig.start(1);
      rig.tell(LinkClosed{1, absl::UnavailableError("gone")});
      rig.tell(LinkClosed{2, absl::UnavailableError("nobody answers")});
    }
    for (int second = 0; second < 30; ++second) {
      rig.scheduler().advance_time(1s);
      rig.run();
    }
    EXPECT_THAT(rig.emergencies, IsEmpty()) << "the host's memory has no copies";
    ASSERT_EQ(rig.ends.size(), 1u);
    EXPECT_TRUE(rig.ends_at_work);
    EXPECT_THAT(std::string(rig.ends[0].message()), ::testing::HasSubstr("only on the device"));
  }
}

/// Until it has waited 9 seconds for its coordinator and then for its device, and is to leave.
void abandon_leaver_at_work(WorkerRig& rig, bool has_copies) {
  rig.job.checkpoint.enable = true;
  rig.job.elastic.coordinator_timeout_seconds = 300;
  begin_to_leave(rig);
  if (has_copies) keep_snapshot(rig);
  rig.tell(LinkClosed{1, absl::UnavailableError("gone")});
  for (int second = 0; second < 9; ++second) {
    rig.scheduler().advance_time(1s);
    rig.run();
  }
}

TEST(Worker, ALeaverWaitsForItsDeviceNotAsLongAsOthers) {
  WorkerRig rig;
  abandon_leaver_at_work(rig, /*has_copies=*/true);
  EXPECT_EQ(rig.emergencies.size(), 1u);
}

TEST(Worker, WhoWaitsForItsDeviceSaysThatStateFollows) {
  WorkerRig rig;
  rig.job.checkpoint.enable = true;
  rig.job.elastic.coordinator_timeout_seconds = 300;
  begin_to_leave(rig);
  plans::CommitOrder order;
  order.step = 0;
  rig.control(1, order);
  rig.tell(LinkClosed{1, absl::UnavailableError("gone")});
  for (int second = 0; second < 9; ++second) {
    rig.scheduler().advance_time(1s);
    rig.run();
  }
  ASSERT_THAT(rig.comings, ::testing::Not(IsEmpty()));
  EXPECT_EQ(rig.comings.back().run, "small-1");
  EXPECT_EQ(rig.comings.back().steps_done, 1u);
  EXPECT_EQ(rig.comings.back().generation, 1u);
  const size_t before = rig.comings.size();
  rig.scheduler().advance_time(1s);
  rig.run();
  EXPECT_GT(rig.comings.size(), before) << "again and again";
  while (rig.end_one()) continue;
  ASSERT_EQ(rig.emergencies.size(), 1u);
  const size_t said = rig.comings.size();
  rig.scheduler().advance_time(1s);
  rig.run();
  EXPECT_EQ(rig.comings.size(), said) << "the device has ended";
}

TEST(Worker, WhatASlowDeviceHasIsWrittenAsWellOnceItsWorkHasEnded) {
  for (const bool has_copies : {true, false}) {
    WorkerRig rig;
    abandon_leaver_at_work(rig, has_copies);
    const size_t before = has_copies ? 1 : 0;
    ASSERT_EQ(rig.emergencies.size(), before);
    if (has_copies) rig.tell(EmergencySaved{{"/run/checkpoint/x"}, absl::OkStatus()});
    EXPECT_THAT(rig.ends, IsEmpty()) << "the device has the newest state";
    while (rig.end_one()) continue;
    ASSERT_EQ(rig.emergencies.size(), before + 1);
    ASSERT_EQ(rig.emergencies.back().held.size(), before + 1);
    EXPECT_NE(rig.emergencies.back().held.back().model, nullptr);
    rig.tell(EmergencySaved{{"/run/checkpoint/y"}, absl::OkStatus()});
    ASSERT_EQ(rig.ends.size(), 1u);
    EXPECT_FALSE(rig.ends_at_work);
    EXPECT_THAT(std::string(rig.ends[0].message()),
                ::testing::HasSubstr(has_copies ? "/run/checkpoint/x, /run/checkpoint/y"
                                                : "/run/checkpoint/y"));
    EXPECT_THAT(std::string(rig.ends[0].message()),
                ::testing::Not(::testing::HasSubstr("only on the device")));
  }
}

TEST(Worker, ADeviceThatEndsWhileCopiesAreWrittenIsNotForgotten) {
  for (const bool is_disk_full : {false, true}) {
    WorkerRig rig;
    abandon_leaver_at_work(rig, /*has_copies=*/true);
    ASSERT_EQ(rig.emergencies.size(), 1u);
    while (rig.end_one()) continue;
    EXPECT_EQ(rig.emergencies.size(), 1u) << "one after the other";
    if (is_disk_full) {
      rig.tell(EmergencySaved{{}, absl::UnavailableError("the disk is full"), true});
      rig.scheduler().advance_time(1s);
      rig.run();
    } else {
      rig.tell(EmergencySaved{{"/run/checkpoint/x"}, absl::OkStatus()});
    }
    EXPECT_THAT(rig.ends, IsEmpty());
    ASSERT_EQ(rig.emergencies.size(), 2u);
    EXPECT_EQ(rig.emergencies[1].held.size(), 2u);
  }
}

TEST(Worker, PeerFailureOfOthersIsToldAndItsOwnEndsIt) {
  for (bool of_others : {true, false}) {
    WorkerRig rig;
    rig.join();
    rig.quiesce(1);
    rig.assign(1);
    rig.prepared(1, of_others ? absl::UnavailableError("damaged") : absl::InternalError("bug"));
    EXPECT_EQ(rig.count(Body::PEER_FAILURE), of_others ? 1u : 0u);
    EXPECT_EQ(rig.count(Body::FAILED), of_others ? 0u : 1u);
    EXPECT_EQ(rig.ends.size(), of_others ? 0u : 1u);
    rig.prepared(1);
    EXPECT_EQ(rig.count(Body::PREPARED), 0u) << "that round is over";
  }
}

TEST(Worker, WhoseDeviceDoesNotGiveWhatItHoldsEndsAndIsNotAskedAgainAndAgain) {
  for (bool is_own : {true, false}) {
    WorkerRig rig;
    rig.join();
    rig.host(1);
    rig.tell(StateSent{1, is_own ? absl::InternalError("the CUDA device is lost")
                                 : absl::UnavailableError("damaged")});
    EXPECT_EQ(rig.count(Body::PEER_FAILURE), is_own ? 0u : 1u);
    EXPECT_EQ(rig.count(Body::FAILED), is_own ? 1u : 0u);
    EXPECT_EQ(rig.ends.size(), is_own ? 1u : 0u);
  }
}

TEST(Worker, ALostNeighbourIsNamedAndAForeignAddressIsNot) {
  WorkerRig rig;
  rig.join();
  rig.host(1);
  rig.tell(WorkerFault{absl::UnavailableError("broke"), "127.0.0.1:99"});
  EXPECT_EQ(rig.count(Body::PEER_FAILURE), 0u) << "it is no neighbour";
  rig.tell(WorkerFault{absl::UnavailableError("broke"), "127.0.0.1:2"});
  auto peer_failures = rig.link->bodies(Body::PEER_FAILURE);
  ASSERT_EQ(peer_failures.size(), 1u);
  EXPECT_EQ(peer_failures[0].getPeerFailure().getPeer(), 2u);
}

TEST(Worker, HandsOnWhatItIsToldOfATextAndHasNoPlanThen) {
  WorkerRig rig;
  rig.control(1, plans::TextRequest());
  rig.join();
  rig.control(1, plans::TextStep());
  EXPECT_EQ(rig.texts, "") << "it is no member yet, and knows no text yet";
  rig.control(1, plans::TextRequest());
  rig.control(1, plans::TextLayers{{0, 1}, {}, {}, "", 0});
  rig.control(1, plans::TextStep());
  EXPECT_EQ(rig.texts, "measure assign step ");
  rig.tell(TextAnswer{absl::OkStatus(), net::ControlBody(plans::TextReady())});
  EXPECT_EQ(rig.count(Body::TEXT_READY), 1u);
  rig.tell(WorkerFault{absl::UnavailableError("the next worker is gone"), "127.0.0.1:9"});
  EXPECT_EQ(rig.count(Body::PEER_FAILURE), 1u);
  EXPECT_THAT(rig.ends, IsEmpty());
  rig.tell(TextAnswer{absl::InvalidArgumentError("no such folder"), std::nullopt});
  EXPECT_EQ(rig.count(Body::FAILED), 1u);
  EXPECT_EQ(rig.ends.size(), 1u);
}

WorkerFault no_memory_in(uint64_t generation) {
  return {.why = absl::ResourceExhaustedError("no memory for a tensor"),
          .no_memory_generation = generation};
}

TEST(Worker, WhoHasNoMemoryForWhatComesIsItselfTheOneThatFailed) {
  for (const bool draws_text : {false, true}) {
    WorkerRig rig;
    rig.join();
    if (draws_text) rig.control(1, plans::TextRequest());
    if (!draws_text) rig.host(1);
    rig.tell(no_memory_in(1));
    EXPECT_EQ(rig.count(Body::PEER_FAILURE), 0u);
    EXPECT_EQ(rig.count(Body::FAILED), 1u);
    EXPECT_EQ(rig.ends.size(), draws_text ? 1u : 0u) << "who draws text holds nothing";
  }
}

TEST(Worker, WhoHasNoMemoryForWhatComesGivesWhatItHolds) {
  WorkerRig rig;
  rig.join();
  rig.host(1);
  rig.start(1);
  rig.tell(no_memory_in(1));
  rig.tell(no_memory_in(1));
  const auto told = rig.link->bodies(Body::FAILED);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].getFailed().getStays());
  EXPECT_FALSE(told[0].getFailed().getBadInput());
  rig.quiesce(2);
  while (rig.end_one()) continue;
  EXPECT_THAT(rig.inventory(), ElementsAre(0u));
  EXPECT_THAT(rig.ends, IsEmpty());
}

TEST(Worker, ALackOfMemoryInAPlanThatIsOverCountsNoMore) {
  WorkerRig rig;
  rig.join();
  rig.train_until_plan_two();
  rig.tell(no_memory_in(1));
  EXPECT_EQ(rig.count(Body::FAILED), 0u);
  rig.tell(no_memory_in(2));
  EXPECT_EQ(rig.count(Body::FAILED), 1u);
}

/// Its device has left work undone that the step needs.
TEST(Worker, WhoseReplicaHasNoMemoryForItsWorkEnds) {
  WorkerRig rig;
  rig.join();
  rig.host(1);
  rig.tell(WorkerFault{absl::ResourceExhaustedError("no memory"), {}});
  ASSERT_EQ(rig.count(Body::FAILED), 1u);
  EXPECT_FALSE(rig.link->bodies(Body::FAILED)[0].getFailed().getStays());
  EXPECT_EQ(rig.ends.size(), 1u);
}

TEST(Worker, DrawsNoTextWhileItTrains) {
  WorkerRig rig;
  rig.join();
  rig.host(1);
  rig.control(1, plans::TextRequest());
  EXPECT_EQ(rig.texts, "");
}

TEST(Worker, ALinkThatFellSilentIsClosedWhenAnotherOneHasTakenItsPlace) {
  WorkerRig rig;
  rig.join();
  for (int second = 0; rig.attempts.size() < 2; ++second) {
    ASSERT_LT(second, 60);
    rig.scheduler().advance_time(1s);
    rig.run();
  }
  const std::shared_ptr<RecordingLink> silent = rig.link;
  EXPECT_FALSE(silent->closed()) << "it would be lost, and what it holds with it";
  rig.link = std::make_shared<RecordingLink>();
  rig.open();
  EXPECT_FALSE(silent->closed());
  rig.joined();
  EXPECT_TRUE(silent->closed());
  EXPECT_FALSE(rig.link->closed());
}

/// Taken for one, it would make the answer on the new link a repeat, and give the worker a number
/// that the coordinator has taken back.
TEST(Worker, AnAnswerOnALinkThatWasGivenUpIsNone) {
  WorkerRig rig;
  rig.join();
  rig.tell(LinkClosed{1, absl::UnavailableError("gone")});
  rig.open();
  net::Joined late;
  late.worker = {7};
  late.run = "small-1";
  rig.tell(LinkMessage{1, {{}, std::move(late)}});
  rig.joined();
  rig.tell(LinkClosed{2, absl::UnavailableError("gone")});
  rig.open();
  EXPECT_EQ(rig.link->bodies(Body::JOIN).back().getJoin().getPreviousWorker(), 1u);
}

TEST(Worker, LeavesWithAReasonAlsoAfterALinkWasLost) {
  WorkerRig rig;
  rig.join();
  rig.tell(LeaveRequest{"a notice"});
  EXPECT_EQ(rig.count(Body::LEAVE), 1u);
  rig.tell(LinkClosed{1, absl::UnavailableError("gone")});
  rig.join();
  EXPECT_EQ(rig.count(Body::LEAVE), 2u) << "the coordinator may be a new one";
  rig.control(0, net::Stop());
  EXPECT_THAT(rig.ends, ElementsAre(absl::OkStatus()));
}

/// CAF would end the actor alone, and the process would stay up, deaf.
TEST(WorkerDeathTest, AnExceptionInAnActorEndsTheProcessWithTheFacts) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  auto fail = [] {
    WorkerRig rig;
    WorkerConfig broken = rig.make_config();
    broken.connect = nullptr;  // Calling it raises std::bad_function_call.
    rig.system->spawn(worker, std::move(broken));
    rig.run();
  };
  EXPECT_EXIT(fail(), ::testing::ExitedWithCode(kExitActorFailed),
              "event=actor.failed actor=worker reason=\"bad_function_call\"");
}

}  // namespace
}  // namespace skein::actors
