#include "tests/sim/patience.hpp"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace skein::sim {
namespace {

/// What a tick of the coordinator and a way over the network take. The coordinator sees how long it
/// was paused by a tick that is late, so each pause may be that much longer than it thinks.
constexpr uint64_t kSlackUs = 200'000;

}  // namespace

Patience::Patience(World& world, double lease_seconds, std::function<void(const std::string&)> fail)
    : world_(world),
      lease_us_(static_cast<uint64_t>(lease_seconds * 1e6)),
      fail_(std::move(fail)) {}

void Patience::on_coordinator_started(ProcessId process) {
  coordinator_ = process;
  heard_.clear();
  of_worker_.clear();
  too_slow_.clear();
}

void Patience::on_control(ProcessId from, ProcessId to,
                          const net::schema::Envelope::Reader& envelope, bool arrives) {
  if (coordinator_ == 0) return;
  const auto body = envelope.getBody();
  // What renews a lease.
  if (arrives && to == coordinator_ && (body.isHeartbeat() || body.isJoin())) {
    heard_[from] = {world_.awake_us(coordinator_), world_.pauses(coordinator_)};
  }
  if (arrives || from != coordinator_ || !body.isJoined()) return;
  of_worker_[absl::StrCat(body.getJoined().getWorker())] = to;
  too_slow_.erase(to);
}

void Patience::on_event(const actors::EventReport& report) {
  if (report.name != "worker.lost") return;
  const auto process = of_worker_.find(report.fields.at("worker"));
  if (process == of_worker_.end()) return;
  const std::string& reason = report.fields.at("reason");
  if (!absl::StartsWith(reason, "no heartbeat")) {
    if (absl::StartsWith(reason, "it has not")) too_slow_.insert(process->second);
    return;
  }
  const uint64_t silent = silent_us(process->second);
  if (silent + slack_us(process->second) >= lease_us_) return;
  fail_(absl::StrCat(world_.name(process->second), " is lost, and was silent for ",
                     static_cast<double>(silent) * 1e-6, " s of the coordinator's own time only"));
}

bool Patience::may_be_heard(ProcessId process) const {
  return coordinator_ != 0 && !too_slow_.contains(process) &&
         silent_us(process) + slack_us(process) < lease_us_;
}

ProcessId Patience::process_of(plans::WorkerId worker) const {
  const auto found = of_worker_.find(absl::StrCat(worker.value));
  return found == of_worker_.end() ? 0 : found->second;
}

uint64_t Patience::silent_us(ProcessId process) const {
  return world_.awake_us(coordinator_) - last_heard(process).awake_us;
}

uint64_t Patience::slack_us(ProcessId process) const {
  return kSlackUs * (1 + world_.pauses(coordinator_) - last_heard(process).pauses);
}

Patience::Heard Patience::last_heard(ProcessId process) const {
  const auto heard = heard_.find(process);
  return heard == heard_.end() ? Heard{} : heard->second;
}

}  // namespace skein::sim
