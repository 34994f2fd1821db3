#pragma once

#include <string>

#include <caf/scheduled_actor.hpp>

namespace skein::actors {

/// The exit code of a process in which an actor has failed, as sysexits.h has it. It is a bug: a
/// restart may get past it, and nothing that was committed is lost.
inline constexpr int kExitActorFailed = 70;

/// Prints the facts in one line and ends the process at once, with `kExitActorFailed`. Nothing is
/// cleaned up: as after a crash, others go on with what is committed.
[[noreturn]] void end_process(const std::string& actor, const std::string& what);

/// From now on the process ends when the actor lets an exception out of a handler, or gets an error
/// that it does not handle. CAF would end the actor alone, and leave the process up and deaf. Every
/// actor says so first of all.
void end_process_on_failure(caf::scheduled_actor& self);

}  // namespace skein::actors
