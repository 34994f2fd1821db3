#include "tests/sim/run_scenario.hpp"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "actors/run_id.hpp"
#include "plans/sync/policy_kind.hpp"
#include "tests/sim/message_text.hpp"
#include "tests/sim/shared_gate.hpp"
#include "tests/sim/stranger.hpp"
#include "tests/sim/third_mode.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::sim {
namespace {

constexpr uint64_t kSecond = 1'000'000;
/// After the last fault: leases, hold-backs of workers that come and go, and the steps themselves.
constexpr uint64_t kBoundUs = 300 * kSecond;
/// A run that does more than this spins: the largest honest ones have a tenth.
constexpr uint64_t kEventsMax = 3'000'000;
constexpr double kWeightTolerance = 1e-4;

void write_tokens(const std::string& path, int64_t vocab_size) {
  plans::Rng rng(7);
  std::ofstream file(path, std::ios::binary);
  for (int i = 0; i < 2000; ++i) {
    // A little order, so that there is something to learn.
    const auto token = static_cast<uint16_t>(
        i % 3 == 0 ? rng.below(static_cast<uint64_t>(vocab_size)) : i % vocab_size);
    file.write(reinterpret_cast<const char*>(&token), sizeof(token));
  }
}

/// Machines on which two runs have a worker each.
class SharedMachines {
 public:
  SharedMachines(World& world, Mutation mutation)
      : world_(world), mutation_(mutation), log_([this](const std::string& what) {
          if (!failure_) failure_ = what;
        }) {}

  /// Of the n-th worker of each run.
  std::shared_ptr<SharedGate> gate(size_t number) {
    std::shared_ptr<SharedGate>& gate = gates_[number];
    if (!gate) gate = std::make_shared<SharedGate>(world_, log_, mutation_);
    return gate;
  }
  const std::optional<std::string>& failure() const { return failure_; }

 private:
  World& world_;
  const Mutation mutation_;
  std::optional<std::string> failure_;
  TurnLog log_;
  std::map<size_t, std::shared_ptr<SharedGate>> gates_;
};

/// One run and everything in it.
class Simulation {
 public:
  /// `machines`: null, or those that another run has as well.
  Simulation(const Scenario& scenario, const RunOptions& options, World& world,
             SharedMachines* machines = nullptr)
      : scenario_(scenario),
        options_(options),
        machines_(machines),
        job_(with_data(scenario.job, folder_)),
        world_(world),
        network_(world_,
                 {.late_chance = scenario.late_chance, .tensor_us_max = scenario.tensor_us_max}),
        groups_(world_, network_, [this](const std::string& what) { checker_.fail(what); }),
        disk_(folder_.path(), scenario.seed, scenario.disk_us_max),
        cut_short_(world_, folder_.file("checkpoint"), scenario.seed),
        checker_(world_, store_, disk_, job_, options.expected),
        around_{world_,
                network_,
                planes_,
                groups_,
                checker_,
                store_,
                disk_,
                job_,
                options.run,
                folder_.path(),
                scenario.worker_count,
                scenario.memory_bytes,
                options.mutation,
                scenario.has_third_mode ? &modes_with_third() : nullptr,
                scenario.owns_workers},
        around_other_run_(around_other_run()) {
    around_.device_bytes = scenario.device_bytes;
    around_.cut_short = &cut_short_;
    around_.payloads_take_time = scenario.payloads_take_time;
    around_.meets_by_coordinator = scenario.meets_by_coordinator;
    checker_.limit_memory(scenario.device_bytes);
    store_.has_fence = options.mutation != Mutation::kFenceSkipped;
    std::ofstream(folder_.file(actors::kRunIdName)) << around_.run << "\n";
    other_store_.on_append = [this](const plans::CommitRecord&) { fail_other_run("commit"); };
    other_store_.on_rewind = [this](uint64_t) { fail_other_run("rollback"); };
    other_store_.on_plan = [this](const plans::Plan&) { fail_other_run("plan"); };
    network_.watch(
        [this](ProcessId from, ProcessId to, const net::ControlMessage& message, bool arrives) {
          checker_.on_control(from, to, message, arrives);
          if (machines_ && !arrives) on_said(from, message);
          trace_message(from, to, message, arrives);
        });
  }

  /// The run on the same machines: what befalls a machine befalls both.
  void set_twin(Simulation* twin) { twin_ = twin; }

  void begin() {
    start_us_ = world_.now_us();
    for (const Fault& fault : scenario_.faults) {
      if (fault.kind == FaultKind::kTear) disk_.watch_shards();
    }
    start_coordinator();
    for (int64_t n = 0; n < scenario_.worker_count; ++n) {
      world_.after(world_.between(0, kSecond / 2), 0, [this] { add_worker(); });
    }
    uint64_t faults_end_us = 0;
    for (const Fault& fault : scenario_.faults) {
      world_.after(fault.at_us, 0, [this, &fault] { inject(fault); });
      faults_end_us = std::max(faults_end_us, fault.at_us + fault.duration_us);
    }
    world_.after(faults_end_us + 1, 0, [this] { heal(); });
    deadline_us_ = start_us_ + faults_end_us + kBoundUs;
    for (const Fault& fault : scenario_.faults) {
      // In a plan's first step it is found when the time for a step is over.
      if (fault.kind != FaultKind::kDeviceHangs) continue;
      deadline_us_ += static_cast<uint64_t>(job_.comm.train_timeout_seconds * 1e6);
    }
  }
  uint64_t deadline_us() const { return deadline_us_; }
  bool has_failed() const { return checker_.failure().has_value(); }
  bool is_done() const { return result_.has_value() && world_.now_us() > ended_us_ + kSecond; }

  /// What has come of it; its processes are gone then.
  Outcome finish() {
    check_result();
    Outcome outcome;
    outcome.virtual_seconds = static_cast<double>(world_.now_us() - start_us_) * 1e-6;
    outcome.injected = injected_;
    outcome.model = checker_.model();
    outcome.is_complete = result_ && result_->status.ok();
    outcome.has_other_keys = checker_.has_other_keys();
    outcome.has_one_shape = checker_.has_one_shape() && !outcome.has_other_keys;
    outcome.shape = checker_.shape();
    outcome.recoveries = checker_.counts();
    outcome.recoveries.terms = store_.lives;
    for (const auto& each : workers_) each->kill(false);
    for (const auto& each : strangers_) each->kill();
    for (const auto& each : coordinators_) each->kill(false);
    groups_.wind_up();
    network_.wind_up();
    outcome.failure = checker_.failure();
    return outcome;
  }

 private:
  static plans::JobSpec with_data(plans::JobSpec job, const tests::TemporaryFolder& folder) {
    job.data.path = folder.file("tokens.bin");
    write_tokens(job.data.path, job.model.vocab_size);
    return job;
  }

  /// Another job, on another folder, that waits for more workers than there are.
  Surroundings around_other_run() {
    Surroundings other = {
        world_,       network_, planes_,          groups_,      checker_,
        other_store_, disk_,    around_.job,      "run-2",      other_folder_.path(),
        1000,         0,        around_.mutation, around_.modes};
    other.job.optimizer.lr *= 0.5;
    other.is_other_run = true;
    return other;
  }

  void fail_other_run(const char* what) {
    checker_.fail(absl::StrCat("the other run has a ", what, ", though it lacks workers"));
  }

  void start_coordinator() {
    if (coordinator_ && coordinator_->is_alive()) return;
    launch_coordinator();
  }

  void launch_coordinator() {
    if (result_) return;
    if (other_run_) other_run_->kill(false);  // It has the port.
    world_.trace("the coordinator starts");
    checker_.on_coordinator();
    coordinators_.push_back(std::make_unique<SimulatedCoordinator>(
        around_, absl::StrCat("c", coordinators_.size() + 1)));
    coordinator_ = coordinators_.back().get();
    if (cut_short_.has_struck()) return end_start();
    for (const auto& [worker, is_unheard] : cut_off_) {
      const ProcessId coordinator = coordinator_->process();
      network_.part_one_way(is_unheard ? worker : coordinator, is_unheard ? coordinator : worker,
                            /*lasts=*/true);
      checker_.on_lasting_cut(worker, coordinator);
    }
    watch_result();
  }

  /// It has died while it made a checkpoint of what the workers of the life before have left.
  void end_start() {
    coordinator_->kill(false);
    checker_.on_coordinator_killed();
    cut_short_.end_strike();
    world_.after(kSecond, 0, [this] { start_coordinator(); });
  }

  /// Looks for the end of the run now and then.
  void watch_result() {
    if (result_ || !coordinator_->is_alive()) return;
    if (coordinator_->result() && is_to_resume(*coordinator_->result())) {
      world_.trace("to be resumed: ", coordinator_->result()->status.ToString());
      // It waits until its workers have heard of it.
      const uint64_t leave_us = coordinator_->result()->stopped_early ? 2 * kSecond : 0;
      return world_.after(leave_us, 0, [this, ended = coordinator_] {
        if (ended != coordinator_) return;
        if (ended->is_alive()) {
          ended->kill(false);
          checker_.on_coordinator_killed();
          kill_own(/*silent=*/false);
        }
        world_.after(kSecond, 0, [this] { resume_run(); });
      });
    }
    if (coordinator_->result()) {
      result_ = coordinator_->result();
      ended_us_ = world_.now_us();
      world_.trace("the run ends: ", result_->status.ToString());
      return;
    }
    world_.after(kSecond / 10, 0, [this, watched = coordinator_] {
      if (watched == coordinator_) watch_result();
    });
  }

  /// It was told to stop; or the disk was full, or has torn a file of the last checkpoint. Once
  /// that is over the run is resumed, as its last words say.
  bool is_to_resume(const actors::RunResult& result) {
    if (result.stopped_early) return true;
    // Whoever misread was the only one there, or all others were away. Its data is mended.
    if (absl::StrContains(result.status.message(), kMisread)) return true;
    // Its last checkpoint may have failed: what workers kept is found.
    if (coordinator_->is_told_to_stop() && absl::IsUnavailable(result.status)) return true;
    // Its workers have given it up while it stood still: what they kept is found.
    const bool has_stood_still = world_.now_us() < stood_still_until_us_ + kBoundUs / 2;
    if (coordinator_->is_told_to_stop() && has_stood_still &&
        absl::IsDeadlineExceeded(result.status)) {
      return true;
    }
    // What is on a device that hangs is waited for as long as a stop may take.
    if (coordinator_->is_told_to_stop() && hangs_somewhere() &&
        absl::IsDeadlineExceeded(result.status)) {
      return true;
    }
    return !result.status.ok() && !absl::IsDataLoss(result.status) &&
           (disk_.take_was_full() || is_disk_full() || disk_.take_tore_shard());
  }

  /// The device of a worker that lives hangs.
  bool hangs_somewhere() {
    const auto workers = live();
    return std::any_of(workers.begin(), workers.end(), [&](SimulatedWorker* each) {
      return hung_devices_.contains(each->process());
    });
  }

  void resume_run() {
    around_.misreads.clear();
    if (is_disk_full()) return world_.after(kSecond, 0, [this] { resume_run(); });
    start_coordinator();
    top_up();
  }

  /// Its twin's run is on the same one, and may have filled it.
  bool is_disk_full() const {
    return disk_.is_full() || (twin_ != nullptr && twin_->disk_.is_full());
  }

  void add_worker(const std::string& host = "") {
    if (result_) return;
    const bool sees_folder = folders_.uniform() >= scenario_.elsewhere_chance;
    SimulatedWorker::Place place{host, "", sees_folder};
    if (host.empty() && scenario_.host_count > 0) {
      const uint64_t number = workers_.size() % static_cast<uint64_t>(scenario_.host_count);
      place = {absl::StrCat("host-", number), absl::StrCat("10.0.0.", number), sees_folder};
    }
    if (machines_) place.gate = machines_->gate(workers_.size());
    workers_.push_back(std::make_unique<SimulatedWorker>(
        around_, absl::StrCat(machines_ ? options_.run : "", "p", workers_.size() + 1),
        std::move(place)));
    world_.trace(world_.name(workers_.back()->process()), " starts");
  }

  std::vector<SimulatedWorker*> live() const {
    std::vector<SimulatedWorker*> live;
    for (const auto& each : workers_) {
      if (each->is_alive()) live.push_back(each.get());
    }
    return live;
  }

  void inject(const Fault& fault) {
    const std::vector<SimulatedWorker*> workers = live();
    if (result_) return;
    SimulatedWorker* target = workers.empty() ? nullptr : workers[fault.target % workers.size()];
    SimulatedWorker* other = workers.empty() ? nullptr : workers[fault.other % workers.size()];
    world_.trace("FAULT ", to_text(fault), " ", target ? world_.name(target->process()) : "");
    if (needs_worker(fault.kind) && target == nullptr) return;
    if (carry_out(fault, target, other)) note(fault);
  }

  void note(const Fault& fault) {
    checker_.on_fault();
    ++injected_[static_cast<size_t>(fault.kind)];
  }

  /// False if there was nothing to do, or nothing yet: it is noted when it is done.
  bool carry_out(const Fault& fault, SimulatedWorker* target, SimulatedWorker* other) {
    switch (fault.kind) {
      case FaultKind::kCrash:
      case FaultKind::kVanish:
        kill_machine(*target, fault.kind == FaultKind::kVanish);
        return true;
      case FaultKind::kCrashCoordinator:
      case FaultKind::kAbandon:
        return crash_coordinator(fault);
      case FaultKind::kPause:
        return pause_machine(*target, fault.duration_us);
      case FaultKind::kPauseCoordinator:
        return coordinator_->is_alive() && pause(coordinator_->process(), fault.duration_us);
      case FaultKind::kStandstill:
        return stand_still(fault.duration_us);
      case FaultKind::kSlow:
        // In one case of three so slow that a step takes far longer than the one before.
        target->set_speed(fault.other % 3 == 0 ? 0.005 : 0.1);
        world_.after(fault.duration_us, target->process(), [target] { target->set_speed(1); });
        return true;
      case FaultKind::kPartition:
        return part(target->process(), other->process(), fault.duration_us);
      case FaultKind::kIsolate:
        return part(target->process(), coordinator_->process(), fault.duration_us);
      case FaultKind::kHalfOpen:
        network_.half_open(target->process());
        return true;
      case FaultKind::kDropLink:
        return drop_link(*target, *other, fault.duration_us);
      case FaultKind::kJoin:
        add_worker();
        return true;
      case FaultKind::kDrain:
        target->leave();
        return true;
      case FaultKind::kDamage:
        return damage_copy(*target);
      case FaultKind::kDamageCheckpoint:
        disk_.damage_checkpoint(options_.mutation == Mutation::kDigestsSkipped);
        return true;
      case FaultKind::kLoseShard:
        disk_.lose_next_shard();
        return true;
      case FaultKind::kStall:
        return stall(fault, target->process());
      case FaultKind::kRestart:
        if (!crash_coordinator(fault)) return false;
        return pause(target->process(), fault.duration_us + short_pause_us(fault));
      case FaultKind::kFullDisk:
        store_.is_full = true;
        world_.after(fault.duration_us, 0, [this] { store_.is_full = false; });
        return true;
      case FaultKind::kOtherJob:
        return crash_coordinator(fault) && start_other_run();
      case FaultKind::kOtherKeys:
        return crash_coordinator(fault) && change_keys();
      case FaultKind::kCrashLoop:
        return loop(fault, 0, world_.now_us() + fault.duration_us);
      case FaultKind::kBlackhole:
        return swallow(target->process(), other->process());
      case FaultKind::kPowerCut:
        return crash_coordinator(fault) && cut_power(fault);
      case FaultKind::kOneWay:
      case FaultKind::kLastingOneWay:
        return lose_one_way(fault, target->process(), other->process());
      case FaultKind::kFullRunDisk:
        return fill_disk(fault);
      case FaultKind::kTear:
        return tear(fault);
      case FaultKind::kHostDown:
        for (SimulatedWorker* each : neighbours(*target))
          kill_machine(*each, fault.variant % 2 == 0);
        return true;
      case FaultKind::kHostCut:
        return cut_host(*target, fault.duration_us);
      case FaultKind::kSecond:
        // Workers of the first one's own would be no part of the other one's run.
        return !scenario_.owns_workers && start_second(fault, world_.now_us() + kSecond);
      case FaultKind::kStranger:
        return let_in_stranger(fault);
      case FaultKind::kMute:
        network_.mute(target->process(), fault.variant % 2 == 0);
        return true;
      case FaultKind::kResetLink:
        return reset_links(fault, *target);
      case FaultKind::kStop:
        return stop(fault, target);
      case FaultKind::kAllDown:
        return take_all_down(fault);
      case FaultKind::kCutShort:
        return cut_short(fault);
      case FaultKind::kDeviceFails:
        return break_device(*target, DeviceFailure::kFails);
      case FaultKind::kDeviceHangs:
        return break_device(*target, DeviceFailure::kHangs);
      case FaultKind::kOrphanGroup:
        return orphan_group(fault, world_.now_us() + fault.duration_us);
      case FaultKind::kMisread:
        checker_.on_incapable(target->process());
        around_.misreads.insert(target->process());
        return true;
      case FaultKind::kNoMemory:
        checker_.on_incapable(target->process());
        around_.lacks_memory.insert(target->process());
        return true;
    }
    return false;
  }

  /// The same machine's worker of the other run; null: there is none that lives.
  SimulatedWorker* counterpart(const SimulatedWorker& worker) const {
    if (!twin_) return nullptr;
    for (size_t n = 0; n < workers_.size() && n < twin_->workers_.size(); ++n) {
      if (workers_[n].get() != &worker) continue;
      SimulatedWorker* other = twin_->workers_[n].get();
      return other->is_alive() ? other : nullptr;
    }
    return nullptr;
  }

  void kill_machine(SimulatedWorker& worker, bool silent) {
    worker.kill(silent);
    SimulatedWorker* other = counterpart(worker);
    if (!other) return;
    twin_->checker_.on_fault();
    other->kill(silent);
  }

  bool pause_machine(const SimulatedWorker& worker, uint64_t duration_us) {
    if (const SimulatedWorker* other = counterpart(worker)) {
      twin_->checker_.on_fault();
      twin_->pause(other->process(), duration_us);
    }
    return pause(worker.process(), duration_us);
  }

  /// One process after the other: all on the host of the others, on a host of their own, or each on
  /// another one.
  bool loop(const Fault& fault, uint64_t count, uint64_t until_us) {
    if (result_ || world_.now_us() >= until_us) return count > 0;
    const std::string hosts[] = {"", "looping", absl::StrCat("looping-", count)};
    add_worker(hosts[fault.other % 3]);
    SimulatedWorker* looper = workers_.back().get();
    checker_.on_looper(looper->process());
    checker_.on_fault();
    const uint64_t life_us = (fault.target % 6 + 1) * kSecond / 2;
    world_.after(life_us, 0, [this, looper, &fault, count, until_us] {
      looper->kill(false);
      world_.after(kSecond / 10, 0,
                   [this, &fault, count, until_us] { loop(fault, count + 1, until_us); });
    });
    return true;
  }

  /// The coordinator is paused for longer than workers wait for it.
  bool stand_still(uint64_t duration_us) {
    if (!coordinator_->is_alive() || !pause(coordinator_->process(), duration_us)) return false;
    stood_still_until_us_ = world_.now_us() + duration_us;
    return true;
  }

  bool crash_coordinator(const Fault& fault) {
    return crash_coordinator(fault, fault.other % 4 == 0);
  }

  bool crash_coordinator(const Fault& fault, bool silent) {
    if (!coordinator_->is_alive()) return false;
    coordinator_->kill(silent);
    checker_.on_coordinator_killed();
    kill_own(silent);
    world_.after(fault.duration_us, 0, [this] {
      start_coordinator();
      if (scenario_.owns_workers) start_workers(scenario_.worker_count);
    });
    return true;
  }

  /// Workers die with the process that has started them.
  void kill_own(bool silent) {
    if (!scenario_.owns_workers) return;
    for (SimulatedWorker* each : live()) each->kill(silent);
  }

  /// As many as there should be then.
  void start_workers(int64_t count) {
    for (auto there = static_cast<int64_t>(live().size()); there < count; ++there) {
      world_.after(world_.between(0, kSecond / 2), 0, [this] { add_worker(); });
    }
  }

  /// In one case of three one worker does not come back before there are no more faults.
  bool take_all_down(const Fault& fault) {
    if (!coordinator_->is_alive()) return false;
    const bool silent = fault.variant % 2 == 0;
    coordinator_->kill(silent);
    checker_.on_coordinator_killed();
    for (SimulatedWorker* each : live()) kill_machine(*each, silent);
    const int64_t missing = fault.variant % 3 == 0 && scenario_.worker_count > 1 ? 1 : 0;
    world_.after(fault.duration_us, 0, [this, missing] {
      start_coordinator();
      start_workers(scenario_.worker_count - missing);
    });
    return true;
  }

  /// In every other case soon after a restart, with a worker that does nothing until a while after
  /// it, as in kRestart.
  bool stop(const Fault& fault, SimulatedWorker* target) {
    if (fault.variant % 2 == 0 || target == nullptr) {
      return coordinator_->is_alive() && coordinator_->stop();
    }
    if (!crash_coordinator(fault)) return false;
    pause(target->process(), fault.duration_us + short_pause_us(fault));
    const uint64_t after_us = fault.duration_us + fault.variant / 2 % 8 * kSecond / 4;
    world_.after(after_us, 0, [this] {
      if (!result_ && coordinator_->is_alive()) coordinator_->stop();
    });
    return true;
  }

  /// One in five loses the whole journal, and in one of three of these the clock is set back.
  bool cut_power(const Fault& fault) {
    checker_.on_power_cut(store_.commits.empty() ? 0 : store_.commits.rbegin()->first + 1);
    forget_newest(store_, fault.target % 5 == 0 ? SIZE_MAX : fault.target % 7 + 1);
    if (store_.plans.empty() && fault.other % 3 == 0) set_clock_back(store_);
    return true;
  }

  /// The n-th operation of a kind is not carried out any more: the coordinator's, a worker's, or in
  /// one case of four that of a worker which writes what it holds, as its coordinator is gone.
  bool cut_short(const Fault& fault) {
    if (machines_) return false;  // All runs have one watch over their files.
    constexpr const char* kWhat[] = {"", "rename", "sync", "delete"};
    constexpr uint64_t kMost[] = {60, 14, 28, 5};  // Two checkpoints have about so many.
    CutShort::Order order;
    order.at_coordinator = fault.variant % 4 < 2;
    if (fault.variant % 4 == 3) order.path_part = ".w000";  // As `gpu::emergency_path`.
    const uint64_t what = fault.variant / 4 % (order.at_coordinator ? 4 : 3);
    order.what = kWhat[what];
    order.count = 1 + fault.other % kMost[what];
    order.loses_unsynced = loses_power(fault);
    CutShort::Victim victim;
    victim.is_coordinator = [this](ProcessId process) {
      return std::any_of(coordinators_.begin(), coordinators_.end(),
                         [&](const auto& each) { return each->process() == process; });
    };
    victim.die = [this, &fault](ProcessId process) { die_writing(fault, process); };
    victim.on_restored = [this] {
      if (options_.mutation == Mutation::kCompleteTorn) disk_.tear_newest();
      checker_.on_cut_short();
    };
    return cut_short_.arm(std::move(order), std::move(victim));
  }

  static bool loses_power(const Fault& fault) { return fault.target % 2 == 0; }

  void die_writing(const Fault& fault, ProcessId process) {
    const bool silent = loses_power(fault);
    for (SimulatedWorker* each : live()) {
      if (each->process() == process) return kill_machine(*each, silent);
    }
    if (coordinator_->process() == process) {
      crash_coordinator(fault, silent);
      if (silent) cut_power(fault);  // The journal lies on the same machine.
      return;
    }
    for (const auto& each : coordinators_) {
      if (each->process() == process) each->kill(silent);
    }
  }

  bool break_device(SimulatedWorker& worker, DeviceFailure how) {
    if (machines_ || !worker.break_device(how)) return false;  // Both jobs would have it.
    around_.lost_devices.insert(worker.process());
    if (how == DeviceFailure::kHangs) hung_devices_.insert(worker.process());
    checker_.on_device_lost(worker.process());
    return true;
  }

  /// When a group is half formed, or in every other case half through a sum, if there is one before
  /// `until_us`: the coordinator dies, or in one case of three a member.
  bool orphan_group(const Fault& fault, uint64_t until_us) {
    if (result_ || is_healed_ || !coordinator_->is_alive()) return false;
    const bool is_there =
        fault.variant % 2 == 0 ? groups_.is_one_half_formed() : groups_.is_one_half_summed();
    if (!is_there && world_.now_us() >= until_us) return false;
    if (!is_there) {
      world_.after(kSecond / 2000, 0, [this, &fault, until_us] {
        if (orphan_group(fault, until_us)) note(fault);
      });
      return false;
    }
    if (fault.variant % 3 > 0) return crash_coordinator(fault);
    for (SimulatedWorker* each : live()) {
      if (!groups_.is_in_the_middle(each->process())) continue;
      kill_machine(*each, fault.other % 2 == 0);
      break;
    }
    return true;
  }

  bool start_other_run() {
    coordinators_.push_back(std::make_unique<SimulatedCoordinator>(
        around_other_run_, absl::StrCat("other", coordinators_.size() + 1)));
    other_run_ = coordinators_.back().get();
    return true;
  }

  /// As `--resume` with other values: the next coordinator has them. One of them is of the update,
  /// the other one of the model's options.
  bool change_keys() {
    plans::OptimizerSpec& optimizer = around_.job.optimizer;
    optimizer.lr *= 0.5;
    optimizer.momentum *= 0.5;
    checker_.on_other_keys();
    return true;
  }

  bool pause(ProcessId process, uint64_t duration_us) {
    if (world_.is_paused(process) || !world_.is_alive(process)) return false;
    world_.pause(process);
    world_.after(duration_us, 0, [this, process] { world_.resume(process); });
    return true;
  }

  /// Shorter than a lease, with what the heartbeats before and after it take.
  static uint64_t short_pause_us(const Fault& fault) { return (fault.other % 8 + 1) * kSecond / 4; }

  bool stall(const Fault& fault, ProcessId worker) {
    if (!coordinator_->is_alive() || !pause(coordinator_->process(), fault.duration_us)) {
      return false;
    }
    const uint64_t from_us = fault.duration_us / 4 * (fault.other / 8 % 4);
    world_.after(from_us, worker,
                 [this, worker, pause_us = short_pause_us(fault)] { pause(worker, pause_us); });
    return true;
  }

  bool part(ProcessId a, ProcessId b, uint64_t duration_us) {
    if (a == b || network_.is_parted(a, b)) return false;
    network_.part(a, b);
    world_.after(duration_us, 0, [this, a, b] { network_.heal(a, b); });
    excuse_for(duration_us);
    return true;
  }

  /// Between two workers, or in one case of three between a worker and the coordinator, whose later
  /// lives are on the same machine.
  bool lose_one_way(const Fault& fault, ProcessId from, ProcessId to) {
    const bool lasts = fault.kind == FaultKind::kLastingOneWay;
    const bool is_sent_by_first = fault.variant % 2 == 0;
    if (lasts && scenario_.device_bytes > 0) return false;
    if (fault.variant % 3 == 0) {
      if (lasts) cut_off_.emplace_back(from, is_sent_by_first);
      to = coordinator_->process();
    } else if (lasts && needs_link()) {
      return false;
    }
    if (from == to || network_.is_parted(from, to)) return false;
    if (!is_sent_by_first) std::swap(from, to);
    network_.part_one_way(from, to, lasts);
    if (lasts) {
      checker_.on_lasting_cut(from, to);
    } else {
      world_.after(fault.duration_us, 0, [this, from, to] { network_.heal(from, to); });
      excuse_for(fault.duration_us);
    }
    return true;
  }

  /// While a commit is on its way to the journal, if there is one before `until_us`.
  bool start_second(const Fault& fault, uint64_t until_us) {
    if (result_ || !coordinator_->is_alive() || world_.is_paused(coordinator_->process())) {
      return false;
    }
    if (store_.pending == 0 && world_.now_us() < until_us) {
      world_.after(kSecond / 2000, 0, [this, &fault, until_us] { start_second(fault, until_us); });
      return true;
    }
    SimulatedCoordinator* first = coordinator_;
    world_.trace(world_.name(first->process()), " sleeps, and another one has its place");
    world_.pause(first->process());
    world_.after(kSecond, 0, [this, first] {
      if (first != coordinator_ || !first->is_alive()) return;
      checker_.on_superseded(first->process());
      launch_coordinator();
    });
    world_.after(fault.duration_us, 0, [this, first] {
      if (first->is_alive() && world_.is_paused(first->process())) world_.resume(first->process());
      end_first(first);
    });
    return true;
  }

  /// A process whose run has ended is gone.
  void end_first(SimulatedCoordinator* first) {
    if (!first->is_alive() || first == coordinator_) return;
    if (first->result()) return first->kill(false);
    world_.after(kSecond / 10, 0, [this, first] { end_first(first); });
  }

  bool let_in_stranger(const Fault& fault) {
    const Stranger::Options options{.joins = fault.variant % 3 > 0,
                                    .takes_number = fault.variant % 3 == 2,
                                    .is_deaf = fault.variant / 3 % 4 == 0};
    const std::string name = absl::StrCat("stranger", strangers_.size() + 1);
    strangers_.push_back(
        std::make_unique<Stranger>(around_, name, scenario_.seed + fault.variant, options));
    Stranger* stranger = strangers_.back().get();
    checker_.on_stranger(stranger->process());
    world_.after(fault.duration_us, 0, [stranger] { stranger->kill(); });
    return true;
  }

  /// In every other case those of all workers; and in two of three no new ones are made for a
  /// while that is shorter than a lease, for which no rollback is excused.
  bool reset_links(const Fault& fault, const SimulatedWorker& target) {
    const ProcessId coordinator = coordinator_->process();
    for (const SimulatedWorker* each : live()) {
      if (fault.variant % 2 == 0 && each != &target) continue;
      const ProcessId worker = each->process();
      network_.reset(worker);
      if (fault.variant % 3 == 0 || network_.is_parted(worker, coordinator)) continue;
      network_.part(worker, coordinator);
      world_.after(short_pause_us(fault), 0,
                   [this, worker, coordinator] { network_.heal(worker, coordinator); });
    }
    return true;
  }

  /// Who lives on the worker's host, with the worker.
  std::vector<SimulatedWorker*> neighbours(const SimulatedWorker& worker) const {
    std::vector<SimulatedWorker*> found = live();
    std::erase_if(found, [&](const auto* each) { return each->host() != worker.host(); });
    return found;
  }

  bool cut_host(const SimulatedWorker& worker, uint64_t duration_us) {
    for (const SimulatedWorker* inside : neighbours(worker)) {
      part(inside->process(), coordinator_->process(), duration_us);
      for (const SimulatedWorker* outside : live()) {
        if (outside->host() == worker.host()) continue;
        part(inside->process(), outside->process(), duration_us);
      }
    }
    return true;
  }

  /// In every other case the journal is on the same disk. Runs on the same machines share it.
  bool fill_disk(const Fault& fault) {
    if (twin_) twin_->disk_.share_full();
    constexpr uint64_t kOperations = 12;  // Of two stages, or of a completion, there are so many.
    disk_.fill(static_cast<int64_t>(fault.other % kOperations));
    store_.is_full = store_.is_full || fault.variant % 2 == 0;
    world_.after(fault.duration_us, 0, [this] {
      disk_.make_space();
      store_.is_full = false;
    });
    return true;
  }

  bool tear(const Fault& fault) {
    if (fault.variant % 3 == 0) disk_.tear_next_shard();
    if (fault.variant % 3 == 1) disk_.tear_next_left();
    if (fault.variant % 3 == 2) disk_.tear_checkpoint();
    if (fault.variant % 3 == 2) checker_.on_tear();
    return true;
  }

  /// Where a model takes two workers, no plan could do without the link between the only two; and
  /// where devices are nearly full it may take all workers.
  bool needs_link() const {
    return (scenario_.memory_bytes > 0 && scenario_.worker_count == 2) ||
           scenario_.device_bytes > 0;
  }

  bool swallow(ProcessId a, ProcessId b) {
    if (a == b || needs_link()) return false;
    network_.part(a, b, /*lasts=*/true);
    checker_.on_lasting_cut(a, b);
    return true;
  }

  /// Who cannot be reached for a lease may have state that nobody can fetch.
  void excuse_for(uint64_t duration_us) {
    const double lease_us = job_.elastic.heartbeat_timeout_seconds * 1e6;
    checker_.excuse_rollbacks_until(world_.now_us() + duration_us +
                                    static_cast<uint64_t>(lease_us));
  }

  bool damage_copy(SimulatedWorker& worker) {
    const std::weak_ptr<const void> damaged = worker.damage_copy();
    if (damaged.expired()) return false;
    checker_.on_damage(damaged);
    return true;
  }

  bool drop_link(SimulatedWorker& a, SimulatedWorker& b, uint64_t duration_us) {
    if (&a == &b) return false;
    const double seconds = static_cast<double>(duration_us) * 1e-6;
    a.plane().drop_link(b.plane().address(), seconds);
    b.plane().drop_link(a.plane().address(), seconds);
    excuse_for(duration_us);
    return true;
  }

  /// From now on nothing goes wrong, and there are as many workers as at first.
  void heal() {
    world_.trace("no more faults");
    is_healed_ = true;
    cut_short_.disarm();
    network_.heal_all();
    store_.is_full = false;
    disk_.make_space();
    start_coordinator();
    for (const auto& each : workers_) {
      if (world_.is_paused(each->process())) world_.resume(each->process());
    }
    if (world_.is_paused(coordinator_->process())) world_.resume(coordinator_->process());
    top_up();
  }

  /// Whoever runs the job sees to it that there are workers, beside those that are to leave.
  void top_up() {
    if (result_) return;
    const std::vector<SimulatedWorker*> workers = live();
    int64_t stay =
        std::count_if(workers.begin(), workers.end(), [this](const SimulatedWorker* each) {
          const ProcessId process = each->process();
          return !each->is_leaving() && !around_.misreads.contains(process) &&
                 !around_.lacks_memory.contains(process) && !around_.lost_devices.contains(process);
        });
    for (; stay < scenario_.worker_count; ++stay) add_worker();
    world_.after(5 * kSecond, 0, [this] { top_up(); });
  }

  void check_result() {
    if (checker_.failure()) return;
    if (!result_) {
      return checker_.fail(absl::StrCat("no end ", static_cast<double>(kBoundUs) * 1e-6,
                                        " s after the last fault; ", store_.commits.size(), " of ",
                                        job_.training.steps, " steps are committed"));
    }
    // Nothing is left that could be gone on from, and the run says so.
    if (absl::IsDataLoss(result_->status) && disk_.has_only_damaged()) return;
    // It was the only worker, and had a part before it knew. Nothing was trained that is lost.
    const bool is_stranger_believed =
        absl::IsDataLoss(result_->status) &&
        absl::StrContains(result_->status.message(), Stranger::kUnreadable);
    if (is_stranger_believed && store_.commits.empty()) return;
    if (!result_->status.ok()) {
      return checker_.fail(absl::StrCat("the run failed: ", result_->status.ToString()));
    }
    checker_.check_end(result_->steps_done);
    const bool comparable = options_.expected != nullptr && !checker_.has_other_keys();
    if (comparable) checker_.check_weights(*options_.expected, kWeightTolerance);
    for (const auto& worker : workers_) {
      if (!worker->end_status() || worker->end_status()->ok()) continue;
      world_.trace(world_.name(worker->process()), " ended with ",
                   worker->end_status()->ToString());
    }
  }

  void on_said(ProcessId from, const net::ControlMessage& message) {
    if ((*message).getBody().which() != net::schema::Envelope::Body::QUIESCED) return;
    for (const auto& each : workers_) {
      if (each->process() == from) each->on_quiesced();
    }
  }

  void trace_message(ProcessId from, ProcessId to, const net::ControlMessage& message,
                     bool arrives);

  const Scenario& scenario_;
  const RunOptions options_;
  SharedMachines* const machines_;
  Simulation* twin_ = nullptr;
  tests::TemporaryFolder folder_;
  plans::JobSpec job_;
  JournalStore store_;
  World& world_;
  Network network_;
  Planes planes_;
  Groups groups_;
  Disk disk_;
  CutShort cut_short_;
  Checker checker_;
  Surroundings around_;
  tests::TemporaryFolder other_folder_;
  JournalStore other_store_;
  Surroundings around_other_run_;
  plans::Rng folders_{scenario_.seed,
                      plans::random_stream("own-folders", 1)};  // Draws who has one.
  std::vector<std::unique_ptr<SimulatedWorker>> workers_;
  std::vector<std::unique_ptr<SimulatedCoordinator>> coordinators_;
  std::vector<std::unique_ptr<Stranger>> strangers_;
  SimulatedCoordinator* coordinator_ = nullptr;  // The newest one of the run.
  SimulatedCoordinator* other_run_ = nullptr;    // That of the other run; null: never started.
  std::optional<actors::RunResult> result_;
  uint64_t start_us_ = 0;
  uint64_t ended_us_ = 0;
  uint64_t deadline_us_ = 0;
  uint64_t stood_still_until_us_ = 0;
  bool is_healed_ = false;  // No more faults.
  std::array<int, kFaultKinds> injected_{};
  std::set<ProcessId> hung_devices_;
  /// Workers that the coordinator's machine is cut off from for good: they are not heard, or hear
  /// nothing.
  std::vector<std::pair<ProcessId, bool>> cut_off_;
};

void Simulation::trace_message(ProcessId from, ProcessId to, const net::ControlMessage& message,
                               bool arrives) {
  const auto envelope = *message;
  const auto which = static_cast<uint64_t>(envelope.getBody().which());
  world_.note(which * 131 + from * 17 + to);
  if (!world_.traces()) return;
  const std::string text = to_text(envelope);
  if (text.empty()) return;
  world_.trace(world_.name(from), arrives ? " => " : " -> ", world_.name(to), " ", text);
}

}  // namespace

namespace {

/// What is left of a world when its runs are over.
void wind_up(World& world, Outcome& outcome) {
  outcome.hash = world.hash();
  outcome.events = world.events();
  const size_t left = world.wind_up();
  if (left == 0 || outcome.failure) return;
  outcome.failure = absl::StrCat(left, " actors are left over:", world.leftovers());
}

}  // namespace

Outcome run_once(const Scenario& scenario, const RunOptions& options) {
  World world(scenario.seed, options.traces);
  Simulation simulation(scenario, options, world);
  simulation.begin();
  while (!simulation.has_failed() && !simulation.is_done() &&
         world.now_us() < simulation.deadline_us() && world.events() < kEventsMax && world.step()) {
  }
  Outcome outcome = simulation.finish();
  wind_up(world, outcome);
  return outcome;
}

namespace {

/// A run with the bits of a calm one is looked for in one seed of so many.
constexpr uint64_t kTwinEvery = 3;

/// What the job comes to when nothing happens. Many seeds have the same one.
const Outcome& run_undisturbed(const Scenario& scenario) {
  static std::deque<std::pair<plans::JobSpec, Outcome>> known;  // A child has one thread.
  const Scenario alone = undisturbed(scenario);
  for (const auto& [job, outcome] : known) {
    if (job == alone.job) return outcome;
  }
  return known.emplace_back(alone.job, run_once(alone, {})).second;
}

Outcome failed_undisturbed(const Outcome& alone) {
  Outcome failed = alone;
  failed.failure = absl::StrCat("the undisturbed run: ", *alone.failure);
  return failed;
}

}  // namespace

Outcome run_shared(const Scenario& first, const Scenario& second, const RunOptions& options) {
  const Scenario* scenarios[] = {&first, &second};
  std::vector<Outcome> alone;
  for (const Scenario* each : scenarios) {
    const bool has_expected = !plans::may_run_pipelines(each->job);
    alone.push_back(has_expected ? run_undisturbed(*each) : Outcome());
    if (alone.back().failure) return failed_undisturbed(alone.back());
  }
  World world(first.seed, options.traces);
  SharedMachines machines(world, options.mutation);
  std::vector<std::unique_ptr<Simulation>> runs;
  for (size_t n = 0; n < 2; ++n) {
    RunOptions own = options;
    own.run = n == 0 ? "a" : "b";
    if (!plans::may_run_pipelines(scenarios[n]->job)) own.expected = &alone[n].model;
    runs.push_back(std::make_unique<Simulation>(*scenarios[n], own, world, &machines));
  }
  runs[0]->set_twin(runs[1].get());
  runs[1]->set_twin(runs[0].get());
  for (const auto& each : runs) each->begin();
  // What befalls the one's machines befalls the other, also when its own faults are over.
  const uint64_t deadline_us = std::max(runs[0]->deadline_us(), runs[1]->deadline_us());
  const auto is_over = [&] {
    const bool has_failed = runs[0]->has_failed() || runs[1]->has_failed() || machines.failure();
    return has_failed || (runs[0]->is_done() && runs[1]->is_done());
  };
  while (!is_over() && world.now_us() < deadline_us && world.events() < 2 * kEventsMax &&
         world.step()) {
  }
  Outcome both;
  const bool is_calm = first.faults.empty() && second.faults.empty();
  for (size_t n = 0; n < 2; ++n) {
    const Outcome one = runs[n]->finish();
    if (one.failure && !both.failure) {
      both.failure = absl::StrCat("run ", n == 0 ? "a" : "b", ": ", *one.failure);
    }
    for (size_t kind = 0; kind < kFaultKinds; ++kind) both.injected[kind] += one.injected[kind];
    both.recoveries.add(one.recoveries);
    both.virtual_seconds = std::max(both.virtual_seconds, one.virtual_seconds);
    if (!is_calm || one.failure || plans::may_run_pipelines(scenarios[n]->job)) continue;
    const Outcome calm = run_once(*scenarios[n], {});
    if (!one.has_one_shape || !calm.has_one_shape || calm.shape != one.shape) continue;
    both.compared_bits = true;
    if (calm.model.weights != one.model.weights) {
      both.failure = "beside another job the weights have other bits than alone";
    }
  }
  if (machines.failure()) both.failure = machines.failure();
  wind_up(world, both);
  return both;
}

Outcome run_and_compare(const Scenario& scenario, const RunOptions& options) {
  if (plans::may_run_pipelines(scenario.job)) return run_once(scenario, options);
  const Outcome& alone = run_undisturbed(scenario);
  if (alone.failure) return failed_undisturbed(alone);
  RunOptions compared = options;
  compared.expected = &alone.model;
  Outcome outcome = run_once(scenario, compared);
  if (outcome.failure) return outcome;
  // Who comes to which token is a matter of time, and so is the order of sums, unless it is the
  // same whoever computes what.
  const bool is_exact = scenario.job.tokens.reproducible;
  const bool has_bits = is_exact ? !outcome.has_other_keys
                                 : outcome.has_one_shape && !plans::trains_by_tokens(scenario.job);
  const bool has_twin = scenario.seed % kTwinEvery == 0 && outcome.is_complete && has_bits &&
                        !scenario.faults.empty();
  if (!has_twin) return outcome;
  Scenario calm = scenario;
  calm.faults.clear();
  const Outcome fault_free = run_once(calm, {});
  // A late worker, or a planner that thinks again, may have given the calm run other shapes.
  const bool is_alike = is_exact ? !fault_free.has_other_keys
                                 : fault_free.has_one_shape && fault_free.shape == outcome.shape;
  if (!is_alike || fault_free.failure) return outcome;
  outcome.compared_bits = true;
  if (fault_free.model.weights != outcome.model.weights) {
    outcome.failure = absl::StrCat(is_exact ? "" : "with the same layout throughout, ",
                                   "the final weights differ in their bits from the run without "
                                   "faults");
  }
  return outcome;
}

}  // namespace skein::sim
