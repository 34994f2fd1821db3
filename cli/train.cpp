#include "cli/train.hpp"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/coordinator_process.hpp"
#include "cli/chaos_runner.hpp"
#include "cli/exit_codes.hpp"
#include "cli/plan_file.hpp"
#include "cli/text_file.hpp"
#include "cli/worker_children.hpp"
#include "gpu/checkpoint/checkpoint.hpp"
#include "gpu/files/durable_file.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/chaos/chaos_script.hpp"
#include "plans/layout_plan.hpp"

namespace skein::cli {
namespace {

/// Everything ends within two seconds of Ctrl-C: so long may the step and its checkpoint take ...
constexpr double kStopSeconds = 1.2;
/// ... and so long the workers, once they were told to leave.
constexpr double kLeaveSeconds = 0.4;
/// Between two looks at signals and children.
constexpr double kPollSeconds = 0.05;
/// After a worker process is gone, the coordinator's own story of it is waited for.
constexpr double kBlameSeconds = 1.0;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The parts of a run, in the order in which they are made.
struct Run {
  LoadedJob job;
  RunFolder folder;
  std::string load_path;
  bool is_done = false;  // Before it starts: it was resumed when nothing is left to do.
  plans::ChaosScript chaos;
  std::unique_ptr<RunReporter> reporter;
  std::unique_ptr<actors::CoordinatorProcess> coordinator;
  WorkerChildren children;
};

/// The run directory to go on in; empty: a new one is made.
absl::StatusOr<std::string> folder_to_resume(const TrainOptions& options) {
  if (!options.resumes_latest) return options.resume;
  SKEIN_ASSIGN_OR_RETURN(const LoadedJob job, load_job(options.job_path, options.overrides));
  const std::string latest = job.spec.dump_folder + "/latest";
  std::error_code error;
  if (!std::filesystem::exists(latest, error)) return "";
  SKEIN_ASSIGN_OR_RETURN(const RunFolder folder, open_run_folder(latest));
  SKEIN_ASSIGN_OR_RETURN(const std::string text,
                         read_text_file(folder.file("config.resolved.toml"), "resolved job"));
  SKEIN_ASSIGN_OR_RETURN(const plans::JobSpec found, parse_job(text));
  return found.name == job.spec.name ? folder.path : "";  // Jobs may share a dump folder.
}

/// Whether a complete checkpoint of the run has all steps that are asked for.
absl::StatusOr<bool> is_done(const Run& run) {
  SKEIN_ASSIGN_OR_RETURN(const auto reader,
                         gpu::CheckpointReader::open(run.folder.path, /*verify_digests=*/false));
  return reader->trainer_state().steps_done >= static_cast<uint64_t>(run.job.spec.training.steps);
}

absl::Status load(const TrainOptions& options, Run& run) {
  if (!options.chaos.empty()) {
    SKEIN_ASSIGN_OR_RETURN(run.chaos, plans::parse_chaos(options.chaos));
  }
  SKEIN_ASSIGN_OR_RETURN(const std::string resume, folder_to_resume(options));
  if (resume.empty()) {
    SKEIN_ASSIGN_OR_RETURN(run.job, load_job(options.job_path, options.overrides));
    run.load_path = run.job.spec.checkpoint.initial_load_path;
    std::string& plan = run.job.spec.parallelism.plan;
    // The run may be resumed from another folder.
    if (!plan.empty()) plan = std::filesystem::absolute(plan).string();
    return absl::OkStatus();
  }
  SKEIN_ASSIGN_OR_RETURN(run.folder, open_run_folder(resume));
  SKEIN_ASSIGN_OR_RETURN(run.job,
                         load_job(run.folder.file("config.resolved.toml"), options.overrides));
  // A coordinator that died before the first checkpoint finds the state in its workers.
  const bool is_saved = std::filesystem::exists(run.folder.file("checkpoint/latest"));
  run.load_path = is_saved ? run.folder.path : run.job.spec.checkpoint.initial_load_path;
  if (options.resumes_latest && is_saved) {
    SKEIN_ASSIGN_OR_RETURN(run.is_done, is_done(run));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> worker_count(const TrainOptions& options, const plans::JobSpec& job,
                                     const std::optional<plans::Plan>& plan) {
  const int64_t available = options.workers > 0 ? options.workers : 1;
  SKEIN_ASSIGN_OR_RETURN(const int64_t needed, plan ? plans::worker_count(*plan)
                                                    : plans::layout_worker_count(job, available));
  if (options.workers == 0) return needed;
  if (options.workers < needed) {
    return absl::InvalidArgumentError(absl::StrCat("the job's layout needs ", needed,
                                                   " workers, one per replica, but --workers is ",
                                                   options.workers));
  }
  return options.workers;
}

absl::Status start(const TrainOptions& options, Run& run) {
  std::optional<plans::Plan> given;
  if (!run.job.spec.parallelism.plan.empty() && !options.only_profiles) {
    SKEIN_ASSIGN_OR_RETURN(given, read_plan(run.job.spec.parallelism.plan));
  }
  SKEIN_ASSIGN_OR_RETURN(const int64_t workers,
                         options.only_profiles
                             ? absl::StatusOr<int64_t>(std::max<int64_t>(1, options.workers))
                             : worker_count(options, run.job.spec, given));
  // A plan that cannot be made is an error before anything is created.
  std::vector<plans::WorkerId> ids;
  for (int64_t n = 1; n <= workers; ++n) ids.push_back({static_cast<uint32_t>(n)});
  const bool chooses =
      options.only_profiles ||
      (run.job.spec.parallelism.pipeline_parallel_degree == plans::kAutoDegree && !given);
  if (!chooses) {
    const auto tried = given ? plans::adopt_plan(run.job.spec, *given, ids, 1)
                             : plans::make_layout_plan(run.job.spec, ids, 1);
    SKEIN_RETURN_IF_ERROR(tried.status());
  }
  if (run.folder.path.empty()) {
    SKEIN_ASSIGN_OR_RETURN(run.folder, make_run_folder(run.job));
  }
  RunReporter::Options reporting;
  reporting.job = run.job.spec;
  reporting.folder = run.folder;
  reporting.format = options.format;
  reporting.quiet = options.quiet;
  reporting.colours = isatty(STDOUT_FILENO) == 1;
  SKEIN_ASSIGN_OR_RETURN(run.reporter, RunReporter::create(std::move(reporting)));
  actors::CoordinatorOptions coordinating;
  coordinating.job = run.job.spec;
  coordinating.job_config = to_toml(run.job.spec, nullptr);
  coordinating.job_id = run.folder.job_id;
  coordinating.run_folder = run.folder.path;
  coordinating.listen_address = options.listen;
  coordinating.insecure = options.insecure;
  coordinating.worker_count = workers;
  coordinating.plan = std::move(given);
  coordinating.only_profiles = options.only_profiles;
  coordinating.load_path = run.load_path;
  coordinating.observer = run.reporter.get();
  coordinating.fail_point = options.fail_point;
  SKEIN_ASSIGN_OR_RETURN(run.coordinator,
                         actors::CoordinatorProcess::start(std::move(coordinating)));
  const std::string& address = run.coordinator->address();
  SKEIN_RETURN_IF_ERROR(gpu::write_durably(run.folder.file("coordinator.address"), address + "\n"));
  if (!options.spawns_workers && !options.quiet) {
    std::fprintf(stderr, "waiting for %lld workers: skein worker --join %s\n",
                 static_cast<long long>(workers), address.c_str());
  }
  return options.spawns_workers ? run.children.start(address, workers, run.folder)
                                : absl::OkStatus();
}

ChaosHands chaos_hands(Run& run) {
  ChaosHands hands;
  hands.processes = [&run] { return run.coordinator->progress().processes; };
  hands.signal = [&run](uint32_t process, int signal) {
    return signal_worker(process, signal, run.coordinator->address());
  };
  hands.kill_coordinator = [] { raise(SIGKILL); };
  hands.set_speed = [&run](plans::WorkerId worker, double speed) {
    run.coordinator->emulate(worker, speed, {}, 0);
  };
  hands.drop_link = [&run](plans::WorkerId worker, plans::WorkerId to, double seconds) {
    run.coordinator->emulate(worker, 0, to, seconds);
  };
  hands.say = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  return hands;
}

/// Waits for the end, passing on signals and the deaths of children that the run cannot survive.
int supervise(Run& run, Signals& signals) {
  ChaosRunner chaos(run.chaos, chaos_hands(run));
  const auto start = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point stop_asked{};
  std::chrono::steady_clock::time_point child_died{};
  absl::Status child_fault;
  while (!run.coordinator->wait(0)) {
    const int signal = signals.wait(kPollSeconds);
    const bool stopping = stop_asked != std::chrono::steady_clock::time_point{};
    if (signal != 0 && stopping) return kExitKilled;
    if (signal != 0) {
      stop_asked = std::chrono::steady_clock::now();
      std::fprintf(stderr, "stopping (again to end at once)\n");
      run.coordinator->request_stop("interrupted by a signal");
    }
    if (stopping && seconds_since(stop_asked) > kStopSeconds) {
      run.coordinator->abort(absl::CancelledError(
          "interrupted; the step in progress did not end in time and is not in a checkpoint"));
    }
    const actors::RunProgress progress = run.coordinator->progress();
    chaos.poll({seconds_since(start), progress.has_started, progress.steps_done});
    absl::Status fault = run.children.check();
    if (!fault.ok()) {
      child_died = std::chrono::steady_clock::now();
      child_fault = std::move(fault);
    }
    // Once training has begun the others go on without it, while there are others.
    const bool is_fatal = !progress.has_started || run.children.all_ended();
    if (!child_fault.ok() && is_fatal && seconds_since(child_died) > kBlameSeconds) {
      run.coordinator->abort(child_fault);
    }
  }
  return kExitDone;
}

int finish(Run& run, const TrainOptions& options) {
  const auto told = std::chrono::steady_clock::now();
  while (options.spawns_workers && !run.children.all_ended() &&
         seconds_since(told) < kLeaveSeconds) {
    usleep(static_cast<useconds_t>(kPollSeconds * 1e5));
  }
  run.children.kill_all();
  const actors::RunResult result = run.coordinator->result();
  run.coordinator.reset();
  if (options.only_profiles && result.status.ok() && !result.stopped_early) {
    const absl::Status status = options.on_profiled(run.folder);
    return status.ok() ? kExitDone : report_error(status);
  }
  run.reporter->summarise(result);
  if (!result.status.ok()) return report_error(result.status);
  if (!result.stopped_early) return kExitDone;
  return result.checkpoint_path.empty() ? kExitKilled : kExitStopped;
}

}  // namespace

int train(const TrainOptions& options, Signals& signals) {
  Run run;
  if (absl::Status status = load(options, run); !status.ok()) return report_error(status);
  if (run.is_done) {
    std::printf(
        "nothing to do: %s has all of its %lld steps; --training.steps MORE goes on, and "
        "another --job.dump_folder begins anew\n",
        run.folder.path.c_str(), static_cast<long long>(run.job.spec.training.steps));
    return kExitDone;
  }
  if (options.resumes_latest && !run.folder.path.empty() && !options.quiet) {
    std::fprintf(stderr, "going on in %s, with the job as it was then\n", run.folder.path.c_str());
  }
  if (absl::Status status = start(options, run); !status.ok()) return report_error(status);
  const int code = supervise(run, signals);
  if (code == kExitKilled) {
    // No orderly end was wanted: workers die with us, files are whole at every moment.
    run.children.kill_all();
    _exit(kExitKilled);
  }
  return finish(run, options);
}

}  // namespace skein::cli
