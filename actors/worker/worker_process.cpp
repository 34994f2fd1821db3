#include "actors/worker/worker_process.hpp"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/send.hpp>

#include "absl/strings/str_cat.h"
#include "actors/actor_system.hpp"
#include "actors/collectives/device_gradient_group.hpp"
#include "actors/microseconds.hpp"
#include "actors/printing/stderr_lines.hpp"
#include "actors/worker/worker.hpp"
#include "gpu/cuda/load_cuda.hpp"
#include "net/control/control_link.hpp"
#include "net/event_loop.hpp"
#include "net/local_address.hpp"
#include "plans/base/event_rate.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/simulator/job_scenario.hpp"
#include "plans/worker/reconnect_backoff.hpp"

namespace skein::actors {
namespace {

/// FailedPrecondition if a CUDA device is asked for and there is none, ResourceExhausted if it has
/// no room; "auto" takes the processor instead.
absl::StatusOr<std::shared_ptr<gpu::Device>> make_device(const plans::DeviceSpec& spec,
                                                         int32_t local_rank) {
  plans::Scenario scenario = plans::device_scenario(spec);
  if (spec.type == "sleep") {
    return gpu::make_sleep_device(
        {spec.sleep_forward_us, spec.sleep_backward_us, spec.sleep_update_us}, spec.speed,
        std::move(scenario));
  }
  const auto threads = static_cast<int32_t>(spec.threads);
  const auto slowed = [&](std::unique_ptr<gpu::Device> device) -> std::shared_ptr<gpu::Device> {
    return gpu::make_slowed_device(std::move(device), spec.speed, std::move(scenario));
  };
  if (spec.type == "cpu") return slowed(gpu::make_host_device(threads));
  gpu::CudaOptions options;
  options.ordinal = static_cast<int32_t>(spec.ordinal);
  options.local_rank = local_rank;
  options.precision = spec.precision;
  options.memory_bytes_max = spec.memory_limit_mb << 20;
  absl::StatusOr<std::unique_ptr<gpu::Device>> cuda = gpu::load_cuda_device(options);
  if (cuda.ok()) {
    const gpu::DeviceInfo& info = (*cuda)->info();
    print_error_line(absl::StrCat("skein: local rank ", local_rank, " computes on ", info.name,
                                  info.remark.empty() ? "" : "; ", info.remark));
    return slowed(*std::move(cuda));
  }
  const std::string why(cuda.status().message());
  const bool is_there = absl::IsResourceExhausted(cuda.status());
  if (spec.type == "cuda" && is_there) {
    return absl::ResourceExhaustedError(absl::StrCat("device.type = \"cuda\": ", why));
  }
  if (spec.type == "cuda") {
    return absl::FailedPreconditionError(absl::StrCat(
        "device.type = \"cuda\", but there is no CUDA device: ", why,
        "; with device.type = \"auto\" a worker without one computes on the processor"));
  }
  print_error_line(absl::StrCat("skein: no CUDA device", is_there ? " that has room: " : ": ", why,
                                "; using ", threads, " threads of the processor"));
  return slowed(gpu::make_host_device(threads));
}

class LocalWorker final : public WorkerProcess {
 public:
  explicit LocalWorker(WorkerOptions options)
      : options_(std::move(options)), system_config_(make_system_config()) {}

  ~LocalWorker() override {
    if (store_) store_->cancel();
    if (worker_) caf::anon_send_exit(worker_, caf::exit_reason::user_shutdown);
    if (prepare_) caf::anon_send_exit(prepare_, caf::exit_reason::user_shutdown);
    if (system_) system_->await_all_actors_done();
    // The thread of a detached actor ends when the last handle to it goes.
    worker_ = nullptr;
    prepare_ = nullptr;
    round_.reset();  // They have the device, whose work tells the time by the
                     // actors' clock.
    group_store_.reset();
    link_.reset();
    plane_.reset();
    store_.reset();
    loop_.reset();
    system_.reset();
  }

  absl::Status run() {
    SKEIN_ASSIGN_OR_RETURN(loop_, net::EventLoop::start());
    system_ = std::make_unique<caf::actor_system>(system_config_);
    net::DataPlane::Options plane_options;
    plane_options.listen_address = absl::StrCat(options_.bind_address, ":0");
    plane_options.insecure = options_.insecure;
    plane_options.on_peer_lost = [this](const std::string& address, absl::Status why) {
      caf::anon_send(
          worker_,
          WorkerFault{absl::UnavailableError(absl::StrCat("the data connection to ", address,
                                                          " broke: ", std::string(why.message()))),
                      address});
    };
    plane_options.on_unreachable = [this](const std::string& address, absl::Status why) {
      caf::anon_send(worker_, WorkerFault{absl::UnavailableError(absl::StrCat(
                                              address, " was tried for about a lease, in vain: ",
                                              std::string(why.message()))),
                                          address, true});
    };
    plane_options.on_no_memory = [this](uint64_t generation, absl::Status why) {
      caf::anon_send(worker_,
                     WorkerFault{.why = std::move(why), .no_memory_generation = generation});
    };
    plane_options.on_refused = [rate = plans::EventRate()](const std::string& peer,
                                                           const std::string& why) mutable {
      if (!rate.admit(to_us(std::chrono::steady_clock::now()))) return;
      print_error_line(absl::StrCat("skein: turned away a data connection of ", peer, ": ", why));
    };
    SKEIN_ASSIGN_OR_RETURN(plane_, net::DataPlane::start(*loop_, std::move(plane_options)));
    store_ = net::RendezvousStore::create(
        [this](const std::string& key, const std::vector<char>& value,
               const net::RendezvousStore::Receivers& to) { publish(key, value, to); });
    prepare_ = system_->spawn<caf::detached>(prepare_io);
    WorkerConfig config;
    config.options = options_;
    config.plane = plane_;
    config.store = store_;
    config.prepare = prepare_;
    config.on_end = [this](absl::Status status, bool is_at_work) {
      signal_end(std::move(status), is_at_work);
    };
    config.parts = make_parts();
    config.connect = [this](uint64_t attempt, double seconds) { connect(attempt, seconds); };
    worker_ = system_->spawn(worker, std::move(config));
    {
      std::lock_guard lock(mutex_);
      spawned_ = true;
    }
    spawned_signal_.notify_all();
    return absl::OkStatus();
  }

  void leave(const std::string& reason) override { caf::anon_send(worker_, LeaveRequest{reason}); }

  bool wait(double timeout_seconds) override {
    std::unique_lock lock(mutex_);
    return ended_signal_.wait_for(lock, std::chrono::duration<double>(timeout_seconds),
                                  [this] { return ended_; });
  }

  const absl::Status& result() const override { return result_; }
  bool is_at_work() const override { return is_at_work_; }

 private:
  WorkerParts make_parts() {
    WorkerParts parts;
    parts.make_device = [this](const plans::JobSpec& job,
                               const std::string& run) -> absl::StatusOr<WorkerDevice> {
      const auto make = [rank = options_.local_rank](const plans::DeviceSpec& spec) {
        return make_device(spec, rank);
      };
      if (!options_.device) {
        SKEIN_ASSIGN_OR_RETURN(std::shared_ptr<gpu::Device> own, make(job.device));
        return WorkerDevice{std::move(own), nullptr};
      }
      return options_.device->join(job, run, make);
    };
    parts.spawn_device = [this](std::shared_ptr<gpu::Device> made) {
      return system_->spawn<caf::detached>(device, std::move(made));
    };
    parts.make_shard_io = [this](ShardIoConfig config) {
      return system_->spawn<caf::detached>(shard_io, std::move(config));
    };
    parts.make_text_stage = [this] { return system_->spawn<caf::detached>(text_stage_io); };
    parts.make_group = [this](plans::GroupId number,
                              const GroupRequest& request) -> absl::StatusOr<GroupParts> {
      SKEIN_ASSIGN_OR_RETURN(std::shared_ptr<net::GradientGroup> group,
                             make_group(number, request));
      return GroupParts{system_->spawn<caf::detached>(group_io, number, group),
                        [group] { group->abort(); }};
    };
    parts.make_stage_link = [this](plans::GroupId number,
                                   const GroupRequest& request) -> std::optional<StageLinkParts> {
      const std::shared_ptr<FormationRound> round = formation_round(request);
      if (request.device->info().is_host_memory && !round->leads()) {
        round->tell();  // The other end may be a GPU, for which the leader decides.
        return std::nullopt;
      }
      const auto link = std::make_shared<StageLink>(device_members(number, request),
                                                    request.tensors, request.memory, store_);
      return StageLinkParts{system_->spawn<caf::detached>(stage_link_io, number, link),
                            [link] { link->abort(); }};
    };
    return parts;
  }

  absl::StatusOr<std::unique_ptr<net::GradientGroup>> make_group(plans::GroupId number,
                                                                 const GroupRequest& request) {
    SKEIN_ASSIGN_OR_RETURN(std::unique_ptr<net::GradientGroup> host,
                           net::GradientGroup::create(request.options, store_));
    if (request.backend == "gloo") return host;
    DeviceGradientGroupOptions options;
    options.backend = request.backend;
    options.devices = device_members(number, request);
    return make_device_gradient_group(std::move(options), store_, std::move(host));
  }

  DeviceMembersOptions device_members(plans::GroupId number, const GroupRequest& request) {
    DeviceMembersOptions options;
    options.name = request.options.name;
    options.appear_timeout_seconds = request.options.appear_timeout_seconds;
    options.form_timeout_seconds = request.options.connect_timeout_seconds;
    options.operation_timeout_seconds = request.options.timeout_seconds;
    options.id = number;
    options.number = request.generation << 16 | number.value;  // A plan has fewer groups.
    options.self = request.self;
    options.device = request.device;
    options.group_store = group_store_;
    options.round = formation_round(request);
    options.say = [](const std::string& line) { print_error_line("skein: " + line); };
    return options;
  }

  /// That of the plan, which its groups share. Called by the worker only.
  std::shared_ptr<FormationRound> formation_round(const GroupRequest& request) {
    if (round_ != nullptr && round_generation_ == request.generation) return round_;
    FormationRound::Options options;
    options.name = absl::StrCat("generation-", request.generation);
    options.self = request.self;
    options.leader = request.device_leader;
    options.groups = request.device_groups;
    options.backend = request.backend;
    options.appear_timeout_seconds = request.options.appear_timeout_seconds;
    options.device = request.device;
    options.group_store = group_store_;
    round_ = std::make_shared<FormationRound>(std::move(options), store_);
    round_generation_ = request.generation;
    return round_;
  }

  /// Called by the worker, the first time while it is being spawned.
  void connect(uint64_t attempt, double seconds) {
    const plans::ReconnectBackoff::Attempt next = begin_attempt(attempt, seconds);
    net::ConnectOptions options;
    options.address = options_.coordinator_address;
    options.timeout_seconds = next.left_seconds;
    options.delay_seconds = next.delay_seconds;
    if (options_.on_waiting) {
      options.on_waiting = [this, left = next.left_seconds](const absl::Status& why) {
        options_.on_waiting(std::string(why.message()), left);
      };
    }
    loop_->post([this, attempt, options] { start_connecting(attempt, options); });
  }

  plans::ReconnectBackoff::Attempt begin_attempt(uint64_t attempt, double seconds) {
    std::lock_guard lock(mutex_);
    return backoff_.begin(attempt, seconds, to_us(std::chrono::steady_clock::now()));
  }

  void start_connecting(uint64_t attempt, const net::ConnectOptions& options) {
    std::unique_lock lock(mutex_);
    spawned_signal_.wait(lock, [this] { return spawned_; });
    const Worker to = worker_;
    lock.unlock();
    if (options.timeout_seconds <= 0) {
      caf::anon_send(to,
                     LinkClosed{attempt, absl::UnavailableError(absl::StrCat(
                                             "nobody at ", options.address,
                                             " has taken us in for as long as we wait for one"))});
      return;
    }
    net::ControlLink::Handlers handlers = {
        [this, to, attempt](net::Envelope message) {
          remember_head(attempt, message);
          caf::anon_send(to, LinkMessage{attempt, std::move(message)});
        },
        [to, attempt](absl::Status why) {
          if (absl::IsInvalidArgument(why)) {
            print_error_line(absl::StrCat("skein: closed the link to the coordinator: ",
                                          std::string(why.message())));
          }
          caf::anon_send(to, LinkClosed{attempt, std::move(why)});
        }};
    net::connect_control(
        *loop_, options, std::move(handlers),
        [this, to, attempt](absl::StatusOr<std::shared_ptr<net::ControlLink>> link) {
          if (!link.ok()) {
            caf::anon_send(to, LinkClosed{attempt, link.status()});
            return;
          }
          if (!net::may_be_local(options_.bind_address)) {
            (*link)->close();
            caf::anon_send(to, LinkClosed{attempt, absl::UnavailableError(absl::StrCat(
                                                       "this machine has lost the address ",
                                                       options_.bind_address,
                                                       ", which other workers connect to"))});
            return;
          }
          {
            std::lock_guard lock(mutex_);
            link_ = *link;
          }
          caf::anon_send(to, LinkOpened{attempt, *link});
        });
  }

  /// The rendezvous store publishes from the thread that forms groups, so it cannot ask
  /// the actor for the head of its envelopes: the newest assignment says what
  /// it is.
  void remember_head(uint64_t attempt, const net::Envelope& message) {
    std::lock_guard lock(mutex_);
    if (!backoff_.is_newest(attempt)) return;
    if (const auto* joined = std::get_if<net::Joined>(&message.body)) {
      backoff_.on_joined();
      head_.sender = joined->worker.value;
      head_.term = message.head.term;
    } else if (std::holds_alternative<net::Quiesce>(message.body)) {
      head_.generation = message.head.generation;
    }
  }

  void publish(const std::string& key, const std::vector<char>& value,
               const net::RendezvousStore::Receivers& receivers) {
    std::lock_guard lock(mutex_);
    if (!link_) return;
    link_->send(net::encode(head_, net::RendezvousEntry{key, value, receivers}));
  }

  void signal_end(absl::Status status, bool is_at_work) {
    std::lock_guard lock(mutex_);
    if (ended_) return;
    ended_ = true;
    result_ = std::move(status);
    is_at_work_ = is_at_work;
    ended_signal_.notify_all();
  }

  WorkerOptions options_;
  caf::actor_system_config system_config_;
  std::unique_ptr<net::EventLoop> loop_;
  std::unique_ptr<caf::actor_system> system_;
  std::shared_ptr<net::DataPlane> plane_;
  std::shared_ptr<net::RendezvousStore> store_;
  std::shared_ptr<DeviceGroupStore> group_store_ = std::make_shared<DeviceGroupStore>();
  std::shared_ptr<FormationRound> round_;
  uint64_t round_generation_ = 0;
  PrepareIo prepare_;
  Worker worker_;

  std::mutex mutex_;
  plans::ReconnectBackoff backoff_{static_cast<uint64_t>(getpid())};  // Guarded by mutex_.
  std::condition_variable ended_signal_;
  std::shared_ptr<net::ControlLink> link_;
  net::EnvelopeHead head_;
  std::condition_variable spawned_signal_;
  bool spawned_ = false;
  bool ended_ = false;
  absl::Status result_;
  bool is_at_work_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::start(WorkerOptions options) {
  auto process = std::make_unique<LocalWorker>(std::move(options));
  SKEIN_RETURN_IF_ERROR(process->run());
  return std::unique_ptr<WorkerProcess>(std::move(process));
}

}  // namespace skein::actors
