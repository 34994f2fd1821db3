#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include "absl/strings/str_cat.h"
#include "plans/base/rng.hpp"

namespace skein::sim {

/// A simulated process: a set of actors and of events. 0 is the world itself, which never dies.
using ProcessId = uint32_t;

/// Virtual time, what happens in it, and who may run. One seed gives one course of events: of the
/// actors that have messages a random one handles one message; when there is none, time moves on to
/// the next event. Single-threaded.
class World {
 public:
  World(uint64_t seed, bool traces);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  uint64_t now_us() const;
  caf::actor_system& system() { return *system_; }
  plans::Rng& rng() { return rng_; }
  /// Uniform in [low, high].
  uint64_t between(uint64_t low, uint64_t high) { return low + rng_.below(high - low + 1); }
  bool chance(double probability) { return rng_.uniform() < probability; }

  ProcessId add_process(std::string name);
  const std::string& name(ProcessId process) const { return processes_.at(process).name; }
  bool is_alive(ProcessId process) const { return processes_.at(process).alive; }
  bool is_paused(ProcessId process) const { return processes_.at(process).paused; }
  /// For how long it has lived without being paused.
  uint64_t awake_us(ProcessId process) const;
  /// How often it was paused.
  uint64_t pauses(ProcessId process) const { return processes_.at(process).pauses; }
  /// Nothing of the process happens until `resume`; then all that waited does, in order.
  void pause(ProcessId process);
  void resume(ProcessId process);
  /// The process is gone, with what it was about to do. Its owner then ends its actors, which have
  /// no effect any more, and calls `drain`.
  void kill(ProcessId process);
  /// Lets the actors of a process handle all that they have, whatever its state.
  void drain(ProcessId process);

  /// Runs `what` at a time from now on; never if `owner` is dead then.
  void at(uint64_t time_us, ProcessId owner, std::function<void()> what);
  void after(uint64_t delay_us, ProcessId owner, std::function<void()> what) {
    at(now_us() + delay_us, owner, std::move(what));
  }
  /// Runs `what` now if the process can, when it resumes if it is paused, never if it is dead.
  void run_in(ProcessId owner, std::function<void()> what);

  /// Actors that are spawned by `spawner` belong to `owner`.
  template <class Spawner>
  auto spawn_in(ProcessId owner, Spawner spawner) {
    const caf::actor_id before = system_->latest_actor_id();
    auto actor = spawner(*system_);
    own_new_actors(owner, before);
    return actor;
  }

  /// Whose actor handles a message now; 0: none's.
  ProcessId running() const { return running_; }
  /// Runs `what` when the message that is handled now has been, and before anybody else runs.
  void after_this(std::function<void()> what) { after_job_.push_back(std::move(what)); }

  /// One event. False if nothing is left to happen.
  bool step();
  uint64_t events() const { return events_; }
  /// A digest of everything that happened, in order.
  uint64_t hash() const { return hash_; }
  /// Forgets events and timers that are still to come, and lets what is left of actors end. Returns
  /// the number of actors that are left over.
  size_t wind_up();
  /// Names of actors that are left over.
  std::string leftovers() const;

  bool traces() const { return traces_; }
  /// A line of these pieces, which are put together only if somebody reads it.
  template <class... Pieces>
  void trace(const Pieces&... pieces) {
    if (traces_) print(absl::StrCat(pieces...));
  }
  void note(uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3; }

 private:
  struct Process {
    std::string name;
    bool alive = true;
    bool paused = false;
    uint64_t asleep_us = 0;  // Before it came, or paused; without a pause that lasts.
    uint64_t pauses = 0;
    uint64_t paused_at_us = 0;
    std::deque<std::function<void()>> waiting;  // While paused.
  };
  struct Event {
    ProcessId owner = 0;
    std::function<void()> what;
  };

  /// What is known of an actor.
  struct Actor {
    ProcessId owner = 0;
    std::string name;  // Once it has run; so is the next one.
    caf::weak_actor_ptr self;
  };

  caf::scheduler::test_coordinator& scheduler() { return *scheduler_; }
  ProcessId owner_of(caf::resumable* job) const;
  void own_new_actors(ProcessId owner, caf::actor_id before);
  void print(const std::string& line) const;
  void run_job(size_t position);
  bool run_random_job();
  bool advance();

  caf::actor_system_config config_;
  std::unique_ptr<caf::actor_system> system_;
  caf::scheduler::test_coordinator* scheduler_ = nullptr;  // The system's.
  plans::Rng rng_;
  bool traces_ = false;
  std::vector<Process> processes_;
  std::vector<Actor> actors_;     // By their ids, which are given one after the other.
  std::vector<size_t> runnable_;  // Positions of the jobs that may run; kept for its memory.
  std::map<std::pair<uint64_t, uint64_t>, Event> queue_;  // By time, then order of insertion.
  ProcessId running_ = 0;
  std::vector<std::function<void()>> after_job_;
  uint64_t inserted_ = 0;
  uint64_t events_ = 0;
  uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace skein::sim
