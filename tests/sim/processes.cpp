#include "tests/sim/processes.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <utility>

#include <caf/send.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "actors/actor_system.hpp"
#include "actors/coordinator/start_point.hpp"
#include "actors/device/shared_device.hpp"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/checkpoint/checkpoint_reader.hpp"
#include "gpu/checkpoint/checkpoint_writer.hpp"
#include "gpu/profile/measure_profile.hpp"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/plan/pipeline_plan.hpp"
#include "plans/profile/estimate.hpp"
#include "tests/sim/watched_data.hpp"

namespace skein::sim {
namespace {

using PrepareProxy =
    caf::typed_actor<caf::reacts_to<actors::PrepareRequest, actors::PrepareListener>,
                     caf::reacts_to<actors::SendStateRequest, actors::PrepareListener>,
                     caf::reacts_to<actors::ProfileWork, actors::PrepareListener>,
                     caf::reacts_to<actors::EmergencyRequest, actors::PrepareListener>,
                     caf::reacts_to<actors::EmergencyComing>,
                     caf::reacts_to<actors::PreparedReplicas>, caf::reacts_to<actors::StateSent>,
                     caf::reacts_to<actors::EmergencySaved>,
                     caf::reacts_to<actors::ProfileMeasured>>;

/// One thing after the other, each of which takes a while.
struct Turns {
  uint64_t free_us = 0;

  std::chrono::microseconds take(World& world, uint64_t taken_us) {
    free_us = std::max(free_us, world.now_us()) + taken_us;
    return std::chrono::microseconds(free_us - world.now_us());
  }
};

struct PrepareState {
  Turns turns;
  actors::PrepareListener listener;
  uint64_t newest = 0;  // Generation.
};

/// What a worker would measure of a device of its own speed.
plans::MeasuredWorker measure(const plans::JobSpec& job, const std::vector<int64_t>& rows,
                              double speed, int64_t memory_bytes) {
  constexpr double kFlops = 1e7;  // So that passes take about as long as the simulated device's.
  plans::MeasuredWorker measured;
  measured.profile = plans::estimate_profile(job.model, job.training.seq_len, rows, job.optimizer,
                                             kFlops * speed, 1e12);
  if (memory_bytes > 0) {
    measured.memory_bytes = int64_t{1} << 50;  // The machine's.
    measured.memory_bytes_max = memory_bytes;
  }
  return measured;
}

/// What plans may count on; 0: there is no limit. As `prepare_io` says it of a device with a limit.
int64_t memory_left(const Surroundings& around, const actors::ProfileWork& work) {
  if (around.device_bytes == 0) return around.memory_bytes;
  const int64_t working = gpu::working_bytes(work.job, *work.device, work.rows.back());
  return std::max<int64_t>(1, around.device_bytes - working);
}

absl::Status misread() { return absl::DataLossError(kMisread); }

/// The product's PrepareIo behind a delay, with the checker in between.
PrepareProxy::behavior_type prepare_proxy(PrepareProxy::stateful_pointer<PrepareState> self,
                                          Surroundings* around, ProcessId process,
                                          std::string own_folder, actors::PrepareIo real) {
  auto delay = [self, around] {
    return self->state.turns.take(around->world, around->world.between(1'000, 60'000));
  };
  return {
      [self, around, process, own_folder, real, delay](const actors::PrepareRequest& request,
                                                       const actors::PrepareListener& listener) {
        self->state.listener = listener;
        self->state.newest = std::max(self->state.newest, request.plan.generation);
        around->checker.on_prepare(process, request);
        actors::PrepareRequest passed = request;
        if (!own_folder.empty() && passed.load_path.starts_with(passed.run_folder)) {
          passed.load_path.replace(0, passed.run_folder.size(), own_folder);
          passed.run_folder = own_folder;
        }
        self->delayed_send(real, delay(), std::move(passed), actors::PrepareListener(self));
      },
      [self, real, delay](const actors::SendStateRequest& request,
                          const actors::PrepareListener& listener) {
        self->state.listener = listener;
        self->delayed_send(real, delay(), request, actors::PrepareListener(self));
      },
      [self, around, delay, process](const actors::ProfileWork& work,
                                     const actors::PrepareListener& listener) {
        if (work.rows.empty()) return;  // It answers probes only, of which there are none.
        const double speed = static_cast<double>(around->world.between(5, 20)) * 0.1;
        actors::ProfileMeasured result{
            absl::OkStatus(), measure(around->job, work.rows, speed, memory_left(*around, work))};
        if (around->lacks_memory.contains(process)) {
          result = {absl::ResourceExhaustedError(kNoMemory), {}};
        }
        self->delayed_send(listener, delay(), std::move(result));
      },
      [self, around, process](const actors::PreparedReplicas& result) {
        actors::PreparedReplicas passed = result;
        if (around->mutation == Mutation::kStaleGeneration) {
          passed.generation = self->state.newest;
        }
        passed.data = watch_data(passed.data, [around, process](uint64_t sample) {
          around->checker.on_read(process, sample);
          return around->misreads.contains(process) ? misread() : absl::OkStatus();
        });
        if (passed.status.ok() && around->misreads.contains(process)) passed.status = misread();
        if (passed.status.ok() && around->lacks_memory.contains(process)) {
          passed.status = absl::ResourceExhaustedError(kNoMemory);
        }
        if (!passed.status.ok()) passed.replicas.clear();
        if (around->mutation == Mutation::kModelsKept) passed.moved.clear();
        around->checker.on_prepared(process, passed);
        self->send(self->state.listener, std::move(passed));
      },
      [self, own_folder, real, delay](const actors::EmergencyRequest& request,
                                      const actors::PrepareListener& listener) {
        self->state.listener = listener;
        actors::EmergencyRequest passed = request;
        if (!own_folder.empty()) passed.run_folder = own_folder;
        self->delayed_send(real, delay(), std::move(passed), actors::PrepareListener(self));
      },
      [self, own_folder, real](const actors::EmergencyComing& coming) {
        actors::EmergencyComing passed = coming;
        if (!own_folder.empty()) passed.run_folder = own_folder;
        self->send(real, std::move(passed));
      },
      [self](const actors::StateSent& sent) { self->send(self->state.listener, sent); },
      [self, around, process](const actors::EmergencySaved& saved) {
        const bool is_torn = around->disk.on_left(saved.folders);
        around->checker.on_left(process, !is_torn && saved.status.ok());
        self->send(self->state.listener, saved);
      },
      [](const actors::ProfileMeasured&) {},
  };
}

/// The product's JournalIo behind a slow disk.
actors::JournalIo::behavior_type journal_proxy(actors::JournalIo::stateful_pointer<Turns> self,
                                               Surroundings* around, actors::JournalIo real) {
  auto delay = [self, around] {
    return self->state.take(around->world, around->world.between(100, 5'000));
  };
  return {
      [self, around, real, delay](const actors::JournalRequest& request,
                                  const actors::JournalListener& listener) {
        if (around->mutation == Mutation::kCommitBeforeJournal) {
          self->send(listener, actors::CommitJournaled{request.record.step, absl::OkStatus()});
          self->delayed_send(real, delay(), request, actors::JournalListener(self->spawn([]() {
                               return actors::JournalListener::behavior_type{
                                   [](const actors::CommitJournaled&) {}};
                             })));
          return;
        }
        ++around->store.pending;
        self->delayed_send(real, delay(), request, listener);
      },
      [self, around, real, delay](const plans::RewindJournal& rewind) {
        if (around->mutation == Mutation::kRewindSkipped) return;
        self->delayed_send(real, delay(), rewind);
      },
      [self, real, delay](const plans::Plan& plan) { self->delayed_send(real, delay(), plan); },
      [self, real, delay](actors::LaterLifeRequest asked,
                          const actors::LaterLifeListener& listener) {
        self->delayed_send(real, delay(), asked, listener);
      },
      [](actors::TickAtom) {},
  };
}

/// The product's CheckpointIo behind a slow disk.
actors::CheckpointIo::behavior_type checkpoint_proxy(
    actors::CheckpointIo::stateful_pointer<Turns> self, Surroundings* around,
    actors::CheckpointIo real) {
  auto pass = [self, around, real](const auto& request,
                                   const actors::CheckpointListener& listener) {
    self->delayed_send(real, self->state.take(around->world, around->disk.take_us()), request,
                       listener);
  };
  return {[pass](const actors::CheckpointRequest& request,
                 const actors::CheckpointListener& listener) { pass(request, listener); },
          [self, around, real](const plans::DeletePartials& order) {
            self->delayed_send(real, self->state.take(around->world, around->disk.take_us()),
                               order);
          },
          [pass](const actors::StartRequest& request, const actors::CheckpointListener& listener) {
            pass(request, listener);
          },
          [around, pass](const actors::LeftStateRequest& request,
                         const actors::CheckpointListener& listener) {
            if (around->mutation == Mutation::kLeftIgnored) around->disk.delete_partial();
            pass(request, listener);
          }};
}

using ShardProxy =
    caf::typed_actor<caf::reacts_to<actors::ShardRequest, actors::ShardListener>,
                     caf::reacts_to<actors::SnapshotRequest, actors::SnapshotListener>,
                     caf::reacts_to<actors::ShardWritten>>;

struct ShardProxyState {
  Turns turns;
  std::deque<actors::ShardListener> listeners;  // Those of requests that are not written yet.
};

/// The product's ShardIo behind a slow disk: it may outlive the replica whose state it writes.
ShardProxy::behavior_type shard_proxy(ShardProxy::stateful_pointer<ShardProxyState> self,
                                      Surroundings* around, ProcessId process,
                                      actors::ShardIoConfig config, actors::ShardIo real) {
  auto folder = [config](uint64_t steps_done) {
    return gpu::partial_checkpoint_path(config.run_folder, steps_done, config.generation);
  };
  return {
      [self, around, process, folder, real](const actors::ShardRequest& request,
                                            const actors::ShardListener& listener) {
        around->checker.on_shard_begun(
            process, absl::StrCat(folder(request.steps_done), "/", request.stage));
        self->state.listeners.push_back(listener);
        self->delayed_send(real, self->state.turns.take(around->world, around->disk.take_us()),
                           request, actors::ShardListener(self));
      },
      [self, real](const actors::SnapshotRequest& request,
                   const actors::SnapshotListener& listener) {
        self->send(real, request, listener);
      },
      [self, around, process, folder](const actors::ShardWritten& written) {
        const std::string path = folder(written.steps_done);
        around->checker.on_shard_ended(process, absl::StrCat(path, "/", written.stage));
        const auto steps = static_cast<uint64_t>(around->job.training.steps);
        if (written.files.ok() && !written.is_sent) {
          std::set<std::string> names;
          for (const gpu::SavedFile& file : *written.files) names.insert(file.name);
          around->disk.on_shard_written(path, names, written.steps_done >= steps);
        }
        self->send(self->state.listeners.front(), written);
        self->state.listeners.pop_front();
      },
  };
}

using RemoteShardProxy =
    caf::typed_actor<caf::reacts_to<plans::ReceiveShard, actors::RemoteShardListener>,
                     caf::reacts_to<actors::StateArrived>, caf::reacts_to<plans::AbandonShard>,
                     caf::reacts_to<plans::EndTransfers>, caf::reacts_to<actors::ShardLayerArrived>,
                     caf::reacts_to<actors::ShardReceived>>;

struct RemoteShardState {
  Turns turns;
  actors::RemoteShardListener listener;
};

/// The product's RemoteShardIo behind a slow disk: until the files of a shard are written it hears
/// of nothing else, and what it is told waits.
RemoteShardProxy::behavior_type remote_shard_proxy(
    RemoteShardProxy::stateful_pointer<RemoteShardState> self, Surroundings* around,
    ProcessId process, actors::RemoteShardIo real) {
  const auto path = [around](const plans::ReceiveShard& shard) {
    return absl::StrCat(
        gpu::partial_checkpoint_path(around->run_folder, shard.steps_done, shard.generation), "/",
        shard.stage);
  };
  const auto waited = [self, around] { return self->state.turns.take(around->world, 0); };
  return {
      [self, real, waited](const plans::ReceiveShard& shard,
                           const actors::RemoteShardListener& listener) {
        self->state.listener = listener;
        self->delayed_send(real, waited(), shard, actors::RemoteShardListener(self));
      },
      [](const actors::StateArrived&) {},  // The plane knows the product's.
      [self, real, waited](const plans::AbandonShard& order) {
        self->delayed_send(real, waited(), order);
      },
      [self, real, waited](const plans::EndTransfers& order) {
        self->delayed_send(real, waited(), order);
      },
      [self, waited](const actors::ShardLayerArrived& arrived) {
        self->delayed_send(self->state.listener, waited(), arrived);
      },
      [self, around, process, path](const actors::ShardReceived& received) {
        const bool is_written = received.files.ok();
        if (is_written) around->checker.on_shard_begun(process, path(received.shard));
        const auto taken =
            self->state.turns.take(around->world, is_written ? around->disk.take_us() : 0);
        self->delayed_send(self->state.listener, taken, received);
        if (!is_written) return;
        around->world.after(static_cast<uint64_t>(taken.count()), process,
                            [around, process, name = path(received.shard)] {
                              around->checker.on_shard_ended(process, name);
                            });
      },
  };
}

/// The product's Planner, who thinks for a moment or for several leases.
actors::Planner::behavior_type planner_proxy(actors::Planner::stateful_pointer<Turns> self,
                                             Surroundings* around, actors::Planner real) {
  constexpr uint64_t kLeases = 3;
  return {[self, around, real](const plans::RequestPlan& request,
                               const actors::PlannerListener& listener) {
    World& world = around->world;
    const double lease_us = around->job.elastic.heartbeat_timeout_seconds * 1e6;
    const auto most_us =
        world.chance(0.5) ? uint64_t{20'000} : static_cast<uint64_t>(kLeases * lease_us);
    self->delayed_send(real, self->state.take(world, world.between(0, most_us)), request, listener);
  }};
}

/// Every state that a worker lists is that of its newest step.
void ignore_steps(net::Envelope& message) {
  auto* quiesced = std::get_if<net::Quiesced>(&message.body);
  if (quiesced == nullptr) return;
  plans::InventoryItem newest;
  for (const plans::InventoryItem& each : quiesced->state_inventory) {
    if (each.step >= newest.step) newest = each;
  }
  for (plans::InventoryItem& each : quiesced->state_inventory) {
    each.step = newest.step;
    each.generation = newest.generation;
  }
}

void end_actor(const caf::actor& actor) {
  if (actor) caf::anon_send_exit(actor, caf::exit_reason::kill);
}

}  // namespace

std::string config_text(const plans::JobSpec& job) {
  return absl::StrCat(job.optimizer.lr, " ", job.optimizer.momentum);
}

uint64_t config_digest(const plans::JobSpec& job) {
  uint64_t digest = 1;
  for (const char each : config_text(job)) digest = digest * 131 + static_cast<unsigned char>(each);
  return digest;
}

SimulatedWorker::SimulatedWorker(Surroundings& around, std::string name, Place place)
    : around_(around),
      place_(std::move(place)),
      own_folder_(place_.sees_folder ? "" : absl::StrCat(around.run_folder, "/of-", name)),
      process_(around.world.add_process(std::move(name))),
      backoff_(process_),
      broken_(around.mutation) {
  SimulatedPlane::Options options;
  options.process = process_;
  options.address = absl::StrCat(around.world.name(process_), ":1");
  if (!place_.address.empty()) {
    around.network.place(process_, place_.address);
    options.address = absl::StrCat(place_.address, ":", process_);
  }
  options.payloads_take_time = around.payloads_take_time;
  options.damages_moves = around.mutation == Mutation::kSealsSkipped;
  options.ignores_generation = around.mutation == Mutation::kStaleGeneration;
  options.on_peer_lost = [this](const std::string& address, absl::Status why) {
    caf::anon_send(worker_, actors::WorkerFault{absl::UnavailableError(absl::StrCat(
                                                    "the data connection to ", address,
                                                    " broke: ", std::string(why.message()))),
                                                address});
  };
  options.on_unreachable = [this](const std::string& address, absl::Status why) {
    caf::anon_send(worker_, actors::WorkerFault{std::move(why), address, true});
  };
  plane_ = std::make_shared<SimulatedPlane>(around.world, around.network, around.planes,
                                            std::move(options));
  store_ = around.groups.make_store([this](const std::string& key, const std::vector<char>& value,
                                           const net::RendezvousStore::Receivers& receivers) {
    if (link_) link_->send(net::encode(head_, net::RendezvousEntry{key, value, receivers}));
  });
  World& world = around.world;
  real_prepare_ = world.spawn_in(
      process_, [](auto& system) { return actors::PrepareIo(system.spawn(actors::prepare_io)); });
  prepare_ = world.spawn_in(process_, [&](auto& system) {
    return actors::PrepareIo(
        system.spawn(prepare_proxy, &around_, process_, own_folder_, real_prepare_));
  });
  worker_ = world.spawn_in(
      process_, [&](auto& system) { return system.spawn(actors::worker, make_config()); });
}

actors::WorkerConfig SimulatedWorker::make_config() {
  actors::WorkerConfig config;
  config.options.connect_timeout_seconds = 60;
  config.options.host_name = place_.host_name;
  config.options.parse_job = [job = around_.job](const std::string& text) {
    plans::JobSpec parsed = job;
    const std::vector<std::string> words = absl::StrSplit(text, ' ');
    SKEIN_CHECK(words.size() == 2 && absl::SimpleAtod(words[0], &parsed.optimizer.lr) &&
                absl::SimpleAtod(words[1], &parsed.optimizer.momentum))
        << text;
    return absl::StatusOr<plans::JobSpec>(parsed);
  };
  config.options.digest_job = config_digest;
  config.parts = make_parts();
  config.plane = plane_;
  config.store = store_;
  config.prepare = prepare_;
  config.connect = [this](uint64_t attempt, double seconds) { connect(attempt, seconds); };
  config.on_end = [this](absl::Status status, bool /*is_at_work*/) {
    around_.world.trace(around_.world.name(process_), " ends: ", status.ToString());
    if (own_folder_.empty() && absl::StartsWith(status.message(), "lost the coordinator")) {
      around_.checker.on_given_up(process_);
    }
    const bool leaves_nothing = status.message() == kMisread || absl::IsResourceExhausted(status);
    if (leaves_nothing) around_.checker.check_let_go(process_);
    end_status_ = std::move(status);
    around_.world.after(1'000, process_, [this] { kill(false); });
  };
  return config;
}

actors::WorkerParts SimulatedWorker::make_parts() {
  actors::WorkerParts parts;
  parts.modes = around_.modes;
  parts.checks_invariants = true;
  parts.make_device = [this](const plans::JobSpec& job, const std::string&) {
    const plans::DeviceSpec& spec = job.device;
    const gpu::SleepProfile times = {spec.sleep_forward_us, spec.sleep_backward_us,
                                     spec.sleep_update_us};
    device_ = make_simulated_device(around_.world, times, spec.speed, around_.device_bytes);
    if (!place_.gate) return actors::WorkerDevice{device_, nullptr};
    device_job_ = actors::device_job_number(around_.run);
    const plans::DeviceJob own{device_job_, job.sharing.priority, job.sharing.weight};
    return actors::WorkerDevice{device_, place_.gate->join(own)};
  };
  parts.spawn_device = [this](const std::shared_ptr<gpu::Device>& device) {
    DeviceWatch watch;
    watch.on_update_begun = [this] { around_.checker.on_update_begun(process_); };
    watch.on_update_ended = [this] { around_.checker.on_update(process_); };
    watch.on_copied = [this](uint64_t group) { around_.checker.on_copied(process_, group); };
    DeviceSharing sharing;
    sharing.gate = place_.gate;
    sharing.job = device_job_;
    sharing.is_synchronous = !plans::may_run_pipelines(around_.job);
    sharing.generation = [this] { return generation_; };
    device_work_ = spawn_simulated_device(around_.world, process_, std::move(watch),
                                          std::move(sharing), device);
    return device_work_;
  };
  parts.make_shard_io = [this](actors::ShardIoConfig config) {
    auto& system = around_.world.system();
    if (!own_folder_.empty()) config.run_folder = own_folder_;
    actors::ShardIo real = system.spawn(actors::shard_io, config);
    shard_actors_.push_back(caf::actor_cast<caf::weak_actor_ptr>(real));
    if (!around_.disk.watches_shards()) return real;
    actors::ShardIo proxy(
        system.spawn(shard_proxy, &around_, process_, std::move(config), std::move(real)));
    shard_actors_.push_back(caf::actor_cast<caf::weak_actor_ptr>(proxy));
    return proxy;
  };
  parts.make_group = [this](plans::GroupId number, const actors::GroupRequest& request) {
    net::GradientGroup::Options named = request.options;
    if (around_.mutation == Mutation::kStaleGeneration) {
      named.name = named.name.substr(named.name.find('/'));
    }
    return absl::StatusOr<actors::GroupParts>(around_.groups.make_member(
        process_, number, named, around_.meets_by_coordinator ? store_ : nullptr));
  };
  return parts;
}

void SimulatedWorker::connect(uint64_t attempt, double seconds) {
  const plans::ReconnectBackoff::Attempt next =
      backoff_.begin(attempt, seconds, around_.world.now_us());
  const double delay_s = next.left_seconds > 0 ? next.delay_seconds : 0;
  const auto delay_us = static_cast<uint64_t>(delay_s * 1e6);
  around_.world.after(delay_us, process_, [this, attempt, left_s = next.left_seconds] {
    const auto on_closed = [this, attempt](absl::Status why) {
      caf::anon_send(worker_, actors::LinkClosed{attempt, std::move(why)});
    };
    if (left_s <= 0) return on_closed(absl::UnavailableError("nobody has taken us in"));
    net::ControlLink::Handlers handlers = {
        [this, attempt](net::Envelope message) {
          auto received = broken_.receive(std::move(message));
          if (!received) return;
          remember_head(attempt, *received);
          if (std::holds_alternative<net::Assign>(received->body)) {
            generation_ = received->head.generation;
          }
          caf::anon_send(worker_, actors::LinkMessage{attempt, *std::move(received)});
        },
        on_closed};
    around_.network.connect(
        process_, left_s, std::move(handlers),
        [this, attempt, on_closed](absl::StatusOr<std::shared_ptr<net::ControlLink>> link) {
          if (!link.ok()) return on_closed(link.status());
          link_ = *link;
          caf::anon_send(worker_, actors::LinkOpened{attempt, *link});
        });
  });
}

void SimulatedWorker::remember_head(uint64_t attempt, const net::Envelope& message) {
  if (!backoff_.is_newest(attempt)) return;
  if (const auto* joined = std::get_if<net::Joined>(&message.body)) {
    backoff_.on_joined();
    head_.sender = joined->worker.value;
    head_.term = message.head.term;
  } else if (std::holds_alternative<net::Quiesce>(message.body)) {
    head_.generation = message.head.generation;
  }
}

void SimulatedWorker::leave() {
  is_leaving_ = true;
  caf::anon_send(worker_, actors::LeaveRequest{"a notice"});
}

void SimulatedWorker::set_speed(double speed) {
  if (device_) device_->set_speed(speed);
}

bool SimulatedWorker::break_device(DeviceFailure how) {
  if (!device_) return false;
  sim::break_device(*device_, how);
  return true;
}

/// Files' times are real ones, by which nobody is ever dead for long. Who lives says it again.
void SimulatedWorker::stop_announcing() const {
  namespace fs = std::filesystem;
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  std::error_code error;
  const std::string& folder = own_folder_.empty() ? around_.run_folder : own_folder_;
  for (const auto& entry : fs::directory_iterator(folder + "/checkpoint", error)) {
    const fs::path awaited = entry.path() / gpu::kAwaitedName;
    if (!fs::exists(awaited, error)) continue;
    fs::last_write_time(awaited, long_ago, error);
    if (!fs::exists(entry.path() / gpu::kHeldName, error))
      fs::last_write_time(entry.path(), long_ago, error);
  }
}

void SimulatedWorker::kill(bool silent) {
  if (!is_alive()) return;
  World& world = around_.world;
  world.kill(process_);
  if (place_.gate) place_.gate->remove(device_job_);
  around_.checker.on_killed(process_);
  around_.network.on_killed(process_, silent);
  plane_->on_killed(silent);
  around_.groups.on_killed(process_, silent);
  end_actor(caf::actor_cast<caf::actor>(worker_));
  end_actor(caf::actor_cast<caf::actor>(prepare_));
  end_actor(caf::actor_cast<caf::actor>(real_prepare_));
  if (device_work_) end_actor(caf::actor_cast<caf::actor>(device_work_));
  // What waits to be sent holds its listener, which holds the writer.
  for (const caf::weak_actor_ptr& each : std::exchange(shard_actors_, {})) {
    end_actor(caf::actor_cast<caf::actor>(each.lock()));
  }
  device_.reset();
  link_.reset();
  world.drain(process_);
  stop_announcing();
  worker_ = nullptr;
  prepare_ = real_prepare_ = nullptr;
  device_work_ = nullptr;
  world.drain(process_);
}

SimulatedCoordinator::SimulatedCoordinator(Surroundings& around, std::string name)
    : around_(around), process_(around.world.add_process(std::move(name))) {
  absl::Status status = start();
  const bool is_dead = around.cut_short && around.cut_short->has_struck();
  if (status.ok() || is_dead) return;
  result_.emplace();
  // It died between the last checkpoint and its own end: there is nothing left to do, as
  // `skein train --resume-latest` sees by the checkpoint, whatever the journal has lost.
  const auto steps = static_cast<uint64_t>(around.job.training.steps);
  const auto reader = gpu::CheckpointReader::open(around.run_folder);
  const bool done = absl::IsInvalidArgument(status) && reader.ok() &&
                    (*reader)->trainer_state().steps_done == steps;
  if (done) result_->steps_done = steps;
  result_->status = done ? absl::OkStatus() : std::move(status);
}

absl::Status SimulatedCoordinator::start() {
  actors::CoordinatorOptions options;
  options.job = around_.job;
  if (around_.mutation == Mutation::kLeaseIgnored) {
    options.job.elastic.heartbeat_timeout_seconds = 1e9;
  }
  options.job_id = "simulated";
  options.job_config = config_text(around_.job);
  options.config_digest = config_digest(around_.job);
  options.run_id = around_.run;
  options.run_folder = around_.run_folder;
  options.worker_count = around_.worker_count;
  options.awaits_last_workers = !around_.owns_workers;
  options.observer = this;
  if (gpu::complete_checkpoints(around_.run_folder).ok()) {
    options.load_path = around_.run_folder;  // As `skein train --resume` does.
  }
  std::shared_ptr<actors::Journal> journal = open_journal(around_.store);
  if (around_.mutation == Mutation::kLeftIgnored) around_.disk.delete_partial();
  actors::StartPoint start;
  start.is_verified = false;
  if (around_.store.lives > 1) {
    SKEIN_ASSIGN_OR_RETURN(
        start, actors::find_resumed(options.job, {options.run_folder, options.run_id}, *journal,
                                    options.load_path));
  }
  if (around_.cut_short && around_.cut_short->has_struck()) {
    return absl::AbortedError("it has died between two operations on files");
  }
  if (!around_.is_other_run) around_.checker.on_coordinator_started(process_);
  actors::CoordinatorConfig config;
  config.term = journal->term();
  World& world = around_.world;
  checkpoints_ = spawn_checkpoints(journal->later_life_check());
  journal_ = spawn_journal(std::move(journal));
  spawn_remote_state(config.term);
  observer_ = world.spawn_in(process_, [&](auto& system) {
    return system.spawn(actors::observer_io, static_cast<actors::RunObserver*>(this),
                        std::function<void()>([] {}));
  });
  config.options = std::move(options);
  config.start = std::move(start);
  config.journal = journal_;
  config.checkpoints = checkpoints_;
  config.remote_shards = remote_shards_;
  config.layer_source = layer_source_;
  config.data_address = plane_->address();
  config.plane = plane_.get();
  config.draw_secret = [plans = uint64_t{0}, life = uint64_t{process_}]() mutable {
    return life << 32 | ++plans;  // Strangers do not guess here.
  };
  config.observer = observer_;
  planner_ = spawn_planner();
  config.planner = planner_;
  config.modes = around_.modes;
  config.checks_invariants = true;
  config.on_result = [this](actors::RunResult result) {
    if (!is_alive()) return;
    if (!around_.checker.is_superseded(process_)) around_.checker.on_result(result);
    result_ = std::move(result);
  };
  coordinator_ = world.spawn_in(
      process_, [&](auto& system) { return system.spawn(actors::coordinator, std::move(config)); });
  around_.network.listen(
      process_, [this](std::shared_ptr<net::ControlLink> link, net::schema::Role role) {
        const plans::PeerNumber peer = ++peers_;
        caf::anon_send(coordinator_, actors::PeerOpened{peer, std::move(link), role});
        return net::ControlLink::Handlers{
            [this, peer](net::Envelope message) {
              if (around_.mutation == Mutation::kSnapshotStepIgnored) ignore_steps(message);
              if (!BrokenMessages::receive_at_coordinator(around_.mutation, message)) return;
              caf::anon_send(coordinator_, actors::PeerMessage{peer, std::move(message)});
            },
            [this, peer](absl::Status why) {
              caf::anon_send(coordinator_, actors::PeerClosed{peer, std::move(why)});
            }};
      });
  return absl::OkStatus();
}

actors::Planner SimulatedCoordinator::spawn_planner() {
  World& world = around_.world;
  real_planner_ = world.spawn_in(process_, [&](auto& system) {
    return actors::Planner(system.spawn(actors::planner, actors::PlannerConfig{}));
  });
  return world.spawn_in(process_, [&](auto& system) {
    return actors::Planner(system.spawn(planner_proxy, &around_, real_planner_));
  });
}

actors::CheckpointIo SimulatedCoordinator::spawn_checkpoints(
    const std::function<absl::Status()>& check_later_life) {
  World& world = around_.world;
  real_checkpoints_ = world.spawn_in(process_, [&](auto& system) {
    return actors::CheckpointIo(system.spawn(actors::checkpoint_io, around_.job,
                                             actors::RunPlace{around_.run_folder, around_.run},
                                             check_later_life));
  });
  if (!around_.disk.is_slow() && around_.mutation != Mutation::kLeftIgnored) {
    return real_checkpoints_;
  }
  return world.spawn_in(process_, [&](auto& system) {
    return actors::CheckpointIo(system.spawn(checkpoint_proxy, &around_, real_checkpoints_));
  });
}

void SimulatedCoordinator::spawn_remote_state(uint64_t term) {
  SimulatedPlane::Options options;
  options.process = process_;
  options.address = absl::StrCat(around_.world.name(process_), ":1");
  options.takes_all_for_dead = around_.mutation == Mutation::kClosedIsDead;
  options.payloads_take_time = around_.payloads_take_time;
  options.on_peer_lost = options.on_unreachable = [](const std::string&, const absl::Status&) {};
  plane_ = std::make_shared<SimulatedPlane>(around_.world, around_.network, around_.planes,
                                            std::move(options));
  plane_->identify({around_.run, {}, term});
  layer_source_ = around_.world.spawn_in(process_, [&](auto& system) {
    return actors::LayerSourceIo(
        system.spawn(actors::layer_source_io, actors::LayerSourceIoConfig{around_.job, plane_}));
  });
  remote_shards_ = real_remote_shards_ = around_.world.spawn_in(process_, [&](auto& system) {
    return actors::RemoteShardIo(
        system.spawn(actors::remote_shard_io,
                     actors::RemoteShardIoConfig{around_.run_folder, around_.job, plane_}));
  });
  if (!around_.disk.is_slow()) return;
  remote_shards_ = around_.world.spawn_in(process_, [&](auto& system) {
    return actors::RemoteShardIo(
        system.spawn(remote_shard_proxy, &around_, process_, real_remote_shards_));
  });
}

actors::JournalIo SimulatedCoordinator::spawn_journal(std::shared_ptr<actors::Journal> journal) {
  World& world = around_.world;
  real_journal_ = world.spawn_in(process_, [&](auto& system) {
    return actors::JournalIo(system.spawn(actors::journal_io, std::move(journal)));
  });
  return world.spawn_in(process_, [&](auto& system) {
    return actors::JournalIo(system.spawn(journal_proxy, &around_, real_journal_));
  });
}

void SimulatedCoordinator::on_event(const actors::EventReport& report) {
  if (is_alive() && !around_.checker.is_superseded(process_)) around_.checker.on_event(report);
}

void SimulatedCoordinator::on_checkpoint(const actors::CheckpointReport& report) {
  if (!is_alive()) return;
  around_.checker.on_checkpoint(report);
  around_.disk.on_completed();
}

bool SimulatedCoordinator::stop() {
  if (!coordinator_) return false;
  caf::anon_send(coordinator_, actors::StopRequest{"a signal"});
  is_told_to_stop_ = true;
  return true;
}

void SimulatedCoordinator::kill(bool silent) {
  if (!is_alive()) return;
  World& world = around_.world;
  world.kill(process_);
  around_.checker.on_killed(process_);
  around_.network.on_killed(process_, silent);
  if (plane_) plane_->on_killed(silent);
  if (coordinator_) {
    end_actor(caf::actor_cast<caf::actor>(coordinator_));
    end_actor(caf::actor_cast<caf::actor>(journal_));
    end_actor(caf::actor_cast<caf::actor>(real_journal_));
    end_actor(caf::actor_cast<caf::actor>(checkpoints_));
    end_actor(caf::actor_cast<caf::actor>(real_checkpoints_));
    end_actor(caf::actor_cast<caf::actor>(remote_shards_));
    end_actor(caf::actor_cast<caf::actor>(real_remote_shards_));
    end_actor(caf::actor_cast<caf::actor>(layer_source_));
    end_actor(caf::actor_cast<caf::actor>(observer_));
    end_actor(caf::actor_cast<caf::actor>(planner_));
    end_actor(caf::actor_cast<caf::actor>(real_planner_));
  }
  world.drain(process_);
  coordinator_ = nullptr;
  journal_ = real_journal_ = nullptr;
  checkpoints_ = real_checkpoints_ = nullptr;
  remote_shards_ = real_remote_shards_ = nullptr;
  layer_source_ = nullptr;
  observer_ = nullptr;
  planner_ = real_planner_ = nullptr;
  world.drain(process_);
}

}  // namespace skein::sim
