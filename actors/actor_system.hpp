#pragma once

#include <caf/actor_system_config.hpp>

namespace skein::actors {

/// The configuration of every actor system of Skein: two threads for cooperative actors, woken at
/// once by a shared queue. They do no long work, but for the journal's, whose file may block one.
/// CAF's default, work stealing, lets idle threads sleep up to 10 ms between looks at their queues,
/// which would be paid on every hop of a step.
inline caf::actor_system_config make_system_config() {
  caf::actor_system_config config;
  config.set("scheduler.policy", caf::atom("sharing"));
  config.set("scheduler.max-threads", size_t{2});
  return config;
}

}  // namespace skein::actors
