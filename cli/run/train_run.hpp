#pragma once

#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "actors/coordinator/coordinator_process.hpp"
#include "actors/fail_point.hpp"
#include "cli/config/job_file.hpp"
#include "cli/config/resume_keys.hpp"
#include "cli/report/run_reporter.hpp"
#include "cli/run/chaos_runner.hpp"
#include "cli/run/run_folder.hpp"
#include "cli/run/signals.hpp"
#include "cli/run/worker_children.hpp"
#include "gpu/checkpoint/weights_folder.hpp"
#include "plans/chaos/chaos_script.hpp"

namespace skein::cli {

struct TrainOptions {
  std::string job_path;  // Empty with `resume` or `job_text`.
  std::string job_text;  // The contents of a job file, for a job that is in no file.
  Overrides overrides;
  std::string resume;           // A run folder to go on in.
  bool resumes_latest = false;  // Go on in <dump_folder>/latest if it is a run of this job.
  std::string chaos;            // Faults to be done to the run, as `plans::parse_chaos`.
  int64_t workers = 0;          // 0: what the job needs.
  /// Worker processes that this run has together with others; they are started by whoever has made
  /// this. None: the run has its own.
  std::shared_ptr<WorkerChildren> children;
  std::string label;           // Begins each of the run's lines, to tell it from others.
  bool spawns_workers = true;  // False: `skein coordinator`, workers join from elsewhere.
  std::string listen = "127.0.0.1:0";
  bool insecure = false;
  actors::FailPointHandle fail_point;  // Set by tests; else null.
  LogFormat format = LogFormat::kText;
  bool quiet = false;
  std::string log_name;  // File of the run folder for the progress lines; empty: stdout.
  /// Gets the lines for people that are not the reporter's; none: standard error.
  std::function<void(const std::string& line)> say;
  /// Ends when devices and links are measured, and calls `on_profiled` with the run folder,
  /// which then has profile.json and cluster.toml.
  bool only_profiles = false;
  std::function<absl::Status(const RunFolder&)> on_profiled;
  /// Hears all that the run's reporter hears, after it. Outlives the run; may be null.
  actors::RunObserver* second_observer = nullptr;
};

/// One run of a job by this process: its run folder, its coordinator, its worker processes and
/// the faults that are done to it. Used by one thread.
class TrainRun {
 public:
  /// Loads the job and starts everything, unless it is done. Nothing is left behind if that fails:
  /// what can be checked is checked before anything is made.
  static absl::StatusOr<std::unique_ptr<TrainRun>> start(const TrainOptions& options);
  ~TrainRun();

  enum class State {
    kRuns,
    kEnded,
    kKilled,  // By a second signal: no orderly end is wanted.
  };
  /// Looks after the run for a moment, at most `kPollSeconds`: passes on signals, carries out
  /// faults, and ends the run if it cannot survive the death of a child.
  State poll(Signals& signals) { return poll(signals.wait(kPollSeconds)); }
  /// The same, when a signal has come, or none (0), and time passes elsewhere.
  State poll(int signal);
  static constexpr double kPollSeconds = 0.05;

  /// Lets the workers leave, closes the files and prints the summary. Returns the exit code. Call
  /// it once, after `poll` has returned kEnded.
  int finish(Signals& signals);
  /// The same in two parts, for who looks after several runs: whether the workers have left, or
  /// were waited for long enough; then the rest.
  bool have_workers_left();
  int conclude();
  /// After `poll` has returned kKilled: workers die with us, files are whole at every moment.
  void kill_workers() { children_->kill_all(); }

  /// One more worker process on this machine, which joins the run.
  absl::Status add_worker();
  /// SIGKILL. NotFound if it is no member.
  absl::Status kill_worker(plans::WorkerId worker);
  /// As `actors::CoordinatorProcess`.
  void request_stop(const std::string& reason) { coordinator_->request_stop(reason); }
  actors::RunProgress progress() const { return coordinator_->progress(); }
  /// Where workers join, and how many it waits for.
  const std::string& address() const { return coordinator_->address(); }
  int64_t worker_count() const { return worker_count_; }

  /// It was resumed when nothing was left to do, which was said; nothing was started.
  bool is_done() const { return is_done_; }
  const RunFolder& folder() const { return folder_; }
  /// The folder was made for this run.
  bool is_new() const { return is_new_; }
  const plans::JobSpec& job() const { return job_.spec; }
  bool was_interrupted() const { return stop_asked_.has_value(); }
  /// Valid after `finish`.
  const actors::RunResult& result() const { return result_; }

 private:
  using Instant = std::chrono::steady_clock::time_point;

  explicit TrainRun(const TrainOptions& options);
  absl::Status load();
  absl::Status load_resumed();
  absl::Status look_at_resumed(const std::string& checkpoint);
  absl::Status prepare();
  absl::Status import_from(const gpu::WeightsFolder& weights, actors::StartPoint& start);
  /// Puts the whole scenario in the place of its name or file, so that every worker, and who
  /// reads config.resolved.toml, knows the same.
  absl::Status resolve_scenario(int64_t workers);
  absl::Status open_reporter();
  /// Fills in what does not depend on the plan and the start, and starts coordinator and workers.
  absl::Status start_processes(actors::CoordinatorOptions coordinating);
  /// Puts what a resumed run has changed into its log.
  void tell_changes();
  absl::Status check_changed_data() const;
  void say(const std::string& line) const;
  ChaosHands chaos_hands();
  void check_children(const actors::RunProgress& progress);

  // In the order in which they are made.
  const TrainOptions options_;
  LoadedJob job_;
  std::vector<ChangedKey> changes_;  // Of a resumed run, against what it was.
  RunFolder folder_;
  std::string run_id_;  // The folder's.
  std::string load_path_;
  bool is_new_ = false;  // We have made the folder.
  bool is_done_ = false;
  plans::ChaosScript chaos_script_;
  int log_descriptor_ = STDOUT_FILENO;  // Ours if it is another one.
  std::unique_ptr<RunReporter> reporter_;
  std::unique_ptr<actors::RunObserver> both_observers_;
  std::unique_ptr<actors::CoordinatorProcess> coordinator_;
  std::shared_ptr<WorkerChildren> children_;
  size_t faults_seen_ = 0;  // How many of their faults were looked at.
  int64_t worker_count_ = 0;
  std::unique_ptr<ChaosRunner> chaos_;

  Instant started_;
  std::optional<Instant> stop_asked_;
  std::optional<Instant> ended_;     // When that was seen.
  size_t most_links_ = 0;            // Workers that were here at once.
  std::optional<Instant> deserted_;  // Since then none is, or too few to begin are.
  Instant child_died_;
  absl::Status child_fault_;
  actors::RunResult result_;
};

}  // namespace skein::cli
