#include "tests/sim/world.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <caf/abstract_actor.hpp>

#include "absl/strings/str_cat.h"
#include "actors/microseconds.hpp"
#include "plans/base/check.hpp"

namespace skein::sim {
namespace {

/// Zero is "never" in some fields of the actors, so time starts later.
constexpr auto kEpoch = std::chrono::seconds(1000);

}  // namespace

World::World(uint64_t seed, bool traces)
    : rng_(seed, plans::random_stream("world", 5)), traces_(traces) {
  config_.set("scheduler.policy", caf::atom("testing"));
  system_ = std::make_unique<caf::actor_system>(config_);
  scheduler().advance_time(kEpoch);
  add_process("world");
}

World::~World() {
  // An actor that is left over would be waited for for ever.
  if (wind_up() > 0) (void)system_.release();
}

std::string World::leftovers() const {
  std::string names;
  for (const auto& [id, seen] : seen_) {
    if (caf::strong_actor_ptr alive = seen.second.lock()) {
      absl::StrAppend(&names, " ", seen.first, " of ", name(owners_.at(id)));
    }
  }
  return names;
}

caf::scheduler::test_coordinator& World::scheduler() {
  return dynamic_cast<caf::scheduler::test_coordinator&>(system_->scheduler());
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

ProcessId World::owner_of(caf::resumable* job) {
  const auto* actor = dynamic_cast<caf::abstract_actor*>(job);
  if (actor == nullptr) return 0;
  const auto found = owners_.find(actor->id());
  return found == owners_.end() ? 0 : found->second;
}

void World::own_new_actors(ProcessId owner, caf::actor_id before) {
  for (caf::actor_id id = before + 1; id <= system_->latest_actor_id(); ++id) owners_[id] = owner;
}

void World::run_job(size_t position) {
  auto& jobs = scheduler().jobs;
  const ProcessId owner = owner_of(jobs[position]);
  std::rotate(jobs.begin(), jobs.begin() + static_cast<ptrdiff_t>(position),
              jobs.begin() + static_cast<ptrdiff_t>(position) + 1);
  if (auto* actor = dynamic_cast<caf::local_actor*>(jobs.front())) {
    seen_.try_emplace(actor->id(), actor->name(), actor->ctrl());
  }
  const caf::actor_id before = system_->latest_actor_id();
  scheduler().run_once();
  own_new_actors(owner, before);
}

bool World::run_random_job() {
  const auto& jobs = scheduler().jobs;
  std::vector<size_t> runnable;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Process& process = processes_[owner_of(jobs[i])];
    if (process.alive && !process.paused) runnable.push_back(i);
  }
  if (runnable.empty()) return false;
  const size_t picked = runnable[rng_.below(runnable.size())];
  note(dynamic_cast<caf::abstract_actor&>(*jobs[picked]).id());
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

void World::trace(const std::string& line) {
  if (!traces_) return;
  std::printf("%11.6f %s\n", static_cast<double>(now_us()) * 1e-6 - 1000, line.c_str());
}

}  // namespace skein::sim
