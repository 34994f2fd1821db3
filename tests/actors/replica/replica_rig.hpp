#pragma once

#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/send.hpp>

#include "actors/replica/replica.hpp"
#include "plans/plan/layout_plan.hpp"
#include "plans/sync/policy_kind.hpp"
#include "tests/actors/recording_link.hpp"
#include "tests/actors/small_job.hpp"

namespace skein::actors {

/// Work waits until the test says that the oldest piece has ended. It computes nothing but, with
/// `ops`, updates and copies.
class HandDevice : public gpu::Device {
 public:
  const gpu::DeviceInfo& info() const override { return info_; }
  absl::StatusOr<gpu::Buffer> allocate(int64_t bytes) override {
    ++allocations;
    return gpu::Buffer(std::calloc(1, static_cast<size_t>(bytes)), bytes, std::free);
  }
  absl::Status run(gpu::Work) override { return absl::OkStatus(); }
  /// An actor that keeps the work for us.
  actors::Device spawn(caf::actor_system& system) {
    return system.spawn([this](actors::Device::pointer self) -> actors::Device::behavior_type {
      return {[this, self](const DeviceRequest& request) {
        clock_ = &self->clock();
        ++submitted[request.piece->work.kind];
        pieces.push_back(request.piece->work.piece);
        waiting_.push_back(std::move(*request.piece));
      }};
    });
  }
  /// False if no work waits.
  bool end_one(const absl::Status& status = absl::OkStatus()) {
    if (waiting_.empty()) return false;
    DevicePiece piece = std::move(waiting_.front());
    waiting_.pop_front();
    const gpu::Work& work = piece.work;
    const bool runs = work.kind == gpu::WorkKind::kOther || work.kind == gpu::WorkKind::kUpdate;
    absl::Status found = ops && runs && work.run ? work.run(*ops) : status;
    finish(std::move(piece), std::move(found), clock_->now());
    return true;
  }

  /// Work that never ends would keep its tensors, and they the device.
  void drop_work() { waiting_.clear(); }

  int allocations = 0;  // Calls of `allocate`.
  std::map<gpu::WorkKind, int> submitted;
  std::vector<plans::WorkPiece> pieces;
  std::shared_ptr<gpu::Ops> ops;

 private:
  gpu::DeviceInfo info_{"by hand", 0, 1.0, false};
  caf::actor_clock* clock_ = nullptr;  // From the first piece on.
  std::deque<DevicePiece> waiting_;
};

/// Counts what is sent, and lets a test hand tensors to the streams that were opened.
class HandPlane : public net::DataPlane, public net::TensorInbox {
 public:
  const std::string& address() const override { return address_; }
  net::TensorInbox& inbox() override { return *this; }
  void send(const std::string&, Rows rows) override {
    sent.push_back(rows.key);
    rows_sent.push_back(std::move(rows));
  }
  net::DataPlaneStatistics statistics() const override { return {}; }
  void open(StreamSpec stream) override { streams[stream.kind] = std::move(stream); }
  void close(uint64_t, uint32_t, net::schema::TensorKind) override {}
  void close_before(uint64_t) override {}  // Ends with the plane and its inbox.
  void drop_link(const std::string&, double) override {}

  std::vector<net::TensorKey> sent;
  std::deque<Rows> rows_sent;
  std::map<net::schema::TensorKind, StreamSpec> streams;

 private:
  std::string address_ = "127.0.0.1:2";
};

/// The rank of worker 1 with everything around it played by the test, in virtual time.
struct ReplicaRig {
  using Body = RecordingLink::Body;

  explicit ReplicaRig(int64_t ranks = 1, int64_t replicas = 1, bool tied = false,
                      double bucket_cap_mb = 0, const std::string& policy = "allreduce",
                      bool groups_are_on_device = false, bool has_stage_link = false,
                      int64_t exact_summands_of = 0,
                      gpu::NumberType type_on_link = gpu::NumberType::kFloat32)
      : on_device(groups_are_on_device),
        has_link(has_stage_link),
        exact_summands(exact_summands_of),
        link_type(type_on_link) {
    config.set("scheduler.policy", caf::atom("testing"));
    system = std::make_unique<caf::actor_system>(config);
    listener = system->spawn([this]() -> ReplicaListener::behavior_type {
      return {[this](const WorkerFault& fault) { faults.push_back(fault.why); },
              [this](const ReplicasRetired& done) { retired.push_back(done.steps_done); },
              [](const SnapshotTaken&) {},
              [this](const ReplicaActivity& activity) { dropped.push_back(activity.dropped); }};
    });
    groups = system->spawn([this]() -> GroupIo::behavior_type {
      return {[](const FormGroup&, const FormListener&) {},
              [this](const ReductionRequest& request, const ReductionListener&) {
                reductions.push_back(request.step);
                buckets.push_back(request);
              }};
    });
    stage_link = system->spawn([this]() -> StageLinkIo::behavior_type {
      return {[](const FormGroup&, const FormListener&) {},
              [this](const TransferRequest& request, const TransferListener&) {
                transfers.push_back(request);
              }};
    });
    shards = system->spawn([]() -> ShardIo::behavior_type {
      return {[](const ShardRequest&, const ShardListener&) {},
              [](const SnapshotRequest&, const SnapshotListener&) {}};
    });
    plans::JobSpec job = small_job(ranks, replicas);
    job.model.tied_head = tied;
    job.comm.bucket_cap_mb = bucket_cap_mb;
    job.sync.policy = policy;
    ReplicaConfig prepared = make_config(job);
    allocations_before = device->allocations;
    actor = system->spawn(replica, std::move(prepared));
    run();
  }
  ~ReplicaRig() {
    caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(listener, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(groups, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(shards, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(stage_link, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(work, caf::exit_reason::user_shutdown);
    run();
    device->drop_work();
  }

  ReplicaConfig make_config(const plans::JobSpec& job) {
    ReplicaConfig made;
    made.job = job;
    std::vector<plans::WorkerId> workers;
    const auto& degrees = job.parallelism;
    for (uint32_t id = 1;
         id <= degrees.pipeline_parallel_degree * degrees.data_parallel_replicate_degree; ++id) {
      workers.push_back({id});
    }
    plans::Plan plan = plans::make_layout_plan(job, workers, kGeneration).value();
    if (plans::begins_in_pipelines(job)) plan.mode = plans::kLocalMode;
    plans::PartNeeds needs;
    needs.all_of_stage = plan.mode == plans::kLocalMode;
    needs.devices = on_device || has_link;
    made.plan = plans::PlanParts(plan, needs, {}).of({1});
    made.device = device;
    made.work = work = device->spawn(*system);
    made.shards = shards;
    made.plane = plane;
    if (has_link) {
      made.links[0] = stage_link;
      const LinkTensors tensors =
          tensors_of_link(made.plan, plans::communication_places(made.plan, {1}), {1}, 0,
                          job.training.seq_len * job.model.channels);
      made.link_memory[0] =
          gpu::DevicePool::create(device, {tensors.numbers, link_type, tensors.count}).value();
      link_memory = made.link_memory[0];
    }
    for (plans::WorkerId each : workers) made.addresses[each] = "127.0.0.1:3";
    made.link = link;
    made.listener = listener;
    made.replicas.push_back(first_replica(made));
    return made;
  }

  /// Replica 0, with the groups that it shares with others.
  PreparedReplica first_replica(ReplicaConfig& made) {
    gpu::StageModelOptions options;
    options.model = made.job.model;
    options.layers = made.plan.stages[0].layers;
    options.rows = plans::replica_of(made.plan, {0}).rows.count;
    options.seq_len = made.job.training.seq_len;
    options.stash_count = 2;
    options.exact_summands = exact_summands;
    PreparedReplica parts{{0}, gpu::StageModel::create(options, *device).value(), options, {}};
    model = parts.model;
    if (made.plan.mode == plans::kLocalMode) return parts;
    for (const plans::GroupPart& group : made.plan.groups) {
      parts.groups.push_back(group.id);
      made.groups[group.id] = groups;
      if (on_device) made.device_groups.insert(group.id);
      group_ids.push_back(group.id.value);
    }
    return parts;
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
  void control(net::ControlBody body) { tell(net::Envelope{{}, std::move(body)}); }
  void start() { control(net::Start()); }
  void commit(uint64_t step, bool last = false, bool profile = false) {
    plans::CommitOrder order;
    order.step = step;
    order.gradient_norm = 1;
    order.last = last;
    order.profile = profile;
    control(order);
  }
  void reduced(uint32_t group, uint64_t step, int32_t bucket = 0) {
    tell(ReductionDone{{group}, step, bucket, absl::OkStatus()});
  }
  /// Hands in the gradient of the stage's output.
  void gradient(uint64_t step, uint32_t microbatch) {
    struct Tensor {
      std::vector<float> values = std::vector<float>(2 * 4 * 4);  // rows * T * C
      std::span<float> span = values;
    };
    auto tensor = std::make_shared<Tensor>();
    const auto kind = net::schema::TensorKind::GRADIENT;
    plane->streams.at(kind).on_tensor({kGeneration, 0, kind, step, microbatch},
                                      net::TensorHandle(tensor, &tensor->span));
    run();
  }
  bool end_one(const absl::Status& status = absl::OkStatus()) {
    const bool ended = device->end_one(status);
    run();
    return ended;
  }
  /// Ends all work; returns how many pieces there were.
  int end_all() {
    int count = 0;
    while (end_one()) ++count;
    return count;
  }

  int forwards() { return device->submitted[gpu::WorkKind::kForward]; }
  int backwards() { return device->submitted[gpu::WorkKind::kBackward]; }
  int updates() { return device->submitted[gpu::WorkKind::kUpdate]; }
  /// Steps of the ready signals, in order.
  std::vector<uint64_t> readies() const {
    std::vector<uint64_t> steps;
    for (auto body : link->bodies(Body::READY)) steps.push_back(body.getReady().getStep());
    return steps;
  }

  static constexpr uint64_t kGeneration = 1;
  const bool on_device, has_link;
  const int64_t exact_summands;
  const gpu::NumberType link_type;
  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> system;
  std::shared_ptr<HandDevice> device = std::make_shared<HandDevice>();
  std::shared_ptr<HandPlane> plane = std::make_shared<HandPlane>();
  std::shared_ptr<RecordingLink> link = std::make_shared<RecordingLink>();
  std::weak_ptr<gpu::DevicePool> link_memory;
  int allocations_before = 0;  // While the plan was prepared.
  std::vector<absl::Status> faults;
  std::vector<uint64_t> retired;           // Steps done.
  std::vector<plans::DropCounts> dropped;  // As it told with each heartbeat.
  std::vector<uint32_t> group_ids;   // Those of more than one member that the replica belongs to.
  std::vector<uint64_t> reductions;  // Steps.
  std::vector<ReductionRequest> buckets;
  std::vector<TransferRequest> transfers;
  std::shared_ptr<gpu::StageModel> model;  // Replica 0's.
  ReplicaListener listener;
  GroupIo groups;
  StageLinkIo stage_link;
  ShardIo shards;
  Device work;
  Replica actor;
};

}  // namespace skein::actors
