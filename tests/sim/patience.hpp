#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "actors/messages.hpp"
#include "net/schema/control.capnp.h"
#include "plans/base/ids.hpp"
#include "tests/sim/world.hpp"

namespace skein::sim {

/// Watches when the coordinator has last heard of whom, by the time in which it was awake, and that
/// it loses nobody for being silent before a lease is over. Single-threaded.
class Patience {
 public:
  Patience(World& world, double lease_seconds, std::function<void(const std::string&)> fail);

  void on_coordinator_started(ProcessId process);
  void on_control(ProcessId from, ProcessId to, const net::schema::Envelope::Reader& envelope,
                  bool arrives);
  void on_event(const actors::EventReport& report);
  /// Its lease is not over, and it was not lost for anything else than being silent.
  bool may_be_heard(ProcessId process) const;
  /// It was lost, as it answered heartbeats and nothing else.
  bool is_too_slow(ProcessId process) const { return too_slow_.contains(process); }
  /// Who was given the number last; 0: nobody, in the newest life of the coordinator.
  ProcessId process_of(plans::WorkerId worker) const;

 private:
  /// By the coordinator: the time it was awake, and how often it had been paused.
  struct Heard {
    uint64_t awake_us = 0;
    uint64_t pauses = 0;
  };
  uint64_t silent_us(ProcessId process) const;
  uint64_t slack_us(ProcessId process) const;
  Heard last_heard(ProcessId process) const;

  World& world_;
  const uint64_t lease_us_;
  const std::function<void(const std::string&)> fail_;
  ProcessId coordinator_ = 0;                   // The newest one; 0: there was none.
  std::map<ProcessId, Heard> heard_;            // Since the coordinator's start.
  std::map<std::string, ProcessId> of_worker_;  // By the number that a worker was given last.
  std::set<ProcessId> too_slow_;                // They answer heartbeats, and nothing else.
};

}  // namespace skein::sim
