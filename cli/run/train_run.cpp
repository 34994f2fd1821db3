#include "cli/run/train_run.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/printing/stderr_lines.hpp"
#include "cli/config/plan_file.hpp"
#include "cli/config/text_file.hpp"
#include "cli/run/exit_codes.hpp"
#include "cli/run/two_observers.hpp"
#include "gpu/checkpoint/byte_tokens.hpp"
#include "gpu/checkpoint/checkpoint_reader.hpp"
#include "gpu/checkpoint/newest_checkpoint.hpp"
#include "gpu/checkpoint/text_files.hpp"
#include "gpu/data/token_source.hpp"
#include "gpu/files/durable_file.hpp"
#include "net/address.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/plan/layout_plan.hpp"
#include "plans/simulator/job_scenario.hpp"
#include "plans/sync/policy_kind.hpp"
#include "plans/tokens/token_plan.hpp"

namespace skein::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// So long workers that were told to leave may take for it.
constexpr double kLeaveSeconds = 0.4;
/// The same after a failure, which may be that some of them hang.
constexpr double kFailedLeaveSeconds = 2;
/// After a worker process is gone, the coordinator's own story of it is waited for.
constexpr double kBlameSeconds = 1.0;
/// What messages call a job that is in no file.
constexpr const char* kNoFile = "built-in job";

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Files that the run needs again: it may be resumed, and its checkpoints judged, from another
/// folder. What is absolute stays as it is.
void make_absolute(plans::JobSpec& job) {
  std::vector<std::string*> paths = {&job.parallelism.plan, &job.model_from, &job.data.path,
                                     &job.data.validation_path};
  for (std::string& source : job.data.mixture) paths.push_back(&source);
  for (std::string* path : paths) {
    if (!path->empty()) *path = std::filesystem::absolute(*path).string();
  }
}

absl::StatusOr<LoadedJob> load_job_of(const TrainOptions& options, JobUse use = JobUse::kRun) {
  SKEIN_ASSIGN_OR_RETURN(LoadedJob job,
                         options.job_text.empty()
                             ? load_job(options.job_path, options.overrides, use)
                             : load_job_text(options.job_text, kNoFile, options.overrides, use));
  make_absolute(job.spec);
  return job;
}

/// The run folder to go on in; empty: a new one is made.
absl::StatusOr<std::string> folder_to_resume(const TrainOptions& options) {
  if (!options.resumes_latest) return options.resume;
  SKEIN_ASSIGN_OR_RETURN(const LoadedJob job, load_job_of(options, JobUse::kFindRun));
  const std::string latest = job.spec.dump_folder + "/latest";
  std::error_code error;
  if (std::filesystem::exists(latest, error)) {
    SKEIN_ASSIGN_OR_RETURN(const RunFolder folder, open_run_folder(latest));
    SKEIN_ASSIGN_OR_RETURN(const std::string text, read_resolved_job(folder));
    SKEIN_ASSIGN_OR_RETURN(const plans::JobSpec found, parse_job(text));
    // Jobs may share a dump folder.
    if (found.name == job.spec.name) return folder.path;
  }
  // The link may be gone, or that of another job.
  const std::string own = find_latest_run(job.spec);
  if (!own.empty()) return own;
  SKEIN_ASSIGN_OR_RETURN(const LoadedJob whole, load_job_of(options));
  return find_begun_run(whole.spec);
}

absl::StatusOr<int64_t> workers_needed(const TrainOptions& options, const plans::JobSpec& job,
                                       const std::optional<plans::Plan>& plan) {
  if (options.only_profiles) return std::max<int64_t>(1, options.workers);
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

/// What starts a worker. Where the coordinator listens on all interfaces, workers are elsewhere.
std::string join_command(const std::string& address) {
  const absl::StatusOr<net::HostPort> parsed = net::parse_address(address);
  if (!parsed.ok() || !net::is_unspecified(parsed->host))
    return absl::StrCat("skein worker --join ", address);
  return absl::StrCat("skein worker --join HOST:", parsed->port,
                      " --bind auto --insecure, where HOST is this machine");
}

/// A plan that cannot be made is an error before anything is created.
absl::Status try_plan(const TrainOptions& options, const plans::JobSpec& job,
                      const std::optional<plans::Plan>& given, int64_t workers) {
  const bool chooses = options.only_profiles ||
                       (job.parallelism.pipeline_parallel_degree == plans::kAutoDegree && !given);
  if (chooses) return absl::OkStatus();
  std::vector<plans::WorkerId> ids;
  for (int64_t n = 1; n <= workers; ++n) ids.push_back({static_cast<uint32_t>(n)});
  if (plans::trains_by_tokens(job)) {
    return plans::make_token_plan(job, ids, 1, std::nullopt).status();
  }
  const auto tried =
      given ? plans::adopt_plan(job, *given, ids, 1) : plans::make_layout_plan(job, ids, 1);
  if (tried.ok() || !given) return tried.status();
  return absl::Status(tried.status().code(), absl::StrCat(job.parallelism.plan, ": ",
                                                          std::string(tried.status().message())));
}

/// The next checkpoint puts a link in its place, which it cannot where a folder is: some ways to
/// copy a run make one of the link.
absl::Status check_latest(const RunFolder& folder) {
  const std::string latest = folder.file("checkpoint/latest");
  std::error_code error;
  const auto kind = std::filesystem::symlink_status(latest, error).type();
  if (kind != std::filesystem::file_type::directory) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      latest,
      " is a folder and no link to a checkpoint, of which this copy of the run should have "
      "the folder step-..., too; remove it and resume again"));
}

/// How a new run's text becomes tokens: it is said in the folder of the weights or the checkpoint
/// that the run begins with, if there is one, else beside its data.
absl::StatusOr<std::vector<gpu::TextFile>> text_files_of(const plans::JobSpec& job,
                                                         const std::string& folder) {
  std::vector<std::string> folders;
  if (!folder.empty()) folders.push_back(folder);
  SKEIN_RETURN_IF_ERROR(gpu::check_bytes_are_tokens(folders, job.data));
  SKEIN_RETURN_IF_ERROR(gpu::check_same_tokens(folders, job.data));
  for (std::string& each : gpu::token_folders(job.data)) folders.push_back(std::move(each));
  return gpu::find_text_files(folders);
}

}  // namespace

TrainRun::TrainRun(const TrainOptions& options)
    : options_(options),
      children_(options.children ? options.children : std::make_shared<WorkerChildren>()) {}

TrainRun::~TrainRun() {
  chaos_.reset();        // It wakes stopped workers through the coordinator.
  coordinator_.reset();  // Nobody calls the observers any more.
  reporter_.reset();
  if (log_descriptor_ != STDOUT_FILENO) close(log_descriptor_);
}

absl::StatusOr<std::unique_ptr<TrainRun>> TrainRun::start(const TrainOptions& options) {
  std::unique_ptr<TrainRun> run(new TrainRun(options));  // Private.
  SKEIN_RETURN_IF_ERROR(run->load());
  tell_ignored(run->job_, [&run](const std::string& line) { run->say(line); });
  if (run->is_done_) return run;
  const absl::Status status = run->prepare();
  if (status.ok()) return run;
  const std::string made = run->is_new_ ? run->folder_.path : "";
  run.reset();  // It has files of the folder open.
  std::error_code error;
  if (!made.empty()) std::filesystem::remove_all(made, error);
  return status;
}

absl::Status TrainRun::load() {
  if (!options_.chaos.empty()) {
    SKEIN_ASSIGN_OR_RETURN(chaos_script_, plans::parse_chaos(options_.chaos));
  }
  SKEIN_ASSIGN_OR_RETURN(const std::string resume, folder_to_resume(options_));
  if (resume.empty()) {
    SKEIN_ASSIGN_OR_RETURN(job_, load_job_of(options_));
    load_path_ = job_.spec.checkpoint.initial_load_path;
    if (load_path_.empty() || job_.spec.model_from.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "checkpoint.initial_load_path goes on with a run, and model.from begins one: give one of "
        "them");
  }
  SKEIN_ASSIGN_OR_RETURN(folder_, open_run_folder(resume));
  SKEIN_RETURN_IF_ERROR(load_resumed());
  SKEIN_RETURN_IF_ERROR(check_latest(folder_));
  SKEIN_ASSIGN_OR_RETURN(run_id_, take_run_id(folder_));
  const auto own = gpu::own_checkpoints(folder_.path, run_id_);
  if (!own.ok() && !absl::IsNotFound(own.status())) return own.status();
  // A coordinator that died before the first checkpoint finds the state in its workers.
  const bool is_saved = own.ok();
  load_path_ = is_saved ? folder_.path : job_.spec.checkpoint.initial_load_path;
  if (!is_saved && !job_.spec.model_from.empty()) {
    return absl::DataLossError(
        absl::StrCat(folder_.path, " has no checkpoint, not even that of the weights in ",
                     job_.spec.model_from, " that it began with; begin anew with --model.from"));
  }
  const bool is_one_of_several = options_.children != nullptr;
  return options_.resumes_latest || is_one_of_several
             ? look_at_resumed(is_saved ? own->folders.front() : "")
             : absl::OkStatus();
}

/// The job as the run had it, with what is given now where that may change.
absl::Status TrainRun::load_resumed() {
  SKEIN_ASSIGN_OR_RETURN(const std::string text, read_resolved_job(folder_));
  SKEIN_ASSIGN_OR_RETURN(job_, load_job(folder_.file("config.resolved.toml"), options_.overrides));
  SKEIN_ASSIGN_OR_RETURN(plans::JobSpec before, parse_job(text));
  make_absolute(job_.spec);
  make_absolute(before);
  SKEIN_ASSIGN_OR_RETURN(changes_, resumed_changes(before, job_.spec));
  return absl::OkStatus();
}

/// Whoever asked for the latest run, or for several, is told which one it is, and whether anything
/// is left to do. `checkpoint`: the newest one; empty: there is none.
absl::Status TrainRun::look_at_resumed(const std::string& checkpoint) {
  if (!checkpoint.empty()) {
    const auto reader = gpu::CheckpointReader::open(checkpoint);
    const auto total = static_cast<uint64_t>(job_.spec.training.steps);
    // A damaged one is no end: the run goes on from an older one.
    is_done_ = reader.ok() && (*reader)->trainer_state().steps_done >= total;
  }
  if (is_done_) {
    std::printf(
        "nothing to do: %s has all of its %lld steps; --training.steps MORE goes on, and another "
        "--job.dump_folder begins anew\n",
        folder_.path.c_str(), static_cast<long long>(job_.spec.training.steps));
  } else if (!options_.quiet) {
    say(absl::StrCat("going on in ", folder_.path, ", with the job as it was then"));
  }
  return absl::OkStatus();
}

absl::Status TrainRun::prepare() {
  std::optional<plans::Plan> given;
  if (!job_.spec.parallelism.plan.empty() && !options_.only_profiles) {
    SKEIN_ASSIGN_OR_RETURN(given, read_plan(job_.spec.parallelism.plan));
  }
  SKEIN_ASSIGN_OR_RETURN(const int64_t workers, workers_needed(options_, job_.spec, given));
  SKEIN_RETURN_IF_ERROR(try_plan(options_, job_.spec, given, workers));
  SKEIN_RETURN_IF_ERROR(resolve_scenario(workers));
  actors::CoordinatorOptions coordinating;
  coordinating.worker_count = workers;
  coordinating.plan = std::move(given);
  if (folder_.path.empty()) {
    SKEIN_ASSIGN_OR_RETURN(coordinating.start, actors::find_start(job_.spec, load_path_));
    std::unique_ptr<gpu::WeightsFolder> weights;
    std::vector<gpu::TextFile> text_files;
    const auto open_in = [&](const std::string& folder) -> absl::Status {
      if (!job_.spec.model_from.empty() && !options_.only_profiles) {
        SKEIN_ASSIGN_OR_RETURN(weights, gpu::WeightsFolder::open(folder));
        SKEIN_RETURN_IF_ERROR(weights->check_use(job_.spec.model));
      }
      SKEIN_ASSIGN_OR_RETURN(text_files, text_files_of(job_.spec, folder));
      return absl::OkStatus();
    };
    SKEIN_RETURN_IF_ERROR(job_.spec.model_from.empty()
                              ? open_in(coordinating.start->checkpoint_path)
                              : gpu::read_newest(job_.spec.model_from, open_in));
    if (weights) SKEIN_RETURN_IF_ERROR(weights->check_finite());  // Last: it reads all of them.
    SKEIN_ASSIGN_OR_RETURN(folder_, make_run_folder(job_));
    is_new_ = true;
    SKEIN_ASSIGN_OR_RETURN(run_id_, take_run_id(folder_));
    SKEIN_RETURN_IF_ERROR(gpu::keep_text_files(text_files, folder_.path));
    if (weights) SKEIN_RETURN_IF_ERROR(import_from(*weights, *coordinating.start));
  }
  ensure_subfolders(folder_);  // Somebody may have tidied up since the run's last life.
  SKEIN_RETURN_IF_ERROR(open_reporter());
  return start_processes(std::move(coordinating));
}

/// From then on the weights are the run's own: it is resumed without the folder they are from.
absl::Status TrainRun::import_from(const gpu::WeightsFolder& weights, actors::StartPoint& start) {
  start.positions = weights.positions();
  gpu::TrainerState state = gpu::trainer_state_after(job_.spec, 0);
  state.run = run_id_;
  state.positions = start.positions;
  state.data_bytes = start.data.bytes;
  state.data_digest = start.data.digest;
  SKEIN_ASSIGN_OR_RETURN(start.checkpoint_path,
                         gpu::import_weights(weights, job_.spec, state, folder_.path));
  SKEIN_ASSIGN_OR_RETURN(state, gpu::read_trainer_state(start.checkpoint_path));
  start.from_digest = state.from_digest;
  load_path_ = folder_.path;
  if (!options_.quiet) say(absl::StrCat("begins with the weights in ", weights.folder()));
  return absl::OkStatus();
}

absl::Status TrainRun::resolve_scenario(int64_t workers) {
  plans::DeviceSpec& device = job_.spec.device;
  std::vector<plans::Scenario::TracePoint> trace;
  if (!device.scenario_trace.empty()) {
    SKEIN_ASSIGN_OR_RETURN(const std::string text,
                           read_text_file(device.scenario_trace, "device.scenario_trace"));
    SKEIN_ASSIGN_OR_RETURN(trace, plans::parse_scenario_trace(text, device.scenario_trace));
  }
  SKEIN_ASSIGN_OR_RETURN(plans::JobScenario scenario,
                         plans::job_scenario(job_.spec, static_cast<int32_t>(workers), trace));
  if (scenario.changes.empty()) {
    if (!device.scenario.empty()) device.scenario = plans::to_text(scenario.slowdown);
    device.scenario_trace.clear();
    return absl::OkStatus();
  }
  if (!options_.spawns_workers || !options_.chaos.empty()) {
    return absl::InvalidArgumentError(
        "device.scenario = \"H7\": workers are killed and started by skein train alone, without "
        "--chaos; give the deaths as --chaos 'w1:kill@30s' and start workers by hand instead");
  }
  chaos_script_ = std::move(scenario.changes);
  return absl::OkStatus();
}

absl::Status TrainRun::open_reporter() {
  RunReporter::Options reporting;
  if (!options_.log_name.empty()) {
    const std::string path = folder_.file(options_.log_name);
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) return absl::UnavailableError(absl::StrCat("cannot write ", path));
    log_descriptor_ = file;
    reporting.out_name = path;
  }
  reporting.job = job_.spec;
  reporting.folder = folder_;
  reporting.format = options_.format;
  reporting.quiet = options_.quiet;
  reporting.label = options_.label;
  reporting.colours = isatty(log_descriptor_) == 1;
  reporting.out_descriptor = log_descriptor_;
  SKEIN_ASSIGN_OR_RETURN(reporter_, RunReporter::create(std::move(reporting)));
  if (options_.second_observer != nullptr) {
    both_observers_ = std::make_unique<TwoObservers>(*reporter_, *options_.second_observer);
  }
  return absl::OkStatus();
}

absl::Status TrainRun::start_processes(actors::CoordinatorOptions coordinating) {
  int64_t workers = coordinating.worker_count;
  coordinating.job = job_.spec;
  coordinating.job_config = to_toml(job_.spec, nullptr);
  coordinating.config_digest = config_digest(job_.spec);
  coordinating.job_id = folder_.job_id;
  coordinating.run_id = run_id_;
  coordinating.run_folder = folder_.path;
  coordinating.listen_address = options_.listen;
  coordinating.insecure = options_.insecure;
  coordinating.only_profiles = options_.only_profiles;
  coordinating.awaits_last_workers = !options_.spawns_workers;  // Ours die with us.
  coordinating.load_path = load_path_;
  coordinating.fail_point = options_.fail_point;
  coordinating.observer = reporter_.get();
  if (both_observers_) coordinating.observer = both_observers_.get();
  tell_changes();
  SKEIN_RETURN_IF_ERROR(check_changed_data());
  SKEIN_ASSIGN_OR_RETURN(coordinator_, actors::CoordinatorProcess::start(std::move(coordinating)));
  if (!changes_.empty()) {
    // Nobody else has the run's lock now; who resumes it next goes on with these keys.
    SKEIN_RETURN_IF_ERROR(write_resolved_job(folder_, job_.spec));
  }
  if (options_.workers == 0) workers = coordinator_->worker_count();
  worker_count_ = workers;
  const std::string& address = coordinator_->address();
  SKEIN_RETURN_IF_ERROR(gpu::write_durably(folder_.file("coordinator.address"), address + "\n"));
  if (!options_.spawns_workers && !options_.quiet) {
    say(absl::StrCat("waiting for ", workers, " workers: ", join_command(address)));
  }
  chaos_ = std::make_unique<ChaosRunner>(chaos_script_, chaos_hands());
  started_ = Clock::now();
  const bool starts_them = options_.spawns_workers && !options_.children;
  for (int64_t n = 0; n < workers && starts_them; ++n) {
    SKEIN_RETURN_IF_ERROR(children_->start({address}, folder_));
  }
  return absl::OkStatus();
}

/// Other data than the checkpoint's are refused before the run's own file names them.
absl::Status TrainRun::check_changed_data() const {
  const bool has_others =
      std::any_of(changes_.begin(), changes_.end(),
                  [](const ChangedKey& change) { return change.name.starts_with("data."); });
  if (!has_others) return absl::OkStatus();
  const std::string run = load_path_ == folder_.path ? run_id_ : "";
  return actors::verify_start(job_.spec, load_path_, run, UINT64_MAX, std::nullopt).status();
}

void TrainRun::tell_changes() {
  for (const ChangedKey& change : changes_) {
    const std::string text =
        absl::StrCat("resumed with ", change.name, " = ", change.now, " (was ", change.before, ")");
    reporter_->on_event({"run.reconfigured",
                         text,
                         {{"key", change.name}, {"before", change.before}, {"now", change.now}}});
  }
}

void TrainRun::say(const std::string& line) const {
  options_.say ? options_.say(line) : actors::print_error_line(options_.label + line);
}

ChaosHands TrainRun::chaos_hands() {
  ChaosHands hands;
  hands.processes = [this] { return coordinator_->progress().processes; };
  hands.signal = [this](uint32_t process, int signal) {
    return signal_worker(process, signal, coordinator_->address());
  };
  hands.kill_coordinator = [] { raise(SIGKILL); };
  hands.set_speed = [this](plans::WorkerId worker, double speed) {
    coordinator_->emulate(worker, speed, {}, 0);
  };
  hands.drop_link = [this](plans::WorkerId worker, plans::WorkerId to, double seconds) {
    coordinator_->emulate(worker, 0, to, seconds);
  };
  hands.add_worker = [this] {
    return options_.spawns_workers ? add_worker()
                                   : absl::UnimplementedError("start it by hand: skein worker");
  };
  hands.say = [this](const std::string& line) { say(line); };
  return hands;
}

TrainRun::State TrainRun::poll(int signal) {
  if (coordinator_->wait(0)) return State::kEnded;
  if (signal != 0) {
    if (stop_asked_) {
      say("killed by a second signal: what is in no checkpoint is lost");
      return State::kKilled;
    }
    stop_asked_ = Clock::now();
    // The coordinator knows what steps and checkpoints take, and says how long it will be.
    say("stopping (press Ctrl-C again to kill)");
    coordinator_->request_stop("a signal");
  }
  const actors::RunProgress progress = coordinator_->progress();
  chaos_->poll({seconds_since(started_), progress.has_started, progress.steps_done});
  check_children(progress);
  return State::kRuns;
}

void TrainRun::check_children(const actors::RunProgress& progress) {
  const std::vector<WorkerChildren::Fault>& faults = children_->faults();
  for (; faults_seen_ < faults.size(); ++faults_seen_) {
    const WorkerChildren::Fault& fault = faults[faults_seen_];
    const bool was_ours = std::find(fault.addresses.begin(), fault.addresses.end(), address()) !=
                          fault.addresses.end();
    if (!was_ours) continue;
    child_died_ = Clock::now();
    child_fault_ = fault.status;
  }
  // Workers of several runs live on when they have left this one, or were refused by it. As long as
  // it has not begun, it waits for as many as there were, and none will come.
  most_links_ = std::max(most_links_, progress.links);
  const bool lacks_workers =
      progress.has_started ? most_links_ > 0 && progress.links == 0 : progress.links < most_links_;
  if (options_.children && lacks_workers && !chaos_->awaits_join()) {
    if (!deserted_) deserted_ = Clock::now();
    if (seconds_since(*deserted_) > kBlameSeconds && child_fault_.ok()) {
      coordinator_->abort(absl::UnavailableError(
          absl::StrCat(progress.links == 0 ? "every worker has" : "workers have", " left this run",
                       progress.has_started ? "" : " before it began",
                       "; its events and the workers' logs say why")));
    }
  } else {
    deserted_.reset();
  }
  // Whoever lacks memory waits for others to share the work with; but all are here.
  const bool are_all_here = options_.spawns_workers && progress.links >= children_->living();
  if (are_all_here && !chaos_->awaits_join() && !progress.failed_start.ok()) {
    coordinator_->abort(progress.failed_start);
  }
  // Once training has begun the others go on without it, while there are others or some will come.
  const bool is_alone = children_->living() == 0 && progress.links == 0;
  const bool is_fatal = !progress.has_started || (is_alone && !chaos_->awaits_join());
  if (!child_fault_.ok() && is_fatal && seconds_since(child_died_) > kBlameSeconds) {
    coordinator_->abort(child_fault_);
  }
}

absl::Status TrainRun::add_worker() { return children_->start({address()}, folder_); }

absl::Status TrainRun::kill_worker(plans::WorkerId worker) {
  const auto processes = coordinator_->progress().processes;
  const auto found = processes.find(worker);
  if (found == processes.end()) {
    return absl::NotFoundError(absl::StrCat("w", worker.value, " is no member of the run"));
  }
  return signal_worker(found->second, SIGKILL, coordinator_->address());
}

bool TrainRun::have_workers_left() {
  if (!ended_) ended_ = Clock::now();
  const bool are_ours = options_.spawns_workers && !options_.children;
  if (are_ours ? children_->living() == 0 : coordinator_->progress().links == 0) return true;
  const actors::RunResult& ended = coordinator_->result();
  // Workers that write what they hold give themselves as much time for it.
  const double limit_s = ended.keeps_state   ? job_.spec.elastic.coordinator_timeout_seconds
                         : ended.status.ok() ? kLeaveSeconds
                                             : kFailedLeaveSeconds;
  return seconds_since(*ended_) >= limit_s;
}

int TrainRun::finish(Signals& signals) {
  while (!have_workers_left()) {
    if (signals.wait(kPollSeconds * 0.1) == 0) continue;
    children_->kill_all();
    say("killed by a second signal: what workers had not written yet is lost");
    return kExitKilled;
  }
  return conclude();
}

int TrainRun::conclude() {
  if (!options_.children) children_->kill_all();
  chaos_.reset();  // It looks at the coordinator.
  result_ = coordinator_->result();
  coordinator_.reset();
  if (options_.only_profiles && result_.status.ok() && !result_.stopped_early) {
    reporter_->finish();
    const absl::Status status = options_.on_profiled(folder_);
    return status.ok() ? kExitDone : report_error(status);
  }
  const absl::Status printed = reporter_->summarise(result_);
  // A lost line does not make the run fail.
  if (!printed.ok()) say(std::string(printed.message()));
  actors::finish_error_lines(actors::LinePrinter::kAtEnd);
  if (!result_.status.ok()) {
    return report_error(
        absl::Status(result_.status.code(),
                     absl::StrCat(options_.label, std::string(result_.status.message()))));
  }
  if (!result_.stopped_early) return kExitDone;
  const bool is_saved = !result_.checkpoint_path.empty() || result_.is_kept_whole;
  return is_saved ? kExitStopped : kExitKilled;
}

}  // namespace skein::cli
