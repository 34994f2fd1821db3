#include "tests/sim/world.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <caf/scheduled_actor.hpp>

#include "absl/strings/str_cat.h"
#include "actors/microseconds.hpp"
#include "plans/base/check.hpp"

namespace skein::sim {
namespace {

/// Zero is "never" in some fields of the actors, so time starts later.
constexpr auto kEpoch = std::chrono::seconds(1000);

/// The actor whose messages the job handles; null: it is none's.
const caf::local_actor* actor_of(const caf::resumable* job) {
  // Nearly all are, and are asked for at each event.
  if (job->subtype() == caf::resumable::scheduled_actor) {
    return static_cast<const caf::scheduled_actor*>(job);
  }
  return dynamic_cast<const caf::local_actor*>(job);
}

}  // namespace

World::World(uint64_t seed, bool traces)
    : rng_(seed, plans::random_stream("world", 5)), traces_(traces) {
  config_.set("scheduler.policy", caf::atom("testing"));
  system_ = std::make_unique<caf::actor_system>(config_);
  scheduler_ = &dynamic_cast<caf::scheduler::test_coordinator&>(system_->scheduler());
  scheduler().advance_time(kEpoch);
  add_process("world");
}

World::~World() {
  // An actor that is left over would be waited for for ever.
  if (wind_up() > 0) (void)system_.release();
}

std::string World::leftovers() const {
  std::string names;
  for (const Actor& actor : actors_) {
    if (caf::strong_actor_ptr alive = actor.self.lock()) {
      absl::StrAppend(&names, " ", actor.name, " of ", name(actor.owner));
    }
  }
  return names;
}

uint64_t World::now_us() const { return actors::to_us(system_->clock().now()); }

ProcessId World::add_process(std::string name) {
  Process process;
  process.name = std::move(name);
  process.asleep_us = now_us();
  processes_.push_back(std::move(process));
  return static_cast<ProcessId>(processes_.size() - 1);
}

uint64_t World::awake_us(ProcessId process) const {
  const Process& asked = processes_.at(process);
  return (asked.paused ? asked.paused_at_us : now_us()) - asked.asleep_us;
}

void World::pause(ProcessId process) {
  processes_.at(process).paused = true;
  ++processes_.at(process).pauses;
  processes_.at(process).paused_at_us = now_us();
}

void World::resume(ProcessId process) {
  Process& resumed = processes_.at(process);
  if (resumed.paused) resumed.asleep_us += now_us() - resumed.paused_at_us;
  resumed.paused = false;
  while (!processes_.at(process).waiting.empty() && !processes_.at(process).paused) {
    auto what = std::move(processes_.at(process).waiting.front());
    processes_.at(process).waiting.pop_front();
    what();
  }
}

void World::kill(ProcessId process) {
  Process& killed = processes_.at(process);
  killed.alive = killed.paused = false;
  killed.waiting.clear();
  std::erase_if(queue_, [&](const auto& each) { return each.second.owner == process; });
}

void World::drain(ProcessId process) {
  auto& jobs = scheduler().jobs;
  while (true) {
    const auto job = std::find_if(jobs.begin(), jobs.end(),
                                  [&](auto* each) { return owner_of(each) == process; });
    if (job == jobs.end()) return;
    run_job(static_cast<size_t>(job - jobs.begin()));
  }
}

void World::at(uint64_t time_us, ProcessId owner, std::function<void()> what) {
  if (!is_alive(owner)) return;
  queue_[{std::max(time_us, now_us()), ++inserted_}] = {owner, std::move(what)};
}

void World::run_in(ProcessId owner, std::function<void()> what) {
  Process& process = processes_.at(owner);
  if (!process.alive) return;
  if (process.paused) {
    process.waiting.push_back(std::move(what));
  } else {
    what();
  }
}

ProcessId World::owner_of(caf::resumable* job) const {
  const caf::local_actor* actor = actor_of(job);
  if (actor == nullptr || actor->id() >= actors_.size()) return 0;
  return actors_[actor->id()].owner;
}

void World::own_new_actors(ProcessId owner, caf::actor_id before) {
  const caf::actor_id latest = system_->latest_actor_id();
  if (latest >= actors_.size()) actors_.resize(latest + 1);
  for (caf::actor_id id = before + 1; id <= latest; ++id) actors_[id].owner = owner;
}

void World::run_job(size_t position) {
  auto& jobs = scheduler().jobs;
  const caf::local_actor* actor = actor_of(jobs[position]);
  const ProcessId owner = owner_of(jobs[position]);
  std::rotate(jobs.begin(), jobs.begin() + static_cast<ptrdiff_t>(position),
              jobs.begin() + static_cast<ptrdiff_t>(position) + 1);
  if (actor != nullptr) {
    if (actor->id() >= actors_.size()) actors_.resize(actor->id() + 1);
    Actor& known = actors_[actor->id()];
    if (!known.self) {
      known.name = actor->name();
      known.self = caf::weak_actor_ptr(actor->ctrl());
    }
  }
  const caf::actor_id before = system_->latest_actor_id();
  running_ = owner;
  scheduler().run_once();
  running_ = 0;
  own_new_actors(owner, before);
  for (const auto& what : std::exchange(after_job_, {})) what();
}

bool World::run_random_job() {
  const auto& jobs = scheduler().jobs;
  runnable_.clear();
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Process& process = processes_[owner_of(jobs[i])];
    if (process.alive && !process.paused) runnable_.push_back(i);
  }
  if (runnable_.empty()) return false;
  const size_t picked = runnable_[rng_.below(runnable_.size())];
  const caf::local_actor* actor = actor_of(jobs[picked]);
  SKEIN_CHECK(actor != nullptr) << "a job of no actor";
  note(actor->id());
  run_job(picked);
  return true;
}

/// Moves time on to what comes next, and lets it happen.
bool World::advance() {
  const auto& timers = scheduler().clock().schedule();
  const bool has_timer = !timers.empty();
  if (!has_timer && queue_.empty()) return false;
  const auto now = scheduler().clock().now();
  auto next = has_timer ? timers.begin()->first : decltype(now)::max();
  if (!queue_.empty()) {
    const std::chrono::microseconds due(queue_.begin()->first.first);
    next = std::min(next, decltype(now)(due));
  }
  if (next > now) {
    scheduler().advance_time(next - now);
  } else if (has_timer && timers.begin()->first <= now) {
    scheduler().advance_time(std::chrono::nanoseconds(0));
  }
  if (queue_.empty() || queue_.begin()->first.first > now_us()) return true;
  auto node = queue_.extract(queue_.begin());
  note(node.key().first);
  note(node.mapped().owner);
  run_in(node.mapped().owner, std::move(node.mapped().what));
  return true;
}

bool World::step() {
  ++events_;
  return run_random_job() || advance();
}

size_t World::wind_up() {
  // Ending one actor may wake another, or drop what holds a third.
  for (int round = 0; round < 3; ++round) {
    auto queue = std::exchange(queue_, {});
    queue.clear();
    for (Process& process : processes_) process.waiting.clear();
    scheduler().clock().cancel_all();
    while (!scheduler().jobs.empty()) run_job(0);
  }
  return system_->registry().running();
}

void World::print(const std::string& line) const {
  std::printf("%11.6f %s\n", static_cast<double>(now_us()) * 1e-6 - 1000, line.c_str());
}

}  // namespace skein::sim
