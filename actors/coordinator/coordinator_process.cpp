#include "actors/coordinator/coordinator_process.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/send.hpp>

#include "absl/strings/str_cat.h"
#include "actors/actor_system.hpp"
#include "actors/coordinator/coordinator.hpp"
#include "actors/coordinator/run_lock.hpp"
#include "actors/peer_listener.hpp"
#include "net/address.hpp"
#include "net/control/control_link.hpp"
#include "net/event_loop.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/plan/layout_plan.hpp"

namespace skein::actors {
namespace {

class LocalCoordinator final : public CoordinatorProcess {
 public:
  explicit LocalCoordinator(CoordinatorOptions options)
      : options_(std::move(options)), system_config_(make_system_config()) {}

  ~LocalCoordinator() override {
    listener_.reset();  // No link's handler runs after the loop below it has gone.
    if (coordinator_) caf::anon_send_exit(coordinator_, caf::exit_reason::user_shutdown);
    if (journal_io_) caf::anon_send_exit(journal_io_, caf::exit_reason::user_shutdown);
    if (checkpoint_io_) caf::anon_send_exit(checkpoint_io_, caf::exit_reason::user_shutdown);
    if (remote_shard_io_) caf::anon_send_exit(remote_shard_io_, caf::exit_reason::user_shutdown);
    if (layer_source_io_) caf::anon_send_exit(layer_source_io_, caf::exit_reason::user_shutdown);
    if (observer_io_) caf::anon_send_exit(observer_io_, caf::exit_reason::user_shutdown);
    if (planner_) caf::anon_send_exit(planner_, caf::exit_reason::user_shutdown);
    if (system_) system_->await_all_actors_done();
    // The thread of a detached actor ends when the last handle to it goes.
    coordinator_ = nullptr;
    journal_io_ = nullptr;
    checkpoint_io_ = nullptr;
    remote_shard_io_ = nullptr;
    layer_source_io_ = nullptr;
    plane_.reset();
    observer_io_ = nullptr;
    planner_ = nullptr;
    loop_.reset();
    system_.reset();
  }

  absl::Status run() {
    SKEIN_ASSIGN_OR_RETURN(lock_, RunLock::take(options_.run_folder));
    SKEIN_ASSIGN_OR_RETURN(std::shared_ptr<Journal> journal,
                           Journal::open(options_.run_folder + "/journal.sqlite"));
    StartPoint start;
    if (options_.start) {
      start = *options_.start;
      SKEIN_RETURN_IF_ERROR(read_journal(*journal, start));
    } else {
      SKEIN_ASSIGN_OR_RETURN(
          start, find_resumed(options_.job, {options_.run_folder, options_.run_id}, *journal,
                              options_.load_path));
    }
    if (start.committed_steps > static_cast<uint64_t>(options_.job.training.steps)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "training.steps = ", options_.job.training.steps, ", and ", start.committed_steps,
          " steps of this run are committed already; ask for no fewer"));
    }
    worker_count_ = options_.worker_count;
    if (start.last_plan) {
      worker_count_ = std::max(worker_count_, plans::worker_count(*start.last_plan));
    }
    SKEIN_ASSIGN_OR_RETURN(loop_, net::EventLoop::start());
    system_ = std::make_unique<caf::actor_system>(system_config_);
    SKEIN_RETURN_IF_ERROR(open_plane(journal->term()));
    spawn_actors(start, std::move(journal));
    SKEIN_ASSIGN_OR_RETURN(listener_, listen());
    address_ = absl::StrCat(listen_host(), ":", listener_->port());
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }
  int64_t worker_count() const override { return worker_count_; }

  void request_stop(const std::string& reason) override {
    caf::anon_send(coordinator_, StopRequest{reason});
  }

  void abort(const absl::Status& why) override { caf::anon_send(coordinator_, AbortRequest{why}); }

  bool wait(double timeout_seconds) override {
    std::unique_lock lock(mutex_);
    return ended_signal_.wait_for(lock, std::chrono::duration<double>(timeout_seconds),
                                  [this] { return ended_; });
  }

  const RunResult& result() const override { return result_; }

  RunProgress progress() const override {
    std::lock_guard lock(mutex_);
    return progress_;
  }

  void emulate(plans::WorkerId worker, double speed, plans::WorkerId drop_link_to,
               double seconds) override {
    caf::anon_send(coordinator_, EmulateRequest{worker, speed, drop_link_to, seconds});
  }

 private:
  std::string listen_host() const {
    return options_.listen_address.substr(0, options_.listen_address.rfind(':'));
  }

  /// Where workers that do not see the run's folder send shards, and from where layers go to them.
  absl::Status open_plane(uint64_t term) {
    net::DataPlane::Options plane_options;
    // People know the other address: what is wrong with it is said of that.
    SKEIN_RETURN_IF_ERROR(
        net::check_listen_address(options_.listen_address, options_.insecure).status());
    plane_options.listen_address = absl::StrCat(listen_host(), ":0");
    plane_options.insecure = options_.insecure;
    SKEIN_ASSIGN_OR_RETURN(plane_, net::DataPlane::start(*loop_, std::move(plane_options)));
    plane_->identify({options_.run_id, {}, term});
    return absl::OkStatus();
  }

  void spawn_actors(const StartPoint& start, std::shared_ptr<Journal> journal) {
    const uint64_t term = journal->term();
    checkpoint_io_ = system_->spawn<caf::detached>(checkpoint_io, options_.job,
                                                   RunPlace{options_.run_folder, options_.run_id},
                                                   journal->later_life_check());
    journal_io_ = system_->spawn(journal_io, std::move(journal));
    remote_shard_io_ = system_->spawn<caf::detached>(
        remote_shard_io, RemoteShardIoConfig{options_.run_folder, options_.job, plane_});
    layer_source_io_ =
        system_->spawn<caf::detached>(layer_source_io, LayerSourceIoConfig{options_.job, plane_});
    observer_io_ = system_->spawn<caf::detached>(observer_io, options_.observer,
                                                 std::function<void()>([this] { signal_end(); }));
    planner_ = system_->spawn<caf::detached>(planner, PlannerConfig{options_.fail_point});
    CoordinatorConfig config;
    config.options = options_;
    config.term = term;
    config.start = start;
    config.journal = journal_io_;
    config.checkpoints = checkpoint_io_;
    config.remote_shards = remote_shard_io_;
    config.layer_source = layer_source_io_;
    config.data_address = plane_->address();
    config.plane = plane_.get();
    config.observer = observer_io_;
    config.planner = planner_;
    config.on_result = [this](RunResult result) {
      std::lock_guard lock(mutex_);
      result_ = std::move(result);
    };
    config.on_progress = [this](const RunProgress& progress) {
      std::lock_guard lock(mutex_);
      progress_ = progress;
    };
    coordinator_ = system_->spawn(coordinator, std::move(config));
  }

  absl::StatusOr<std::unique_ptr<net::ControlListener>> listen() {
    return listen_for_peers(*loop_, {options_.listen_address, options_.insecure}, coordinator_);
  }

  void signal_end() {
    std::lock_guard lock(mutex_);
    ended_ = true;
    ended_signal_.notify_all();
  }

  CoordinatorOptions options_;
  caf::actor_system_config system_config_;
  std::unique_ptr<net::EventLoop> loop_;
  std::unique_ptr<caf::actor_system> system_;
  JournalIo journal_io_;
  CheckpointIo checkpoint_io_;
  std::shared_ptr<net::DataPlane> plane_;
  RemoteShardIo remote_shard_io_;
  LayerSourceIo layer_source_io_;
  ObserverIo observer_io_;
  Planner planner_;
  Coordinator coordinator_;
  std::unique_ptr<net::ControlListener> listener_;
  std::string address_;
  int64_t worker_count_ = 0;

  std::unique_ptr<RunLock> lock_;
  mutable std::mutex mutex_;
  std::condition_variable ended_signal_;
  bool ended_ = false;
  RunResult result_;
  RunProgress progress_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorProcess>> CoordinatorProcess::start(
    CoordinatorOptions options) {
  auto process = std::make_unique<LocalCoordinator>(std::move(options));
  SKEIN_RETURN_IF_ERROR(process->run());
  return std::unique_ptr<CoordinatorProcess>(std::move(process));
}

}  // namespace skein::actors
