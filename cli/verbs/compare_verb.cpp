#include "cli/verbs/compare_verb.hpp"

#include <signal.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cli/compare/experiment.hpp"
#include "cli/compare/page.hpp"
#include "cli/compare/results.hpp"
#include "cli/compare/train_child.hpp"
#include "cli/compare/words.hpp"
#include "cli/config/json_text.hpp"
#include "cli/config/text_file.hpp"
#include "cli/report/number_text.hpp"
#include "cli/run/exit_codes.hpp"
#include "cli/version.hpp"
#include "gpu/files/durable_file.hpp"
#include "plans/base/rng.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

namespace fs = std::filesystem;
constexpr double kPollSeconds = 0.05;
/// A run of a long job has a line for every step.
constexpr size_t kMetricsBytesMax = size_t{1} << 30;

/// One comparison. Used by one thread.
class Comparison {
 public:
  Comparison(Experiment experiment, Signals& signals)
      : experiment_(std::move(experiment)), signals_(signals), runs_(runs_of(experiment_)) {}

  /// Cancelled if it was told to stop.
  absl::Status make_runs(bool fresh);
  absl::Status write_results();
  size_t failed() const { return failed_; }

 private:
  std::string path_of(const ExperimentRun& run) const {
    return absl::StrCat(experiment_.folder, "/", folder_of(experiment_, run));
  }
  /// Changes with all that makes a run what it is.
  absl::StatusOr<std::string> fingerprint(const ExperimentRun& run) const;
  bool is_done(const ExperimentRun& run, const std::string& fingerprint) const;
  absl::Status make(const ExperimentRun& run, const std::string& fingerprint);
  absl::StatusOr<int> wait_for(TrainChild& child);
  void note(size_t index, const ExperimentRun& run, bool is_kept, double seconds);
  RunOutcome look_at(const ExperimentRun& run) const;

  const Experiment experiment_;
  Signals& signals_;
  const std::vector<ExperimentRun> runs_;
  std::vector<RunOutcome> outcomes_;
  size_t failed_ = 0;
  double seconds_ = 0;  // Of the runs that were made just now ...
  size_t made_ = 0;     // ... and how many.
};

std::string last_line(const std::string& path) {
  const auto text = read_text_file(path, "log");
  std::string last;
  if (!text.ok()) return last;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(*text, '\n'))) {
    if (!absl::StripAsciiWhitespace(line).empty()) last = line;
  }
  constexpr size_t kCharsMax = 300;
  return last.substr(0, kCharsMax);
}

absl::StatusOr<std::string> Comparison::fingerprint(const ExperimentRun& run) const {
  SKEIN_ASSIGN_OR_RETURN(LoadedJob job, load_job(experiment_.base, keys_of(experiment_, run)));
  job.spec.name = job.spec.dump_folder = "";
  const std::string text =
      absl::StrCat(kVersion, "\n", experiment_.workers, "\n", to_toml(job.spec, nullptr));
  return absl::StrFormat("%016x", plans::random_stream(text.data(), text.size()));
}

bool Comparison::is_done(const ExperimentRun& run, const std::string& fingerprint) const {
  const auto text = read_text_file(path_of(run) + "/done.json", "mark of a run");
  if (!text.ok()) return false;
  const Json mark = parse_json(*text);
  return text_at(mark, "fingerprint") == fingerprint;
}

absl::StatusOr<int> Comparison::wait_for(TrainChild& child) {
  bool stops = false;
  while (true) {
    if (const auto code = child.poll()) {
      if (stops) return absl::CancelledError("stopped by a signal");
      return *code;
    }
    if (signals_.wait(kPollSeconds) == 0) continue;
    child.signal(stops ? SIGKILL : SIGTERM);
    if (!stops) std::fprintf(stderr, "stopping the run (again to end at once)\n");
    stops = true;
  }
}

/// The code of a run that failed is left for `look_at` in its folder.
absl::Status Comparison::make(const ExperimentRun& run, const std::string& fingerprint) {
  const std::string path = path_of(run);
  std::error_code error;
  fs::remove_all(path, error);
  fs::create_directories(path, error);
  if (error) {
    return absl::UnavailableError(absl::StrCat("cannot make ", path, ": ", error.message()));
  }
  std::vector<std::string> words = {experiment_.base,
                                    "--workers",
                                    absl::StrCat(experiment_.workers),
                                    "--quiet",
                                    "--log-format",
                                    "json",
                                    "--job.name=run",
                                    absl::StrCat("--job.dump_folder=", path)};
  for (const auto& [key, value] : keys_of(experiment_, run)) {
    words.push_back(absl::StrCat("--", key, "=", value));
  }
  SKEIN_ASSIGN_OR_RETURN(const auto child, TrainChild::start(words, path + "/output.log"));
  SKEIN_ASSIGN_OR_RETURN(const int code, wait_for(*child));
  const Json mark = {{"exit_code", code}, {"fingerprint", code == kExitDone ? fingerprint : ""}};
  return gpu::write_durably(path + "/done.json", json_text(mark) + "\n");
}

RunOutcome Comparison::look_at(const ExperimentRun& run) const {
  RunOutcome outcome;
  outcome.run = run;
  outcome.folder = folder_of(experiment_, run);
  const std::string path = path_of(run);
  const auto text = read_text_file(path + "/done.json", "mark of a run");
  const Json mark = text.ok() ? parse_json(*text) : Json();
  const int code = number_at(mark, "exit_code", -1);
  if (code != kExitDone) {
    outcome.error =
        absl::StrCat("skein train ended with code ", code, ": ", last_line(path + "/output.log"));
    return outcome;
  }
  const std::string name = path + "/latest/metrics.jsonl";
  const auto metrics = read_text_file(name, "metrics", kMetricsBytesMax);
  auto curve =
      metrics.ok() ? parse_run_curve(*metrics, name) : absl::StatusOr<RunCurve>(metrics.status());
  if (!curve.ok()) outcome.error = std::string(curve.status().message());
  if (curve.ok()) outcome.curve = *std::move(curve);
  return outcome;
}

/// One line for a run that has ended.
void Comparison::note(size_t index, const ExperimentRun& run, bool is_kept, double seconds) {
  const RunOutcome& outcome = outcomes_.back();
  std::string result;
  if (!outcome.error.empty()) {
    result = "FAILED: " + outcome.error;
  } else if (const CurvePoint* point = outcome.curve.reached(experiment_.target)) {
    result = absl::StrFormat("loss %g after %.2f s", experiment_.target, point->seconds);
  } else {
    result = absl::StrFormat("loss %g not reached", experiment_.target);
    if (!outcome.curve.points.empty()) {
      absl::StrAppendFormat(&result, ", %.4f at the end", outcome.curve.points.back().loss);
    }
  }
  std::string time = is_kept ? "kept from before" : "took " + duration_text(seconds);
  if (made_ > 0 && index + 1 < runs_.size()) {
    const double left =
        seconds_ / static_cast<double>(made_) * static_cast<double>(runs_.size() - index - 1);
    absl::StrAppend(&time, ", ", duration_text(left), " left at most");
  }
  std::printf("[%zu/%zu] seed %lld, %s, %s: %s (%s)\n", index + 1, runs_.size(),
              static_cast<long long>(experiment_.seeds[run.seed]),
              experiment_.scenarios[run.scenario].c_str(),
              experiment_.variants[run.variant].name.c_str(), result.c_str(), time.c_str());
  std::fflush(stdout);
}

absl::Status Comparison::make_runs(bool fresh) {
  using Clock = std::chrono::steady_clock;
  for (size_t i = 0; i < runs_.size(); ++i) {
    SKEIN_ASSIGN_OR_RETURN(const std::string mark, fingerprint(runs_[i]));
    const bool is_kept = !fresh && is_done(runs_[i], mark);
    const auto start = Clock::now();
    if (!is_kept) SKEIN_RETURN_IF_ERROR(make(runs_[i], mark));
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (!is_kept) seconds_ += seconds;
    made_ += is_kept ? 0 : 1;
    outcomes_.push_back(look_at(runs_[i]));
    if (!outcomes_.back().error.empty()) ++failed_;
    note(i, runs_[i], is_kept, seconds);
  }
  return absl::OkStatus();
}

absl::Status Comparison::write_results() {
  const Results results = summarise(experiment_, std::move(outcomes_));
  const std::string csv = experiment_.folder + "/compare.csv";
  const std::string html = experiment_.folder + "/compare.html";
  SKEIN_RETURN_IF_ERROR(gpu::write_durably(csv, csv_text(results)));
  SKEIN_RETURN_IF_ERROR(gpu::write_durably(html, compare_html(results)));
  std::printf("%s\n%s\nwrote %s and %s\n", terminal_text(results).c_str(), verdict(results).c_str(),
              html.c_str(), csv.c_str());
  return absl::OkStatus();
}

}  // namespace

int compare(const CompareOptions& options, Signals& signals) {
  auto experiment = load_experiment(options.path);
  if (!experiment.ok()) return report_error(experiment.status());
  if (!options.folder.empty()) experiment->folder = options.folder;
  absl::Status status = add_keys(*experiment, options.overrides);
  if (status.ok()) status = check_jobs(*experiment);
  if (!status.ok()) return report_error(status);
  Comparison comparison(*experiment, signals);
  status = comparison.make_runs(options.fresh);
  if (absl::IsCancelled(status)) {
    std::fprintf(stderr, "skein: stopped; the same command goes on with the runs that are left\n");
    return kExitStopped;
  }
  status.Update(status.ok() ? comparison.write_results() : absl::OkStatus());
  if (!status.ok()) return report_error(status);
  return comparison.failed() == 0 ? kExitDone : kExitFault;
}

}  // namespace skein::cli
