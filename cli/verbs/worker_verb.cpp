#include "cli/verbs/worker_verb.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "actors/device/shared_device.hpp"
#include "actors/printing/stderr_lines.hpp"
#include "actors/worker/worker_process.hpp"
#include "cli/config/job_file.hpp"
#include "cli/config/resume_keys.hpp"
#include "cli/run/exit_codes.hpp"
#include "cli/run/worker_children.hpp"
#include "cli/spot/spot_watch.hpp"
#include "net/address.hpp"
#include "net/local_address.hpp"

namespace skein::cli {
namespace {

using actors::print_error_line;

/// Its parts in the runs; null: that one has ended.
using ServedRuns = std::vector<std::unique_ptr<actors::WorkerProcess>>;

void say_waiting(const std::string& why, double seconds) {
  print_error_line(
      absl::StrFormat("skein: waiting for the coordinator, for at most %.0f s: %s", seconds, why));
}

/// What `--bind auto` stands for, as soon as there is a way to the first coordinator.
absl::StatusOr<std::string> find_bind_address(const WorkerArguments& arguments,
                                              double timeout_seconds, Signals& signals) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_seconds);
  for (bool is_first = true;; is_first = false) {
    absl::StatusOr<std::string> found = net::local_address_to(arguments.join.front());
    if (!absl::IsUnavailable(found.status()) || Clock::now() > deadline) return found;
    if (is_first) say_waiting(std::string(found.status().message()), timeout_seconds);
    if (signals.wait(0.1) != 0) return absl::CancelledError("told to leave by a signal");
  }
}

/// Watches for spot notices, if any cloud is given.
std::unique_ptr<SpotWatch> watch_spot(std::vector<Cloud> clouds, MetadataClient& client) {
  if (clouds.empty()) return nullptr;
  SpotWatchOptions options;
  options.clouds = std::move(clouds);
  options.ask = [&client](const MetadataRequest& request) { return client.ask(request); };
  options.interrupt = [&client] { client.stop(); };
  options.warn = [](const std::string& line) { print_error_line("skein: warning: " + line); };
  return std::make_unique<SpotWatch>(std::move(options));
}

/// What all runs have alike: all but the coordinator's address.
absl::StatusOr<actors::WorkerOptions> worker_options(const WorkerArguments& arguments,
                                                     const actors::FailPointHandle& fail_point,
                                                     Signals& signals) {
  actors::WorkerOptions options;
  options.bind_address = arguments.bind;
  if (arguments.bind == "auto") {
    auto found = find_bind_address(arguments, options.connect_timeout_seconds, signals);
    if (!found.ok()) return found.status();
    options.bind_address = *std::move(found);
  }
  options.insecure = arguments.insecure;
  options.local_rank = arguments.local_rank;
  options.on_waiting = say_waiting;
  options.parse_job = parse_job;
  options.digest_job = config_digest;
  options.fail_point = fail_point;
  options.change_device = [arguments](plans::DeviceSpec& device) {
    if (!arguments.device.empty()) device.type = arguments.device;
    if (arguments.speed > 0) device.speed = arguments.speed;
    if (arguments.threads > 0) device.threads = arguments.threads;
    if (arguments.ordinal >= 0) device.ordinal = arguments.ordinal;
  };
  if (arguments.join.size() > 1) options.device = std::make_shared<actors::SharedDevice>();
  return options;
}

/// Looks at all that can be wrong before anything is started.
absl::Status check_addresses(const WorkerArguments& arguments) {
  std::set<std::string> seen;
  for (const std::string& address : arguments.join) {
    if (absl::StrContains(address, ',')) {
      return absl::InvalidArgumentError(
          absl::StrCat("--join ", address, ": give --join once for each coordinator"));
    }
    if (auto parsed = net::parse_address(address); !parsed.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--join: ", std::string(parsed.status().message())));
    }
    if (!seen.insert(address).second) {
      return absl::InvalidArgumentError(absl::StrCat("--join ", address, " is given twice"));
    }
  }
  return absl::OkStatus();
}

/// How a run that the worker has served has ended. Nobody waits for a device or a disk that is
/// still at work for it, unless there are other runs. `address`: its coordinator's, if there are
/// other runs; else empty.
int report_end(const actors::WorkerProcess& run, const std::string& address, bool is_last) {
  const absl::Status& result = run.result();
  if (result.ok()) return kExitDone;
  const std::string text(result.message());
  const bool says_which = address.empty() || absl::StrContains(text, address);
  const int code = report_error(
      says_which ? result
                 : absl::Status(result.code(), absl::StrCat("--join ", address, ": ", text)));
  if (run.is_at_work() && is_last) std::_Exit(code);
  return code;
}

void leave_all(const ServedRuns& runs, const std::string& reason) {
  for (const auto& each : runs) {
    if (each) each->leave(reason);
  }
}

/// On a thread of its own, as the device may be in the middle of what never ends: the others go on.
/// `open` counts those that are not apart yet.
void take_apart(std::unique_ptr<actors::WorkerProcess> process,
                const std::shared_ptr<std::atomic<int>>& open) {
  ++*open;
  std::thread([ended = std::move(process), open]() mutable {
    ended.reset();
    --*open;
  }).detach();
}

/// False if something is not apart after a while.
bool await_none(const std::atomic<int>& open) {
  constexpr int kLooks = 200;
  for (int look = 0; look < kLooks && open > 0; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return open == 0;
}

/// Looks after the runs, whose coordinators are at these addresses, until all have ended.
int serve(ServedRuns runs, const std::vector<std::string>& addresses, SpotWatch* spot,
          Signals& signals) {
  bool leaves = false;
  int code = kExitDone;
  size_t left = runs.size();
  const auto open = std::make_shared<std::atomic<int>>(0);
  while (true) {
    for (size_t n = 0; n < runs.size(); ++n) {
      if (!runs[n] || !runs[n]->wait(0)) continue;
      const std::string address = runs.size() > 1 ? addresses[n] : "";
      code = std::max(code, report_end(*runs[n], address, --left == 0));
      take_apart(std::move(runs[n]), open);
    }
    if (left == 0) {
      if (!await_none(*open)) std::_Exit(code);
      return code;
    }
    if (const auto notice = spot ? spot->take_notice() : std::nullopt) {
      print_error_line(absl::StrCat("skein: ", notice->reason, ": leaving the run"));
      // The first signal after it only asks for the same: clouds send one to all processes.
      leave_all(runs, notice->reason);
    }
    // Signals are what is waited for: of two that come between two looks only one would be seen.
    if (signals.wait(0.02) == 0) continue;
    if (leaves) {
      // At once: to take apart what other threads are in the middle of would take as long as they.
      print_error_line("skein: stopped by a second signal");
      std::_Exit(kExitKilled);
    }
    leave_all(runs, "told to leave by a signal");
    leaves = true;
  }
}

}  // namespace

int run_worker(const WorkerArguments& arguments, const actors::FailPointHandle& fail_point,
               Signals& signals) {
  if (absl::Status status = die_with_parent(arguments.parent); !status.ok()) {
    return report_error(status);
  }
  if (absl::Status status = check_addresses(arguments); !status.ok()) return report_error(status);
  auto clouds = parse_clouds(arguments.spot);
  if (!clouds.ok()) return report_error(clouds.status());
  const auto metadata = MetadataClient::make(arguments.spot_url);
  if (!metadata.ok()) return report_error(metadata.status());
  auto options = worker_options(arguments, fail_point, signals);
  if (!options.ok()) return report_error(options.status());
  ServedRuns runs;
  for (const std::string& address : arguments.join) {
    actors::WorkerOptions own = *options;
    own.coordinator_address = address;
    auto worker = actors::WorkerProcess::start(std::move(own));
    if (!worker.ok()) return report_error(worker.status());
    runs.push_back(*std::move(worker));
  }
  const std::unique_ptr<SpotWatch> spot = watch_spot(*std::move(clouds), **metadata);
  return serve(std::move(runs), arguments.join, spot.get(), signals);
}

}  // namespace skein::cli
