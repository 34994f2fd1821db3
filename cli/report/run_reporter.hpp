#pragma once

#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/coordinator/coordinator_process.hpp"
#include "actors/coordinator/run_observer.hpp"
#include "actors/printing/line_printer.hpp"
#include "cli/pictures/run_history.hpp"
#include "cli/report/line_file.hpp"
#include "cli/report/trace_writer.hpp"
#include "cli/run/run_folder.hpp"
#include "plans/job/job_spec.hpp"

namespace skein::cli {

enum class LogFormat { kText, kJson };

/// Tells people and files how a run goes: progress and event lines on a stream, metrics.jsonl,
/// events.jsonl, plan.txt, history.svg and the trace in the run folder. A run waits for nobody who
/// reads the stream (`LinePrinter`); a simulated one does. Calls come from one thread at a time.
class RunReporter final : public actors::RunObserver {
 public:
  struct Options {
    plans::JobSpec job;
    RunFolder folder;
    LogFormat format = LogFormat::kText;
    bool quiet = false;    // Only the summary.
    std::string label;     // Begins each line of text.
    bool colours = false;  // The stream is a terminal.
    /// Nothing is trained: there is no loss, the first step warms up nothing, and time is that of
    /// the steps.
    bool simulated = false;
    /// The model is not one of tokens, or nobody knows: rates are of samples.
    bool counts_samples = false;
    int out_descriptor = STDOUT_FILENO;  // Open as long as the reporter lives.
    std::string out_name = "standard output";
  };
  /// Unavailable if a file of the run folder cannot be opened.
  static absl::StatusOr<std::unique_ptr<RunReporter>> create(Options options);
  ~RunReporter() override;

  void on_plan(const plans::Plan& plan, double predicted_step_us) override;
  void on_profiles(const plans::ReportProfiles& report) override;
  void on_step(const actors::StepReport& report) override;
  void on_validation(const actors::ValidationReport& report) override;
  void on_checkpoint(const actors::CheckpointReport& report) override;
  void on_timings(const actors::TimingsReport& report) override;
  void on_event(const actors::EventReport& report) override;

  /// The closing summary. Call when no other call follows. Unavailable if the stream could not take
  /// a line.
  absl::Status summarise(const actors::RunResult& result);
  /// For a run that ends without a summary: lines that wait are for whoever still reads.
  void finish() { printer_.finish(actors::LinePrinter::kAtEnd).IgnoreError(); }

 private:
  explicit RunReporter(Options options);

  void line(const std::string& text);
  void print_summary(const actors::RunResult& result, double wall_seconds);
  std::string summary_json(const actors::RunResult& result, double wall_seconds) const;
  void event_line(const std::string& text);
  uint64_t steps_of(const actors::StepReport& report) const;
  std::string progress_line(const actors::StepReport& report) const;
  /// Measured against predicted; there is at least one step after the first.
  std::string prediction_line() const;
  void mark_event(const actors::EventReport& report);
  std::string files_text() const;
  double other_jobs_share() const;
  void write_pages(const std::string& history);
  /// The share of these seconds in which the plan's devices had nothing to do, and were not with
  /// other jobs, as the simulator counts it; 0 without a plan.
  double bubble(const std::vector<double>& stage_busy_seconds,
                const std::vector<double>& stage_wait_seconds, double seconds) const;
  double ideal_bubble() const;
  std::string now_text() const;
  double elapsed_seconds() const;
  double mean_rate() const;
  double control_share() const;

  Options options_;
  actors::LinePrinter printer_;
  LineFile metrics_;
  LineFile events_;
  TraceWriter trace_;
  std::optional<plans::Plan> plan_;
  std::optional<plans::ReportProfiles> profiles_;
  std::chrono::steady_clock::time_point start_;

  // What the progress line and the summary are made of.
  bool has_commits_ = false;  // The run has, of this life or one before.
  uint64_t steps_ = 0;
  uint64_t amount_ = 0;     // Tokens, or samples.
  double rate_ = 0;         // Moving average of tokens per second, before bias correction.
  double rate_weight_ = 0;  // Its bias correction.
  plans::Goodput goodput_;
  uint64_t timed_amount_ = 0;  // Under the plan in force, like what follows.
  double step_seconds_ = 0;    // All steps that count for throughput.
  double all_seconds_ = 0;
  std::vector<double> step_times_;  // The times of the same steps, in seconds.
  double predicted_step_us_ = 0;    // 0: nobody predicted it.
  double control_seconds_ = 0;
  std::vector<double> busy_seconds_;
  std::vector<double> wait_seconds_;  // The devices were with other jobs.
  std::vector<uint32_t> stash_peak_;
  RunHistory history_;
  double last_loss_ = 0;
  std::optional<double> validation_loss_;
};

}  // namespace skein::cli
