#include "tests/bench/plan_change_world.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/send.hpp>

#include "absl/strings/str_cat.h"
#include "actors/coordinator/coordinator.hpp"
#include "plans/base/check.hpp"
#include "plans/plan/plan.hpp"
#include "plans/plan/plan_part.hpp"

namespace skein::bench {
namespace {

using Body = net::schema::Envelope::Body;

constexpr uint64_t kTerm = 1;
constexpr int64_t kStages = 8;
constexpr int64_t kBlocks = 14;
/// What Gloo's TCP transport says of where a pair is, with its length.
constexpr size_t kAddressBytes = 64;
/// What a GPU says of itself, with four groups that it keeps; what it is told of a group; and the
/// id of a new one, as NCCL makes it.
constexpr size_t kDeviceBytes = 200;
constexpr size_t kDecisionBytes = 100;
constexpr size_t kIdBytes = 128;

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

struct Sent {
  uint64_t worker = 0;
  net::ControlMessage message;
};

/// How far a worker with a GPU has formed the groups of its part.
struct Forming {
  plans::PlanPart part;
  std::set<plans::WorkerId> awaited;  // The leader's: who has not told yet.
  uint64_t decided = 0;               // Its groups that the leader has not told it of yet, ...
  uint64_t ids = 0;                   // ... and those of which the id is missing.
};

/// Keeps what the coordinator sends to a worker until the world delivers it.
class WaitingLink final : public net::ControlLink {
 public:
  WaitingLink(uint64_t worker, std::deque<Sent>& sent) : worker_(worker), sent_(sent) {}
  void send(net::ControlMessage message) override {
    sent_.push_back({worker_, std::move(message)});
  }
  void close() override {}
  const std::string& peer_address() const override { return address_; }

 private:
  const uint64_t worker_;
  std::deque<Sent>& sent_;
  const std::string address_ = "10.0.0.1:1";
};

struct Nobody final : actors::RunObserver {
  void on_plan(const plans::Plan&, double) override {}
  void on_profiles(const plans::ReportProfiles&) override {}
  void on_step(const actors::StepReport&) override {}
  void on_validation(const actors::ValidationReport&) override {}
  void on_checkpoint(const actors::CheckpointReport&) override {}
  void on_timings(const actors::TimingsReport&) override {}
  void on_event(const actors::EventReport&) override {}
};

plans::JobSpec job_of(uint64_t workers) {
  plans::JobSpec job;
  job.model.layers = kBlocks;
  job.model.heads = 2;
  job.model.channels = 64;
  job.model.vocab_size = 64;
  job.model.positions = 16;
  job.model.tied_head = false;
  job.training.steps = 100;
  job.training.seq_len = 16;
  job.training.micro_batch_size = 512;
  job.training.global_batch_size = 8 * 512;
  const int64_t stages = std::min<int64_t>(kStages, static_cast<int64_t>(workers));
  job.parallelism.pipeline_parallel_degree = stages;
  for (int64_t stage = 0; stage < stages; ++stage) {
    job.parallelism.replicas.push_back(
        plans::even_rows(static_cast<int64_t>(workers), stage, stages).count);
  }
  job.validation.batches = 0;
  job.checkpoint.enable = false;
  job.profiling.enable_profiling = false;
  return job;
}

/// A coordinator, everything around it, and workers that answer at once. Worker n is on connection
/// n.
class World {
 public:
  World(uint64_t workers, const std::string& device) : device_(device) {
    config_.set("scheduler.policy", caf::atom("testing"));
    system_ = std::make_unique<caf::actor_system>(config_);
    journal_ = system_->spawn([]() -> actors::JournalIo::behavior_type {
      return {[](const actors::JournalRequest&, const actors::JournalListener&) {},
              [](const plans::RewindJournal&) {}, [](const plans::Plan&) {},
              [](actors::LaterLifeRequest, const actors::LaterLifeListener&) {},
              [](actors::TickAtom) {}};
    });
    checkpoints_ = system_->spawn([]() -> actors::CheckpointIo::behavior_type {
      return {[](const actors::CheckpointRequest&, const actors::CheckpointListener&) {},
              [](const plans::DeletePartials&) {},
              [](const actors::StartRequest&, const actors::CheckpointListener&) {},
              [](const actors::LeftStateRequest&, const actors::CheckpointListener& listener) {
                caf::anon_send(listener, actors::LeftStateFound());
              }};
    });
    observer_ =
        system_->spawn(actors::observer_io, static_cast<actors::RunObserver*>(&nobody_), [] {});
    planner_ = system_->spawn(actors::planner, actors::PlannerConfig{});
    actors::CoordinatorConfig made;
    made.options.job = job_of(workers);
    made.options.worker_count = static_cast<int64_t>(workers);
    made.term = kTerm;
    made.journal = journal_;
    made.checkpoints = checkpoints_;
    made.observer = observer_;
    made.planner = planner_;
    made.checks_invariants = false;
    made.on_result = [](const actors::RunResult&) {};
    coordinator_ = system_->spawn(actors::coordinator, std::move(made));
    run();
    for (uint64_t worker = 1; worker <= workers; ++worker) join(worker);
    deliver();
    cost_ = {};
    cost_.device = device;
    cost_.workers = workers;
  }

  ~World() {
    for (const auto& each :
         {caf::actor_cast<caf::actor>(coordinator_), caf::actor_cast<caf::actor>(journal_),
          caf::actor_cast<caf::actor>(checkpoints_), caf::actor_cast<caf::actor>(observer_),
          caf::actor_cast<caf::actor>(planner_)}) {
      caf::anon_send_exit(each, caf::exit_reason::user_shutdown);
    }
    run();
    scheduler().clock().cancel_all();
  }

  PlanChangeCost lose(uint64_t worker) {
    tell(actors::PeerClosed{worker, absl::UnavailableError("it was killed")});
    links_.erase(worker);
    deliver();
    return cost_;
  }

 private:
  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system_->scheduler());
  }
  void run() { scheduler().run(); }

  /// The coordinator's own time.
  template <class Message>
  void tell(Message message) {
    const double begin = cpu_seconds();
    caf::anon_send(coordinator_, std::move(message));
    run();
    cost_.coordinator_seconds += cpu_seconds() - begin;
  }

  void join(uint64_t worker) {
    links_[worker] = std::make_shared<WaitingLink>(worker, sent_);
    tell(actors::PeerOpened{worker, links_[worker], net::schema::Role::WORKER});
    plans::JoinRequest join;
    join.host_name = absl::StrCat("host-", worker / 8);
    join.device = has_gpus() ? "cuda:0 (GPU)" : "cpu x1";
    join.data_address =
        absl::StrCat("10.", worker / 65536, ".", worker / 256 % 256, ".", worker % 256, ":29500");
    send(worker, 0, std::move(join));
  }

  /// Encoded by the worker; read by the coordinator, which is its own time.
  void send(uint64_t worker, uint64_t generation, net::ControlBody body) {
    net::EnvelopeHead head;
    head.generation = generation;
    head.term = kTerm;
    head.sender = static_cast<uint32_t>(worker);
    const net::ControlMessage message = net::encode(head, body);
    ++cost_.to_coordinator;
    cost_.bytes += message.bytes().size();
    if ((*message).getBody().isRendezvous()) ++cost_.rendezvous;
    const double begin = cpu_seconds();
    absl::StatusOr<net::Envelope> read = net::decode(message);
    SKEIN_CHECK(read.ok()) << read.status();
    cost_.coordinator_seconds += cpu_seconds() - begin;
    tell(actors::PeerMessage{worker, *std::move(read)});
  }

  void deliver() {
    while (!sent_.empty()) {
      const Sent next = std::move(sent_.front());
      sent_.pop_front();
      const auto envelope = *next.message;
      ++cost_.to_workers;
      cost_.bytes += next.message.bytes().size();
      if (envelope.getBody().isRendezvous()) ++cost_.rendezvous;
      if (links_.contains(next.worker)) answer(next.worker, next.message);
    }
  }

  void answer(uint64_t worker, const net::ControlMessage& message) {
    const absl::StatusOr<net::Envelope> envelope = net::decode(message);
    SKEIN_CHECK(envelope.ok()) << envelope.status();
    const uint64_t generation = envelope->head.generation;
    if (std::holds_alternative<net::Quiesce>(envelope->body)) {
      send(worker, generation, net::Quiesced{held_[worker]});
    } else if (const auto* assign = std::get_if<net::Assign>(&envelope->body)) {
      if (cost_.assign_bytes == 0) cost_.decide_seconds = cost_.coordinator_seconds;
      cost_.assign_bytes += message.bytes().size();
      cost_.longest_assign = std::max<uint64_t>(cost_.longest_assign, message.bytes().size());
      take(worker, *assign);
    } else if (const auto* entry = std::get_if<net::RendezvousEntry>(&envelope->body)) {
      on_entry(worker, *entry);
    } else if (std::holds_alternative<net::Start>(envelope->body)) {
      cost_.has_started = true;
    }
  }

  void take(uint64_t worker, const net::Assign& assign) {
    const plans::WorkerId self{static_cast<uint32_t>(worker)};
    const uint64_t generation = assign.plan.generation;
    cost_.stages = static_cast<uint64_t>(assign.plan.stage_count);
    held_[worker].clear();
    for (const plans::ReplicaPlan& own : plans::hosted_by(assign.plan, self)) {
      const int32_t stage = plans::stage_of(assign.plan, own.id);
      held_[worker].push_back({0, plans::stage_at(assign.plan, stage).layers, 0});
    }
    if (has_gpus()) return tell_leader(worker, assign.plan);
    for (const plans::GroupPart& group : assign.plan.groups) {
      for (const auto& [rank, partner] : group.partners) {
        put(worker, generation, absl::StrCat("group-", group.id.value, "/", group.rank, "-", rank),
            kAddressBytes, {partner});
      }
    }
    const bool has_part = !held_[worker].empty();
    if (has_part) send(worker, generation, net::Prepared());
  }

  bool has_gpus() const { return device_ == "cuda"; }

  void put(uint64_t worker, uint64_t generation, const std::string& name, size_t bytes,
           std::vector<plans::WorkerId> receivers) {
    net::RendezvousEntry entry;
    entry.key = absl::StrCat("generation-", generation, "/", name);
    entry.value.resize(bytes);
    entry.receivers = std::move(receivers);
    send(worker, generation, std::move(entry));
  }

  /// As `actors::FormationRound` does. The leader decides when it has heard all.
  void tell_leader(uint64_t worker, const plans::PlanPart& part) {
    if (held_[worker].empty()) return;
    Forming& own = forming_[worker];
    own = {part, {}, 0, 0};
    for (const plans::DeviceGroupPart& group : part.device_groups)
      own.decided += group.rank ? 1 : 0;
    own.ids = own.decided;
    if (part.device_leader.value != worker) {
      return put(worker, part.generation, absl::StrCat("device-", worker), kDeviceBytes,
                 {part.device_leader});
    }
    for (const plans::DeviceGroupPart& group : part.device_groups) {
      own.awaited.insert(group.members.begin(), group.members.end());
    }
    own.awaited.erase(part.device_leader);
  }

  void on_entry(uint64_t worker, const net::RendezvousEntry& entry) {
    const auto found = forming_.find(worker);
    if (found == forming_.end()) return;
    Forming& own = found->second;
    const std::string name = entry.key.substr(entry.key.find('/') + 1);
    if (name.starts_with("device-")) {
      own.awaited.erase(plans::WorkerId{
          static_cast<uint32_t>(std::strtoul(name.c_str() + std::strlen("device-"), nullptr, 10))});
      if (own.awaited.empty()) decide(worker, own);
    } else if (name.starts_with("formation-")) {
      if (--own.decided == 0) tell_ids(worker, own);
    } else if (--own.ids == 0 && own.decided == 0) {
      send(worker, own.part.generation, net::Prepared());
    }
  }

  void decide(uint64_t worker, Forming& own) {
    for (const plans::DeviceGroupPart& group : own.part.device_groups) {
      put(worker, own.part.generation, absl::StrCat("formation-", group.id.value), kDecisionBytes,
          group.members);
    }
    own.decided = 0;
    tell_ids(worker, own);
  }

  /// The first member of each group makes its id.
  void tell_ids(uint64_t worker, Forming& own) {
    for (const plans::DeviceGroupPart& group : own.part.device_groups) {
      if (group.rank != 0u) continue;
      put(worker, own.part.generation, absl::StrCat("group-", group.id.value, "/id"), kIdBytes,
          group.members);
      --own.ids;
    }
    if (own.ids == 0) send(worker, own.part.generation, net::Prepared());
  }

  const std::string device_;
  Nobody nobody_;
  caf::actor_system_config config_;
  std::unique_ptr<caf::actor_system> system_;
  actors::JournalIo journal_;
  actors::CheckpointIo checkpoints_;
  actors::ObserverIo observer_;
  actors::Planner planner_;
  actors::Coordinator coordinator_;
  std::deque<Sent> sent_;
  std::map<uint64_t, std::shared_ptr<WaitingLink>> links_;
  std::map<uint64_t, std::vector<plans::InventoryItem>> held_;
  std::map<uint64_t, Forming> forming_;  // With GPUs.
  PlanChangeCost cost_;
};

}  // namespace

PlanChangeCost change_plan(uint64_t workers, const std::string& device) {
  World world(workers, device);
  return world.lose(workers / 2 + 1);
}

}  // namespace skein::bench
