#include "actors/worker/prepare_io.hpp"

#include <gtest/gtest.h>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/send.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/profile/measure_profile.hpp"
#include "plans/plan/layout_plan.hpp"
#include "tests/actors/collectives/fake_device_groups.hpp"
#include "tests/actors/small_job.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::actors {
namespace {

/// Prepares the one replica of a plan for worker 1, on a text of bytes below 8.
struct PrepareRig {
  PrepareRig() {
    job.data.dataset = "text";
    job.data.path = folder.file("text");
    std::ofstream text(job.data.path, std::ios::binary);
    for (int i = 0; i < 400; ++i) text.put(static_cast<char>(i * 5 % 8));
    text.close();
    config.set("scheduler.policy", caf::atom("testing"));
    system = std::make_unique<caf::actor_system>(config);
    io = system->spawn(prepare_io);
    listener = system->spawn([this]() -> PrepareListener::behavior_type {
      return {[this](const PreparedReplicas& result) { prepared = result; },
              [this](const StateSent& sent) { state_sent = sent.status; },
              [this](const ProfileMeasured& result) { measured = result; },
              [](const EmergencySaved&) {}};
    });
    request.worker = {1};
    request.job = job;
    const plans::Plan plan = plans::make_layout_plan(job, {{1}}, 1).value();
    request.plan = plans::PlanParts(plan, {}, {}).of({1});
    request.from_checkpoint = true;  // Without one: the initial weights.
    request.device = gpu::make_host_device(1);
    const auto data = open();
    request.data_bytes = data->bytes();
    request.data_digest = data->digest();
  }
  ~PrepareRig() {
    caf::anon_send_exit(io, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(listener, caf::exit_reason::user_shutdown);
    run();
  }

  std::shared_ptr<const gpu::TokenData> open() {
    return gpu::TokenData::open({job.data, job.training.seq_len, job.model.vocab_size, 1}).value();
  }
  void run() { dynamic_cast<caf::scheduler::test_coordinator&>(system->scheduler()).run(); }
  const PreparedReplicas& prepare() {
    prepared.reset();
    caf::anon_send(io, request, listener);
    run();
    return prepared.value();
  }
  /// The next plan goes on with this model.
  void hold(const PreparedReplica& replica) {
    HeldState held;
    held.layers = replica.options.layers;
    held.model = replica.model;
    held.options = replica.options;
    request.from_checkpoint = false;
    request.held = {held};
  }
  /// That of layer 1.
  std::vector<float> state_of(const PreparedReplica& replica) const {
    std::vector<float> state(static_cast<size_t>(layer_state_floats(job.model, 1)));
    EXPECT_TRUE(read_layer_state(job.model, 1, *replica.model, state).ok());
    return state;
  }

  tests::TemporaryFolder folder;
  plans::JobSpec job = small_job(1, 1);
  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> system;
  PrepareIo io;
  PrepareListener listener;
  PrepareRequest request;
  std::optional<PreparedReplicas> prepared;
  std::optional<absl::Status> state_sent;
  std::optional<ProfileMeasured> measured;
};

TEST(PrepareIo, DataThatIsOpenIsComparedWithEachPlanAsWell) {
  for (bool is_open : {false, true}) {
    PrepareRig rig;
    if (is_open) rig.request.data = rig.open();
    EXPECT_TRUE(rig.prepare().status.ok()) << rig.prepared->status;
    ++rig.request.data_digest;
    EXPECT_TRUE(absl::IsDataLoss(rig.prepare().status)) << rig.prepared->status;
    --rig.request.data_digest;
    ++rig.request.data_bytes;
    EXPECT_TRUE(absl::IsDataLoss(rig.prepare().status)) << rig.prepared->status;
  }
}

/// A host device that notes what is reserved.
class ReservingDevice final : public gpu::Device {
 public:
  const gpu::DeviceInfo& info() const override { return inner_->info(); }
  absl::StatusOr<gpu::Buffer> allocate(int64_t bytes) override { return inner_->allocate(bytes); }
  absl::Status run(gpu::Work work) override { return inner_->run(std::move(work)); }
  absl::Status reserve(int64_t bytes) override {
    reserved = bytes;
    return absl::OkStatus();
  }
  absl::StatusOr<gpu::DeviceGroups*> groups() override {
    if (!has_groups) return absl::UnavailableError("several jobs share the device");
    return &groups_;
  }

  int64_t reserved = 0;
  bool has_groups = true;

 private:
  GroupWorld world_;
  FakeDeviceGroups groups_{"node", world_};
  const std::unique_ptr<gpu::Device> inner_ = gpu::make_host_device(1);
};

/// Worker 1 gets the first of two stages, on that device; the plan.
plans::Plan ask_for_front(PrepareRig& rig, const std::shared_ptr<gpu::Device>& device) {
  rig.request.device = device;
  rig.request.job = small_job(2, 1);
  rig.request.job.data = rig.job.data;
  plans::Plan plan = plans::make_layout_plan(rig.request.job, {{1}, {2}}, 1).value();
  rig.request.plan = plans::PlanParts(plan, {.devices = true}, {}).of({1});
  return plan;
}

TEST(PrepareIo, TensorsOnTheirWayBetweenDevicesAreReserved) {
  PrepareRig rig;
  const auto device = std::make_shared<ReservingDevice>();
  const plans::Plan plan = ask_for_front(rig, device);
  ASSERT_TRUE(rig.prepare().status.ok()) << rig.prepared->status;
  const int64_t alone = device->reserved;
  rig.request.linked = {0};
  ASSERT_TRUE(rig.prepare().status.ok()) << rig.prepared->status;
  // With two micro-batches both activations are held, each of rows * T * C numbers.
  const plans::TrainingSpec& training = rig.request.job.training;
  EXPECT_EQ(device->reserved - alone,
            2 * 4 * plan.microbatch_rows * training.seq_len * rig.request.job.model.channels);
  const LinkTensors& tensors = rig.prepared->links.at(0);
  EXPECT_EQ(tensors.bytes(), device->reserved - alone) << "who forms the link counts nothing again";
  EXPECT_EQ(tensors.count, 2);

  device->has_groups = false;
  ASSERT_TRUE(rig.prepare().status.ok()) << rig.prepared->status;
  EXPECT_EQ(device->reserved, alone) << "all go by way of the hosts";
}

TEST(PrepareIo, AModelGoesOnOnlyIfItsOptimizerIsTheJobs) {
  PrepareRig rig;
  const PreparedReplica first = rig.prepare().replicas.at(0);
  rig.hold(first);
  EXPECT_EQ(rig.prepare().replicas.at(0).model, first.model);
  rig.request.job.optimizer.weight_decay = 0.5;
  const PreparedReplica changed = rig.prepare().replicas.at(0);
  EXPECT_NE(changed.model, first.model);
  EXPECT_EQ(changed.options.optimizer.weight_decay, 0.5);
  EXPECT_EQ(rig.state_of(first), rig.state_of(changed)) << "the state goes on all the same";
}

/// Says that it has memory of its own, as a GPU has.
class OwnMemoryDevice final : public gpu::Device {
 public:
  OwnMemoryDevice() : inner_(gpu::make_host_device(1)), info_(inner_->info()) {
    info_.memory_bytes = int64_t{1} << 30;
  }
  const gpu::DeviceInfo& info() const override { return info_; }
  absl::StatusOr<gpu::Buffer> allocate(int64_t bytes) override { return inner_->allocate(bytes); }
  absl::Status run(gpu::Work work) override { return inner_->run(std::move(work)); }

 private:
  const std::unique_ptr<gpu::Device> inner_;
  gpu::DeviceInfo info_;
};

TEST(PrepareIo, SaysWhatADeviceHasAndWhatRoundingTakes) {
  PrepareRig rig;
  ProfileWork work;
  work.job = rig.job;
  work.device = std::make_shared<OwnMemoryDevice>();
  work.rows = {1, 2};
  caf::anon_send(rig.io, work, rig.listener);
  rig.run();
  ASSERT_TRUE(rig.measured.has_value());
  ASSERT_TRUE(rig.measured->status.ok()) << rig.measured->status;
  const int64_t rounding = gpu::rounding_bytes(rig.job, *work.device, 2);
  EXPECT_GT(rounding, 0);
  EXPECT_EQ(rig.measured->measured.rounding_bytes, rounding);
  EXPECT_EQ(rig.measured->measured.memory_bytes, work.device->info().memory_bytes);
  EXPECT_EQ(rig.measured->measured.memory_bytes_max, 0) << "there is no limit";
}

/// Has memory of its own, as a GPU has, until it is full.
class SmallDevice final : public gpu::Device {
 public:
  SmallDevice() : inner_(gpu::make_host_device(1)), info_(inner_->info()) {
    info_.is_host_memory = false;
  }
  const gpu::DeviceInfo& info() const override { return info_; }
  absl::StatusOr<gpu::Buffer> allocate(int64_t bytes) override {
    if (is_full) return absl::ResourceExhaustedError("full");
    return inner_->allocate(bytes);
  }
  absl::Status download(const float* from, std::span<float> to) override {
    if (is_lost) return absl::InternalError("the CUDA device is lost");
    return inner_->download(from, to);
  }
  absl::Status run(gpu::Work work) override { return inner_->run(std::move(work)); }
  void set_speed(double) override {}
  bool is_full = false;
  bool is_lost = false;

 private:
  std::unique_ptr<gpu::Device> inner_;
  gpu::DeviceInfo info_;
};

TEST(PrepareIo, WhatAFullDeviceHoldsIsMovedToTheHost) {
  PrepareRig rig;
  const auto device = std::make_shared<SmallDevice>();
  rig.request.device = device;
  const PreparedReplica first = rig.prepare().replicas.at(0);
  rig.hold(first);
  rig.request.job.optimizer.weight_decay = 0.5;  // So that it needs another model.
  device->is_full = true;
  rig.request.on_device = std::exchange(rig.request.held, {});  // A checkpoint is served instead.
  const std::vector<HeldState> moved = rig.prepare().moved;
  EXPECT_TRUE(absl::IsResourceExhausted(rig.prepared->status));
  ASSERT_EQ(moved.size(), 1u);
  EXPECT_EQ(moved[0].model, nullptr);
  EXPECT_EQ(moved[0].copies.size(), static_cast<size_t>(first.options.layers.size()));
  rig.request.held = moved;
  rig.request.on_device.clear();
  EXPECT_TRUE(rig.prepare().moved.empty()) << "nothing else can be let go";
  device->is_full = false;
  const PreparedReplica again = rig.prepare().replicas.at(0);
  EXPECT_EQ(rig.state_of(first), rig.state_of(again));
}

/// Has so much memory of its own.
class BoundedDevice final : public gpu::Device {
 public:
  BoundedDevice() : inner_(gpu::make_host_device(1)), info_(inner_->info()) {
    info_.is_host_memory = false;
  }
  const gpu::DeviceInfo& info() const override { return info_; }
  absl::StatusOr<gpu::Buffer> allocate(int64_t bytes) override {
    if (bytes_max > 0 && *in_use + bytes > bytes_max) return absl::ResourceExhaustedError("full");
    auto made = inner_->allocate(bytes);
    if (!made.ok()) return made.status();
    *in_use += bytes;
    const auto kept = std::make_shared<gpu::Buffer>(*std::move(made));
    return gpu::Buffer(kept->data(), bytes,
                       [kept, count = in_use](void*) { *count -= kept->bytes(); });
  }
  absl::StatusOr<gpu::DeviceGroups*> groups() override { return &groups_; }
  absl::Status run(gpu::Work work) override { return inner_->run(std::move(work)); }

  int64_t bytes_max = 0;  // 0: no bound.
  const std::shared_ptr<int64_t> in_use = std::make_shared<int64_t>(0);

 private:
  const std::unique_ptr<gpu::Device> inner_;
  gpu::DeviceInfo info_;
  GroupWorld world_;
  FakeDeviceGroups groups_{"node", world_};
};

TEST(PrepareIo, ModelsOfThePlanBeforeMakeWayForTensorsOfALink) {
  PrepareRig rig;
  const auto device = std::make_shared<BoundedDevice>();
  const plans::Plan plan = ask_for_front(rig, device);
  rig.hold(rig.prepare().replicas.at(0));
  const int64_t model_bytes = *device->in_use;
  rig.request.linked = {0};
  rig.request.on_device = rig.request.held;

  device->bytes_max = model_bytes;
  ASSERT_TRUE(rig.prepare().status.ok())
      << "it may go by way of the hosts: " << rig.prepared->status;
  EXPECT_TRUE(rig.prepared->link_memory.empty());

  rig.request.job.optimizer.weight_decay = 0.5;  // So that it needs another model.
  device->bytes_max = 2 * model_bytes;
  const std::vector<HeldState> moved = rig.prepare().moved;
  EXPECT_TRUE(absl::IsResourceExhausted(rig.prepared->status)) << rig.prepared->status;
  ASSERT_EQ(moved.size(), 1u);
  EXPECT_TRUE(rig.prepared->replicas.empty());
  rig.request.held = moved;
  rig.request.on_device.clear();
  ASSERT_TRUE(rig.prepare().status.ok()) << rig.prepared->status;
  const auto& memory = rig.prepared->link_memory;
  ASSERT_EQ(memory.count(0), 1u);
  const plans::TrainingSpec& training = rig.request.job.training;
  EXPECT_EQ(memory.at(0)->tensors(),
            (gpu::DevicePool::Tensors{
                plan.microbatch_rows * training.seq_len * rig.request.job.model.channels,
                gpu::NumberType::kFloat32, 2}));
}

TEST(PrepareIo, ADeviceThatIsLostIsNoDamageOfOthersState) {
  PrepareRig rig;
  const auto device = std::make_shared<SmallDevice>();
  rig.request.device = device;
  rig.hold(rig.prepare().replicas.at(0));
  device->is_lost = true;
  SendStateRequest sending;
  sending.model = rig.job.model;
  sending.held = rig.request.held;
  sending.layers = {{1, "127.0.0.1:2"}};
  caf::anon_send(rig.io, sending, rig.listener);
  rig.run();
  ASSERT_TRUE(rig.state_sent.has_value());
  EXPECT_TRUE(absl::IsInternal(*rig.state_sent)) << *rig.state_sent;
  rig.request.job.optimizer.weight_decay = 0.5;  // So that it needs another model.
  EXPECT_TRUE(absl::IsInternal(rig.prepare().status)) << rig.prepared->status;
}

TEST(PrepareIo, ACheckpointThatIsNotHereIsUnseenAndADamagedOneUnreadable) {
  PrepareRig rig;
  const std::string run_folder = rig.folder.file("run");
  rig.request.run_folder = run_folder;
  rig.request.run = "run-1";
  rig.request.load_path = run_folder + "/checkpoint/step-00000005";
  EXPECT_TRUE(rig.prepare().is_checkpoint_unseen) << "there is no folder";
  std::filesystem::create_directories(rig.request.load_path);
  std::ofstream(rig.request.load_path + "/COMPLETE") << "{}";
  EXPECT_TRUE(rig.prepare().is_checkpoint_unseen) << "the folder is no run's";
  std::ofstream(run_folder + "/run.id") << "run-2\n";
  EXPECT_TRUE(rig.prepare().is_checkpoint_unseen) << "it is another run's";
  EXPECT_FALSE(rig.prepare().is_checkpoint_unreadable);
  std::ofstream(run_folder + "/run.id") << "run-1\n";
  EXPECT_FALSE(rig.prepare().is_checkpoint_unseen);
  EXPECT_TRUE(rig.prepare().is_checkpoint_unreadable) << rig.prepare().status;
}

}  // namespace
}  // namespace skein::actors
