#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <caf/actor_control_block.hpp>

#include "actors/coordinator/coordinator.hpp"
#include "actors/worker/worker.hpp"
#include "plans/worker/reconnect_backoff.hpp"
#include "tests/sim/broken_messages.hpp"
#include "tests/sim/checker.hpp"
#include "tests/sim/cut_short.hpp"
#include "tests/sim/device.hpp"
#include "tests/sim/disk.hpp"
#include "tests/sim/groups.hpp"
#include "tests/sim/network.hpp"
#include "tests/sim/plane.hpp"

namespace skein::sim {

/// What a worker gets that misreads the data, and one that has no memory for another plan.
inline constexpr const char* kMisread = "the sample cannot be read here";
inline constexpr const char* kNoMemory = "there is no memory for the plan";

/// What every process of a run shares.
struct Surroundings {
  World& world;
  Network& network;
  Planes& planes;
  Groups& groups;
  Checker& checker;
  JournalStore& store;
  Disk& disk;
  plans::JobSpec job;
  std::string run;  // Its id.
  std::string run_folder;
  int64_t worker_count = 0;
  int64_t memory_bytes = 0;  // That plans count on for a worker; 0: not limited.
  Mutation mutation = Mutation::kNone;
  const plans::ModeList* modes = nullptr;  // Null: those of the product.
  bool owns_workers = false;               // The coordinator's process has started the workers.
  bool is_other_run = false;               // Not the one that the checker watches.
  std::set<ProcessId> misreads = {};       // Who gets errors instead of samples,
  std::set<ProcessId> lacks_memory = {};   // and who gets one instead of a model.
  int64_t device_bytes = 0;               // That a worker's device has; 0: as much as is asked for.
  std::set<ProcessId> lost_devices = {};  // Whose has failed, or hangs.
  const CutShort* cut_short = nullptr;    // Whether the coordinator that is being started is dead.
  bool payloads_take_time = false;
  bool meets_by_coordinator = false;  // Members of groups, by the rendezvous store.
};

/// The keys of a job that a later coordinator may change, as text and as a digest.
std::string config_text(const plans::JobSpec& job);
uint64_t config_digest(const plans::JobSpec& job);

/// A worker's actors as one simulated process, wired as `WorkerProcess` does.
class SimulatedWorker {
 public:
  /// Where it runs.
  struct Place {
    std::string host_name;    // Its machine's name; empty: that of all others.
    std::string address;      // Its machine's address; empty: one of its own.
    bool sees_folder = true;  // The run's; else there is nothing where that should be.
    std::shared_ptr<SharedGate> gate = nullptr;  // Before the device, if another job has it, too.
  };
  SimulatedWorker(Surroundings& around, std::string name, Place place);
  SimulatedWorker(const SimulatedWorker&) = delete;
  SimulatedWorker& operator=(const SimulatedWorker&) = delete;

  ProcessId process() const { return process_; }
  bool is_alive() const { return around_.world.is_alive(process_); }
  void leave();
  const std::string& host() const { return place_.host_name; }
  /// It says that it has quiesced.
  void on_quiesced() const {
    if (place_.gate) place_.gate->on_quiesced(device_job_);
  }
  bool is_leaving() const { return is_leaving_; }
  void set_speed(double speed);
  /// False if it has none yet.
  bool break_device(DeviceFailure how);
  std::weak_ptr<const void> damage_copy() { return plane_->damage_copy(); }
  SimulatedPlane& plane() { return *plane_; }
  /// `silent`: its machine went with it, no connection tells anybody.
  void kill(bool silent);
  /// How it ended by itself.
  const std::optional<absl::Status>& end_status() const { return end_status_; }

 private:
  void stop_announcing() const;
  /// As a WorkerProcess does: ever more rarely, and for as long as nobody takes it in.
  void connect(uint64_t attempt, double seconds);
  actors::WorkerParts make_parts();
  actors::WorkerConfig make_config();
  /// What the rendezvous store publishes with, as a WorkerProcess does.
  void remember_head(uint64_t attempt, const net::Envelope& message);

  Surroundings& around_;
  const Place place_;
  const std::string own_folder_;  // Instead of the run's; empty: it sees that one.
  ProcessId process_ = 0;
  plans::ReconnectBackoff backoff_;
  BrokenMessages broken_;
  std::shared_ptr<SimulatedPlane> plane_;
  std::shared_ptr<net::RendezvousStore> store_;
  std::shared_ptr<net::ControlLink> link_;
  net::EnvelopeHead head_;
  std::shared_ptr<gpu::Device> device_;
  uint64_t device_job_ = 0;     // The number of the job on a device that is shared.
  uint64_t generation_ = 0;     // That of the newest plan that was assigned.
  actors::Device device_work_;  // Runs its work.
  actors::PrepareIo real_prepare_;
  actors::PrepareIo prepare_;
  actors::Worker worker_;
  std::vector<caf::weak_actor_ptr> shard_actors_;  // Writers of every plan, and their proxies.
  std::optional<absl::Status> end_status_;
  bool is_leaving_ = false;
};

/// A coordinator's actors as one simulated process, wired as `CoordinatorProcess` does. The journal
/// and the run folder outlive it.
class SimulatedCoordinator final : public actors::RunObserver {
 public:
  SimulatedCoordinator(Surroundings& around, std::string name);

  ProcessId process() const { return process_; }
  bool is_alive() const { return around_.world.is_alive(process_); }
  void kill(bool silent);
  /// As SIGTERM. False if it has not begun.
  bool stop();
  bool is_told_to_stop() const { return is_told_to_stop_; }
  /// How the run ended, if it has.
  const std::optional<actors::RunResult>& result() const { return result_; }

  void on_plan(const plans::Plan&, double) override {}
  void on_profiles(const plans::ReportProfiles&) override {}
  void on_step(const actors::StepReport&) override {}
  void on_validation(const actors::ValidationReport&) override {}
  void on_checkpoint(const actors::CheckpointReport& report) override;
  void on_timings(const actors::TimingsReport&) override {}
  void on_event(const actors::EventReport& report) override;

 private:
  absl::Status start();
  actors::JournalIo spawn_journal(std::shared_ptr<actors::Journal> journal);
  actors::Planner spawn_planner();
  actors::CheckpointIo spawn_checkpoints(const std::function<absl::Status()>& check_later_life);
  /// The plane, and who sends and receives state by it.
  void spawn_remote_state(uint64_t term);

  Surroundings& around_;
  ProcessId process_ = 0;
  actors::JournalIo real_journal_;
  actors::JournalIo journal_;
  actors::CheckpointIo real_checkpoints_;
  actors::CheckpointIo checkpoints_;
  std::shared_ptr<SimulatedPlane> plane_;
  actors::RemoteShardIo real_remote_shards_;
  actors::RemoteShardIo remote_shards_;
  actors::LayerSourceIo layer_source_;
  actors::ObserverIo observer_;
  actors::Planner real_planner_;
  actors::Planner planner_;
  actors::Coordinator coordinator_;
  plans::PeerNumber peers_ = 0;
  bool is_told_to_stop_ = false;
  std::optional<actors::RunResult> result_;
};

}  // namespace skein::sim
