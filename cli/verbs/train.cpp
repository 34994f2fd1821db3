#include "cli/verbs/train.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "actors/device/shared_device.hpp"
#include "actors/printing/stderr_lines.hpp"
#include "cli/report/shared_trace.hpp"
#include "cli/run/exit_codes.hpp"
#include "cli/run/worker_children.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

using State = TrainRun::State;

/// So long a worker process may take to come, before the next one is started.
constexpr auto kStartPatience = std::chrono::seconds(2);
constexpr auto kStartPoll = std::chrono::milliseconds(2);

struct TogetherRun {
  std::unique_ptr<TrainRun> run;
  std::string label;       // What its lines begin with, without the colon.
  bool has_ended = false;  // Its workers are about to leave it.
  bool is_concluded = false;
};

/// A failure is worse than to be killed, and that than to be stopped.
int worse(int left, int right) {
  const auto badness = [](int code) {
    if (code == kExitDone) return 0;
    if (code == kExitStopped) return 1;
    return code == kExitKilled ? 2 : 3;
  };
  return badness(right) > badness(left) ? right : left;
}

/// InvalidArgument if a job is there twice, or if what tells jobs apart is given for all of them.
absl::Status check_unlike(const std::vector<TrainOptions>& jobs) {
  std::set<std::string> seen;
  for (const TrainOptions& each : jobs) {
    const std::string& path = each.job_path.empty() ? each.resume : each.job_path;
    std::error_code error;
    const std::filesystem::path real = std::filesystem::weakly_canonical(path, error);
    if (seen.insert(real.string()).second) continue;
    return absl::InvalidArgumentError(absl::StrCat(path, " is given twice"));
  }
  for (const auto& [key, value] : jobs.front().overrides) {
    if (key != "sharing.priority" && key != "sharing.weight") continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", key, " would be the same for all jobs; set it in the job files"));
  }
  return absl::OkStatus();
}

/// Nothing is left of it.
void take_back(TogetherRun& each) {
  const std::string made = each.run->is_new() ? each.run->folder().path : "";
  each.run.reset();  // It has files of the folder open.
  std::error_code error;
  if (!made.empty()) std::filesystem::remove_all(made, error);
}

/// Until the worker with this number, from 0, is there for each run that it serves. False if it
/// does not come.
bool await_worker(const std::vector<TogetherRun>& runs, size_t number) {
  const auto is_there = [number](const TogetherRun& each) {
    return static_cast<int64_t>(number) >= each.run->worker_count() ||
           each.run->progress().processes.size() > number;
  };
  const auto deadline = std::chrono::steady_clock::now() + kStartPatience;
  while (!std::all_of(runs.begin(), runs.end(), is_there) &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kStartPoll);
  }
  return std::all_of(runs.begin(), runs.end(), is_there);
}

/// The first workers serve all runs; those that a run does not need, only the others. One comes
/// after the other, so that it gets the same number from all, as long as all come.
absl::Status start_workers(const std::vector<TogetherRun>& runs, WorkerChildren& children) {
  int64_t count = 0;
  for (const TogetherRun& each : runs) count = std::max(count, each.run->worker_count());
  bool do_come = true;
  for (int64_t n = 0; n < count; ++n) {
    std::vector<std::string> addresses;
    for (const TogetherRun& each : runs) {
      if (n < each.run->worker_count()) addresses.push_back(each.run->address());
    }
    SKEIN_RETURN_IF_ERROR(children.start(addresses, runs.front().run->folder()));
    do_come = do_come && children.faults().empty() && await_worker(runs, static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

/// Runs are found again by their jobs' names.
absl::Status check_new_name(const std::vector<TogetherRun>& runs) {
  const std::string& name = runs.back().run->job().name;
  for (size_t n = 0; n + 1 < runs.size(); ++n) {
    if (runs[n].run->job().name != name) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("job.name = \"", name, "\", as ", runs[n].label,
                     " has; jobs that run together need names of their own"));
  }
  return absl::OkStatus();
}

/// Starts what is not done already; they must agree on the device that they are to share. Nothing
/// is left behind if that fails.
absl::StatusOr<std::vector<TogetherRun>> start_all(const std::vector<TrainOptions>& jobs) {
  std::vector<TogetherRun> runs;
  for (const TrainOptions& options : jobs) {
    absl::StatusOr<std::unique_ptr<TrainRun>> started = TrainRun::start(options);
    absl::Status status = started.status();
    if (status.ok()) {
      if ((*started)->is_done()) continue;
      runs.push_back({*std::move(started), std::string(absl::StripSuffix(options.label, ": "))});
      status =
          actors::check_same_device(runs.front().run->job().device, runs.back().run->job().device);
      if (status.ok() && !options.job_path.empty()) status = check_new_name(runs);
    }
    if (status.ok()) continue;
    for (TogetherRun& each : runs) take_back(each);
    const std::string which = options.job_path.empty() ? options.resume : options.job_path;
    const std::string text(status.message());
    if (absl::StrContains(text, which)) return status;
    return absl::Status(status.code(), absl::StrCat(which, ": ", text));
  }
  return runs;
}

/// What all runs did with the workers, in the folder of the first.
void draw_together(const std::vector<TrainOptions>& jobs, const std::vector<TogetherRun>& runs) {
  if (runs.size() < 2) return;
  std::vector<TraceSource> sources;
  for (size_t n = 0; n < runs.size(); ++n) {
    sources.push_back({runs[n].label, runs[n].run->folder().file("traces/trace.json")});
  }
  const std::string path = runs.front().run->folder().file("traces/together.json");
  const absl::Status status = write_shared_trace(sources, path);
  if (!status.ok()) {
    actors::print_error_line(absl::StrCat("skein: ", std::string(status.message())));
    return;
  }
  std::error_code error;
  const TrainOptions& first = jobs.front();
  if (first.quiet || first.format == LogFormat::kJson || !std::filesystem::exists(path, error)) {
    return;
  }
  std::printf("all on one time line: %s\n", path.c_str());
}

}  // namespace

int train(const TrainOptions& options, Signals& signals) {
  auto run = TrainRun::start(options);
  if (!run.ok()) return report_error(run.status());
  if ((*run)->is_done()) return kExitDone;
  State state = State::kRuns;
  while (state == State::kRuns) state = (*run)->poll(signals);
  if (state == State::kEnded) return (*run)->finish(signals);
  (*run)->kill_workers();
  _exit(kExitKilled);
}

int train_together(std::vector<TrainOptions> jobs, Signals& signals) {
  if (absl::Status unlike = check_unlike(jobs); !unlike.ok()) return report_error(unlike);
  const auto children = std::make_shared<WorkerChildren>();
  for (TrainOptions& each : jobs) each.children = children;
  absl::StatusOr<std::vector<TogetherRun>> started = start_all(jobs);
  if (!started.ok()) return report_error(started.status());
  std::vector<TogetherRun> runs = *std::move(started);
  const absl::Status status = start_workers(runs, *children);
  if (!status.ok()) {
    children->kill_all();
    for (TogetherRun& each : runs) take_back(each);
    return report_error(status);
  }
  int code = kExitDone;
  auto is_open = [](const TogetherRun& each) { return !each.is_concluded; };
  while (std::any_of(runs.begin(), runs.end(), is_open)) {
    const int signal = signals.wait(TrainRun::kPollSeconds);
    const bool has_only_ended = std::all_of(runs.begin(), runs.end(), [](const TogetherRun& each) {
      return each.is_concluded || each.has_ended;
    });
    if (signal != 0 && has_only_ended) {
      children->kill_all();
      actors::print_error_line(
          "skein: killed by a signal: what workers had not written yet is lost");
      return kExitKilled;
    }
    for (TogetherRun& each : runs) {
      if (each.is_concluded) continue;
      const State state = each.has_ended ? State::kEnded : each.run->poll(signal);
      if (state == State::kKilled) {
        children->kill_all();
        _exit(kExitKilled);
      }
      each.has_ended = state == State::kEnded;
      if (!each.has_ended || !each.run->have_workers_left()) continue;
      each.is_concluded = true;
      code = worse(code, each.run->conclude());
    }
  }
  children->kill_all();
  draw_together(jobs, runs);
  return code;
}

}  // namespace skein::cli
