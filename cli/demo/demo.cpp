#include "cli/demo/demo.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "actors/printing/nonblocking_stream.hpp"
#include "cli/demo/demo_front.hpp"
#include "cli/demo/demo_job.hpp"
#include "cli/demo/demo_observer.hpp"
#include "cli/demo/demo_script.hpp"
#include "cli/report/live_terminal.hpp"
#include "cli/run/exit_codes.hpp"
#include "cli/run/train_run.hpp"
#include "cli/verbs/generate.hpp"

namespace skein::cli {
namespace {

constexpr const char* kPrompt = "And the LORD said";
constexpr int64_t kSampleTokens = 240;
constexpr const char* kLogName = "logs/progress.log";

/// Passes text to standard output until a signal comes.
class UntilSignal final : public std::streambuf {
 public:
  explicit UntilSignal(Signals& signals) : signals_(signals) {}
  bool was_stopped() const { return stopped_; }

 protected:
  int overflow(int byte) override {
    const char one = static_cast<char>(byte);
    return xsputn(&one, 1) == 1 ? byte : traits_type::eof();
  }
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    std::string_view left(text, static_cast<size_t>(count));
    while (!left.empty()) {
      stopped_ = stopped_ || signals_.wait(0) != 0;
      if (stopped_) return 0;
      if (!stream_.wait(kLookMs)) continue;
      const ssize_t written = stream_.write_some(left);
      if (written < 0) return 0;
      if (written == 0) poll(nullptr, 0, kLookMs);  // A terminal may say that it has room.
      left.remove_prefix(static_cast<size_t>(written));
    }
    return count;
  }

 private:
  static constexpr int kLookMs = 20;

  Signals& signals_;
  actors::NonblockingStream stream_{STDOUT_FILENO};
  bool stopped_ = false;
};

/// A worker in the middle of those that have work: the pipeline must close up. None if it would be
/// one of the last two.
std::optional<plans::WorkerId> victim(const DemoView& view) {
  std::vector<uint32_t> working;
  for (const DemoWorker& worker : view.workers) {
    if (worker.layers > 0 && !worker.is_lost) working.push_back(worker.number);
  }
  if (working.size() < 2) return std::nullopt;
  return plans::WorkerId{working[working.size() / 2]};
}

int64_t working_count(const DemoView& view) {
  int64_t count = 0;
  for (const DemoWorker& worker : view.workers) count += worker.layers > 0 && !worker.is_lost;
  return count;
}

uint32_t newest_worker(const DemoView& view) {
  uint32_t newest = 0;
  for (const DemoWorker& worker : view.workers) {
    if (worker.layers > 0) newest = std::max(newest, worker.number);
  }
  return newest;
}

/// The demo while its run lasts.
class DemoShow {
 public:
  DemoShow(TrainRun& run, DemoObserver& observer, double seconds)
      : run_(run), observer_(observer), script_(seconds), front_(make_demo_front()) {}

  TrainRun::State play(Signals& signals) {
    TrainRun::State state = TrainRun::State::kRuns;
    while (state == TrainRun::State::kRuns) {
      state = run_.poll(signals);
      const DemoView view = observer_.view();
      if (!run_.was_interrupted()) act(view);
      front_->show(view);
    }
    return state;
  }

  /// DeadlineExceeded if something did not come about in time.
  absl::Status verdict() const {
    if (script_.has_recovered() && script_.has_grown()) return absl::OkStatus();
    return absl::DeadlineExceededError(absl::StrCat(
        "the demo was over before training went on ",
        script_.has_recovered() ? "with the added worker" : "without the killed worker",
        "; give it more time with --seconds"));
  }

 private:
  void act(const DemoView& view) {
    const DemoAction fault_action =
        script_.next({view.seconds, view.generation, view.steps_of_plan, newest_worker(view)});
    if (fault_action == DemoAction::kKillWorker) kill_one(view);
    if (fault_action == DemoAction::kAddWorker) add_one();
    if (fault_action == DemoAction::kStop) run_.request_stop("the demo is over");
    constexpr int64_t kWorkersKept = 3;  // The script wants to kill one, too.
    if (front_->key() == 'k' && working_count(view) >= kWorkersKept && !script_.is_waiting()) {
      kill_one(view);
    }
  }

  void kill_one(const DemoView& view) {
    const std::optional<plans::WorkerId> worker = victim(view);
    if (!worker) return;
    observer_.on_kill(*worker);
    say_if_wrong(run_.kill_worker(*worker));
  }

  void add_one() {
    observer_.say("starting another worker process, which joins");
    say_if_wrong(run_.add_worker());
  }

  void say_if_wrong(const absl::Status& status) {
    if (!status.ok()) observer_.say(std::string(status.message()));
  }

  TrainRun& run_;
  DemoObserver& observer_;
  DemoScript script_;
  std::unique_ptr<DemoFront> front_;
};

TrainOptions train_options(const DemoOptions& options, DemoObserver& observer) {
  TrainOptions training;
  training.job_text = kDemoJob;
  training.overrides = options.overrides;
  training.workers = kDemoWorkers;
  training.log_name = kLogName;
  training.second_observer = &observer;
  training.say = [&observer](const std::string& line) { observer.say(line); };
  return training;
}

/// The only thing that the demo needs and may not have is its text.
absl::Status with_advice(const absl::Status& status) {
  if (!absl::IsNotFound(status)) return status;
  return {status.code(), absl::StrCat(std::string(status.message()),
                                      ", or give a text of your own: skein demo "
                                      "--data.dataset text --data.path FILE")};
}

/// The story again where the screen has gone, and what is left of it.
void print_story(const DemoView& view, std::ostream& out) {
  if (!LiveTerminal::is_possible()) return;  // Its lines are there.
  for (const DemoEvent& event : view.events) {
    out << clock_text(event.seconds) << "  " << event.text << "\n";
  }
}

void print_paths(const TrainRun& run, std::ostream& out) {
  const std::string folder = run.folder().path;
  out << absl::StrFormat(
      "\nThe run is in %s\n"
      "  report.html         the last recorded step, as measured and as planned\n"
      "  traces/trace.json   all recorded steps, for ui.perfetto.dev\n"
      "  metrics.jsonl       every step;  events.jsonl  every event;  %s\n"
      "  checkpoint/latest   a Hugging Face folder: GPT2LMHeadModel.from_pretrained(...)\n"
      "Next\n"
      "  skein generate %s --prompt \"In the beginning\"\n"
      "  skein train examples/quickstart.toml --workers 2\n",
      folder, kLogName, folder);
}

absl::Status print_sample(const TrainRun& run, std::ostream& out) {
  out << absl::StrFormat("\nWhat the model writes after %d steps of %d tokens:\n\n",
                         run.result().steps_done,
                         run.job().training.global_batch_size * run.job().training.seq_len);
  GenerateOptions generating;
  generating.checkpoint = run.folder().path;
  generating.prompt = kPrompt;
  generating.tokens = kSampleTokens;
  generating.sampling.temperature = 0.6;
  return generate(generating, out);
}

int end_demo(TrainRun& run, const DemoObserver& observer, const absl::Status& verdict,
             Signals& signals) {
  const int code = run.finish(signals);
  UntilSignal buffer(signals);
  std::ostream out(&buffer);
  print_story(observer.view(), out);
  if (run.was_interrupted() || !run.result().stopped_early) return code;
  const absl::Status sampled = print_sample(run, out);
  if (!sampled.ok()) return report_error(sampled);
  print_paths(run, out);
  if (buffer.was_stopped()) return kExitStopped;
  return verdict.ok() ? kExitDone : report_error(verdict);
}

}  // namespace

int demo(const DemoOptions& options, Signals& signals) {
  DemoOptions given = options;
  // First, so that --job.dump_folder still means what it says.
  given.overrides.insert(given.overrides.begin(), {"job.dump_folder", options.keep});
  const auto job = load_job_text(kDemoJob, "the demo's job", given.overrides);
  if (!job.ok()) return report_error(job.status());
  DemoObserver observer(job->spec, options.seconds);
  auto run = TrainRun::start(train_options(given, observer));
  if (!run.ok()) return report_error(with_advice(run.status()));
  TrainRun::State state = TrainRun::State::kRuns;
  absl::Status verdict;
  {
    DemoShow show(**run, observer, options.seconds);  // The terminal is as it was behind this.
    state = show.play(signals);
    verdict = show.verdict();
  }
  if (state == TrainRun::State::kKilled) {
    (*run)->kill_workers();
    _exit(kExitKilled);
  }
  return end_demo(**run, observer, verdict, signals);
}

}  // namespace skein::cli
