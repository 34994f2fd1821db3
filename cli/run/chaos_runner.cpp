#include "cli/run/chaos_runner.hpp"

#include <signal.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace skein::cli {
namespace {

using Kind = plans::FaultAction::Kind;

int signal_of(Kind kind) {
  if (kind == Kind::kStop) return SIGSTOP;
  if (kind == Kind::kContinue) return SIGCONT;
  return kind == Kind::kTerm ? SIGTERM : SIGKILL;
}

}  // namespace

ChaosRunner::ChaosRunner(plans::ChaosScript script, ChaosHands hands)
    : timeline_(std::move(script)), hands_(std::move(hands)) {}

ChaosRunner::~ChaosRunner() {
  for (const auto& [worker, process] : stopped_) (void)hands_.signal(process, SIGCONT);
}

void ChaosRunner::poll(const Now& now) {
  members_ = hands_.processes();
  for (const auto& [worker, process] : members_) processes_[worker] = process;
  if (!started_at_ && !now.has_started) return;
  if (!started_at_) started_at_ = now.seconds;
  const double elapsed_s = now.seconds - *started_at_;
  for (const plans::FaultAction& fault_action : timeline_.due(elapsed_s, now.steps_done)) {
    const std::string what = plans::to_text(fault_action);
    const std::string when = absl::StrFormat("at %.1f s, step %d", elapsed_s, now.steps_done);
    if (fault_action.worker.value == 0 &&
        fault_action.kind == Kind::kKill) {  // Said before: afterwards nobody can.
      hands_.say(absl::StrCat("chaos: ", what, " ", when));
      hands_.kill_coordinator();
    } else if (absl::Status status = carry_out(fault_action); status.ok()) {
      hands_.say(absl::StrCat("chaos: ", what, " ", when));
    } else {
      hands_.say(absl::StrCat("chaos: could not do \"", what, "\" ", when, ": ",
                              std::string(status.message())));
    }
  }
}

absl::Status ChaosRunner::carry_out(const plans::FaultAction& fault_action) {
  if (fault_action.kind == Kind::kJoin) return hands_.add_worker();
  const bool acts_on_members =
      fault_action.kind == Kind::kSetSpeed || fault_action.kind == Kind::kDropLink;
  if (!acts_on_members) return send_signal(fault_action.worker, signal_of(fault_action.kind));
  for (plans::WorkerId worker : {fault_action.worker, fault_action.other}) {
    if (worker.value == 0 || members_.contains(worker)) continue;
    return absl::NotFoundError(absl::StrCat("w", worker.value, " is not a member of the run"));
  }
  if (fault_action.kind == Kind::kSetSpeed) {
    hands_.set_speed(fault_action.worker, fault_action.speed);
    return absl::OkStatus();
  }
  hands_.drop_link(fault_action.worker, fault_action.other, fault_action.duration_s);
  hands_.drop_link(fault_action.other, fault_action.worker, fault_action.duration_s);
  return absl::OkStatus();
}

absl::Status ChaosRunner::send_signal(plans::WorkerId worker, int signal) {
  const auto found = processes_.find(worker);
  if (found == processes_.end()) {
    return absl::NotFoundError(absl::StrCat("w", worker.value, " has not joined the run"));
  }
  absl::Status status = hands_.signal(found->second, signal);
  if (signal == SIGSTOP && status.ok()) stopped_[worker] = found->second;
  if (signal == SIGCONT || signal == SIGKILL) stopped_.erase(worker);
  return status;
}

bool is_worker_of(std::string_view command_line, const std::string& address) {
  const std::vector<std::string> words = absl::StrSplit(std::string(command_line), '\0');
  const std::string port = address.substr(address.rfind(':') + 1);
  if (words.size() < 2 || words[1] != "worker" || port.empty()) return false;
  for (size_t i = 2; i < words.size(); ++i) {
    std::string joined = words[i];
    if (joined == "--join" && i + 1 < words.size()) joined = absl::StrCat("--join=", words[i + 1]);
    if (joined.starts_with("--join=") && joined.ends_with(absl::StrCat(":", port))) return true;
  }
  return false;
}

absl::Status signal_worker(uint32_t process, int signal, const std::string& coordinator_address) {
  std::ifstream file(absl::StrCat("/proc/", process, "/cmdline"), std::ios::binary);
  const std::string command_line{std::istreambuf_iterator<char>(file), {}};
  if (command_line.empty()) {
    return absl::UnavailableError(
        absl::StrCat("there is no process ", process, " on this machine any more"));
  }
  if (!is_worker_of(command_line, coordinator_address)) {
    return absl::FailedPreconditionError(
        absl::StrCat("process ", process,
                     " of this machine is no worker of this run; send signals to a worker "
                     "elsewhere on its own machine"));
  }
  if (kill(static_cast<pid_t>(process), signal) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot send signal ", signal, " to process ", process, ": ", strerror(errno)));
}

}  // namespace skein::cli
