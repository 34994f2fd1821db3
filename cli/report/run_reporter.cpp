#include "cli/report/run_reporter.hpp"

#include <time.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/config/cluster_file.hpp"
#include "cli/config/json_text.hpp"
#include "cli/config/profile_file.hpp"
#include "cli/report/number_text.hpp"
#include "cli/report/plan_json.hpp"
#include "cli/report/run_report.hpp"
#include "gpu/files/durable_file.hpp"
#include "net/codec/bounds.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/base/upper_median.hpp"
#include "plans/plan/layout_plan.hpp"
#include "plans/plan/plan_ranks.hpp"
#include "plans/schedule/schedule.hpp"

namespace skein::cli {
namespace {

uint64_t largest(const std::vector<uint64_t>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

/// Weight of the newest step in the moving average of the throughput (llm.c's).
constexpr double kRateDecay = 0.95;
/// An event's text on the terminal is cut to this.
constexpr size_t kEventBytesMax = 8192;

/// Events that changed nothing; reasons of none are left out.
Json by_reason(const plans::DropCounts& dropped) {
  Json json = Json::object();
  for (size_t i = 0; i < plans::kDropReasons; ++i) {
    const auto why = static_cast<plans::DropReason>(i);
    if (dropped.of(why) > 0) json[plans::to_text(why)] = dropped.of(why);
  }
  return json;
}

/// Where the wall time went, in seconds.
Json goodput_json(const plans::Goodput& goodput) {
  return {{"ratio", goodput.ratio()},   {"useful", goodput.useful_s},
          {"redone", goodput.redone_s}, {"other_jobs", goodput.other_jobs_s},
          {"moving", goodput.moving_s}, {"waiting", goodput.waiting_s}};
}

std::string goodput_line(const plans::Goodput& goodput) {
  const std::string other_jobs =
      goodput.other_jobs_s > 0 ? absl::StrFormat("other jobs %.1f s, ", goodput.other_jobs_s) : "";
  return absl::StrFormat(
      "  goodput      %.1f%%: useful %.1f s, redone %.1f s, %smoving state %.1f s, waiting %.1f s",
      goodput.ratio() * 100, goodput.useful_s, goodput.redone_s, other_jobs, goodput.moving_s,
      goodput.waiting_s);
}

uint32_t worker_of(const actors::EventReport& report) {
  return static_cast<uint32_t>(std::stoul(report.fields.at("worker")));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunReporter>> RunReporter::create(Options options) {
  std::unique_ptr<RunReporter> reporter(new RunReporter(std::move(options)));  // Private.
  // Appending: a resumed run goes on in the same files.
  const RunFolder& folder = reporter->options_.folder;
  SKEIN_RETURN_IF_ERROR(reporter->metrics_.open(folder.file("metrics.jsonl")));
  SKEIN_RETURN_IF_ERROR(reporter->events_.open(folder.file("events.jsonl")));
  reporter->has_commits_ = reporter->metrics_.bytes() > 0;
  return reporter;
}

RunReporter::RunReporter(Options options)
    : options_(std::move(options)),
      printer_(options_.out_descriptor, options_.out_name),
      trace_(options_.folder.file("traces/trace.json")),
      start_(std::chrono::steady_clock::now()) {}

RunReporter::~RunReporter() = default;

void RunReporter::line(const std::string& text) {
  if (options_.label.empty()) {
    printer_.print(text);
  } else if (options_.format == LogFormat::kText) {
    printer_.print(text.empty() ? text : options_.label + text);
  } else {  // An object, which says whose it is first.
    printer_.print(absl::StrCat("{\"job\":", json_text(options_.job.name), ",", text.substr(1)));
  }
  // What is simulated is there to be read; errors are told at the end.
  if (options_.simulated) printer_.finish(actors::LinePrinter::kUntilRead).IgnoreError();
}

void RunReporter::event_line(const std::string& text) {
  if (options_.quiet || options_.format == LogFormat::kJson) return;
  const std::string shown = net::fit_text(text, kEventBytesMax);
  line(options_.colours ? absl::StrCat("\033[36mevent\033[0m  ", shown)
                        : absl::StrCat("event  ", shown));
}

std::string RunReporter::now_text() const {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  std::array<char, 32> text{};
  strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  return absl::StrFormat("%s.%03dZ", text.data(), now.tv_nsec / 1'000'000);
}

void RunReporter::on_profiles(const plans::ReportProfiles& report) {
  profiles_ = report;
  const RunFolder& folder = options_.folder;
  absl::Status status = save_profile(folder.file("profile.json"), report.profile);
  status.Update(gpu::write_durably(folder.file("cluster.toml"), to_toml(report.cluster)));
  if (!status.ok()) event_line(std::string(status.message()));
  for (const plans::ClusterDevice& device : report.cluster.devices) {
    event_line(absl::StrFormat("measured %s: speed %.2f", device.name, device.speed));
  }
}

void RunReporter::on_plan(const plans::Plan& plan, double predicted_step_us) {
  plan_ = plan;
  if (steps_ > 0) history_.mark({elapsed_seconds(), absl::StrCat("plan ", plan.generation), false});
  predicted_step_us_ = predicted_step_us;
  step_seconds_ = control_seconds_ = 0;  // The summary speaks of the last plan.
  timed_amount_ = 0;
  step_times_.clear();
  busy_seconds_.assign(plan.stages.size(), 0);
  wait_seconds_.assign(plan.stages.size(), 0);
  stash_peak_.assign(plan.stages.size(), 0);
  const RunFolder& folder = options_.folder;
  absl::Status status = gpu::write_durably(folder.file("plan.txt"), plans::to_text(plan));
  status.Update(gpu::write_durably(folder.file("plan.json"), json_text(plan_json(plan), 2) + "\n"));
  if (!status.ok()) event_line(std::string(status.message()));
}

double RunReporter::elapsed_seconds() const {
  if (options_.simulated) return all_seconds_;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

double RunReporter::bubble(const std::vector<double>& stage_busy_seconds,
                           const std::vector<double>& stage_wait_seconds, double seconds) const {
  if (!plan_ || plan_->stages.size() != stage_busy_seconds.size() || seconds <= 0) return 0;
  double busy = 0;
  for (size_t s = 0; s < stage_busy_seconds.size(); ++s) {
    // The mean of its replicas, each of which is a device's.
    const double wait = s < stage_wait_seconds.size() ? stage_wait_seconds[s] : 0;
    busy += (stage_busy_seconds[s] + wait) * static_cast<double>(plan_->stages[s].replicas.size());
  }
  return std::max(0.0, 1 - busy / (seconds * static_cast<double>(plans::worker_count(*plan_))));
}

double RunReporter::ideal_bubble() const {
  const auto stages = static_cast<double>(plans::pipeline_length(*plan_));
  return (stages - 1) / (static_cast<double>(plan_->microbatch_count) + stages - 1);
}

/// Pipeline replicas under local updates commit several steps at once.
uint64_t RunReporter::steps_of(const actors::StepReport& report) const {
  const auto batch = static_cast<uint64_t>(options_.job.training.global_batch_size);
  return std::max<uint64_t>(1, report.samples / batch);
}

std::string RunReporter::progress_line(const actors::StepReport& report) const {
  const int64_t total = options_.job.training.steps;
  const double rate = rate_weight_ > 0 ? rate_ / rate_weight_ : 0;
  const double left = static_cast<double>(total) - static_cast<double>(report.step);
  const double per_step =
      static_cast<double>(report.tokens) / static_cast<double>(steps_of(report));
  const std::string eta = rate > 0 ? duration_text(left * per_step / rate) : "-";
  const std::string training =
      options_.simulated ? std::string()
                         : absl::StrFormat("loss %.4f | gnorm %.3f | lr %.2e | ", report.loss,
                                           report.gradient_norm, report.learning_rate);
  return absl::StrFormat(
      "step %5d/%d | %s%.0f ms | %s %s/s | bubble %.1f%% | %d/%d workers%s", report.step, total,
      training, report.step_seconds * 1e3, rate_text(rate),
      options_.counts_samples ? "samples" : "tok",
      bubble(report.stage_busy_seconds, report.stage_device_wait_seconds, report.step_seconds) *
          100,
      report.workers_active, report.workers_total, options_.simulated ? "" : " | eta " + eta);
}

std::string RunReporter::prediction_line() const {
  const double measured_us = plans::upper_median(step_times_) * 1e6;
  if (predicted_step_us_ <= 0) {
    return absl::StrFormat("  step time    %.2f ms (median)", measured_us / 1e3);
  }
  return absl::StrFormat("  step time    %.2f ms (median), predicted %.2f ms (%+.1f%%)",
                         measured_us / 1e3, predicted_step_us_ / 1e3,
                         (predicted_step_us_ / measured_us - 1) * 100);
}

void RunReporter::on_step(const actors::StepReport& report) {
  const uint64_t count = steps_of(report);
  if (!std::exchange(has_commits_, true) && !options_.simulated) {
    const absl::Status status = point_latest_at(options_.folder);
    if (!status.ok()) event_line(std::string(status.message()));
  }
  ++steps_;
  const uint64_t amount = options_.counts_samples ? report.samples : report.tokens;
  amount_ += amount;
  last_loss_ = report.loss;
  history_.add({elapsed_seconds(), static_cast<double>(report.samples), report.loss});
  all_seconds_ += report.step_seconds;
  // The first step warms up caches and connections.
  if ((steps_ > 1 || options_.simulated) && report.step_seconds > 0) {
    rate_ =
        kRateDecay * rate_ + (1 - kRateDecay) * static_cast<double>(amount) / report.step_seconds;
    rate_weight_ = kRateDecay * rate_weight_ + (1 - kRateDecay);
    step_seconds_ += report.step_seconds;
    timed_amount_ += amount;
    step_times_.push_back(report.step_seconds / static_cast<double>(count));
    control_seconds_ += report.control_seconds;
    for (size_t s = 0; s < busy_seconds_.size(); ++s) {
      busy_seconds_[s] += report.stage_busy_seconds[s];
    }
    for (size_t s = 0; s < report.stage_device_wait_seconds.size(); ++s) {
      wait_seconds_[s] += report.stage_device_wait_seconds[s];
    }
  }
  for (size_t s = 0; s < stash_peak_.size(); ++s) {
    stash_peak_[s] = std::max(stash_peak_[s], report.stage_stash_peak[s]);
  }
  Json json = {{"kind", "step"},
               {"time", now_text()},
               {"step", report.step},
               {"loss", report.loss},
               {"grad_norm", report.gradient_norm},
               {"lr", report.learning_rate},
               {"step_seconds", report.step_seconds},
               {"control_seconds", report.control_seconds},
               {"tokens", report.tokens},
               {"samples", report.samples},
               {"bubble", bubble(report.stage_busy_seconds, report.stage_device_wait_seconds,
                                 report.step_seconds)},
               {"stage_busy_seconds", report.stage_busy_seconds},
               {"stage_stash_peak", report.stage_stash_peak},
               {"version", report.step},
               {"staleness", largest(report.stage_staleness)},
               {"workers", report.workers_active}};
  if (!report.pipeline_samples.empty()) {
    json["steps"] = count;
    json["pipeline_samples"] = report.pipeline_samples;
    json["stage_staleness"] = report.stage_staleness;
    json["stage_weight_delay"] = report.stage_weight_delay;
  }
  const std::vector<double>& waits = report.stage_device_wait_seconds;
  if (std::any_of(waits.begin(), waits.end(), [](double each) { return each > 0; })) {
    json["stage_device_wait_seconds"] = waits;
  }
  if (report.dropped.total() > 0) json["dropped_messages"] = by_reason(report.dropped);
  if (report.dropped_by_workers.total() > 0) {
    json["dropped_by_workers"] = by_reason(report.dropped_by_workers);
  }
  if (report.snapshot_waits > 0) json["snapshot_waits"] = report.snapshot_waits;
  if (options_.simulated) json["simulated"] = true;
  if (options_.counts_samples) json.erase("tokens");
  goodput_ = report.goodput;
  if (!options_.simulated) json["goodput"] = goodput_json(goodput_);
  metrics_.append(json_text(json));
  if (options_.quiet) return;
  if (options_.format == LogFormat::kJson) return line(json_text(json));
  const auto log_freq = static_cast<uint64_t>(options_.job.metrics.log_freq);
  const uint64_t before = report.step - std::min(count, report.step);
  const bool is_due = report.step / log_freq != before / log_freq;
  const bool is_edge =
      steps_ == 1 || report.step == static_cast<uint64_t>(options_.job.training.steps);
  if (is_due || is_edge) line(progress_line(report));
}

void RunReporter::on_validation(const actors::ValidationReport& report) {
  validation_loss_ = report.loss;
  const Json json = {{"kind", "validation"},    {"time", now_text()},
                     {"step", report.step},     {"loss", report.loss},
                     {"tokens", report.tokens}, {"seconds", report.seconds}};
  metrics_.append(json_text(json));
  if (options_.format == LogFormat::kJson && !options_.quiet) line(json_text(json));
  event_line(absl::StrFormat("validation at step %d: loss %.4f over %s tokens", report.step,
                             report.loss, with_commas(report.tokens)));
}

void RunReporter::on_checkpoint(const actors::CheckpointReport& report) {
  actors::EventReport event;
  event.name = "checkpoint.saved";
  event.text = absl::StrFormat("checkpoint of step %d saved: %s (%.1f MB)", report.step,
                               report.path, static_cast<double>(report.bytes) * 1e-6);
  event.fields = {{"step", absl::StrCat(report.step)},
                  {"path", report.path},
                  {"bytes", absl::StrCat(report.bytes)}};
  on_event(event);
}

void RunReporter::on_timings(const actors::TimingsReport& report) { trace_.add(report); }

void RunReporter::on_event(const actors::EventReport& report) {
  if (report.name == "worker.device") {
    trace_.set_device(worker_of(report), report.fields.at("device"));
  } else if (report.name == "worker.joined" && report.fields.contains("pid")) {
    trace_.set_process(worker_of(report), absl::StrCat("pid ", report.fields.at("pid"), " on ",
                                                       report.fields.at("host")));
  }
  mark_event(report);
  Json json = {{"time", now_text()}, {"event", report.name}, {"text", report.text}};
  for (const auto& [name, value] : report.fields) json[name] = value;
  events_.append(json_text(json));
  if (options_.format == LogFormat::kJson && !options_.quiet) line(json_text(json));
  event_line(report.text);
}

/// Comings and goings, once there is something that they change.
void RunReporter::mark_event(const actors::EventReport& report) {
  const bool has_failed = report.name == "worker.failed";
  const bool is_loss = has_failed || report.name == "worker.lost";
  const auto worker = report.fields.find("worker");
  if (steps_ == 0 || worker == report.fields.end()) return;
  if (!is_loss && report.name != "worker.joined") return;
  history_.mark({elapsed_seconds(),
                 absl::StrCat("w", worker->second,
                              has_failed ? " failed"
                              : is_loss  ? " lost"
                                         : " joined"),
                 is_loss});
}

void RunReporter::write_pages(const std::string& history) {
  absl::Status status;
  if (!history.empty()) {
    status.Update(gpu::write_durably(options_.folder.file("history.svg"), history));
  }
  if (!trace_.empty()) {
    status.Update(trace_.write());
    if (plan_ && !options_.simulated) {
      status.Update(write_run_report(
          {options_.job, *plan_, profiles_, trace_.reports(), history, other_jobs_share()},
          options_.folder.file("report.html")));
    }
  }
  if (!status.ok()) event_line(std::string(status.message()));
}

/// The part of the time that the stage waited which waited longest.
double RunReporter::other_jobs_share() const {
  if (wait_seconds_.empty() || step_seconds_ <= 0) return 0;
  return *std::max_element(wait_seconds_.begin(), wait_seconds_.end()) / step_seconds_;
}

/// Which of its files the run has: one that could not begin has no plan.
std::string RunReporter::files_text() const {
  std::vector<std::string> files;
  for (const std::string name : {"metrics.jsonl", "events.jsonl", "plan.txt", "history.svg",
                                 "report.html", "traces/trace.json"}) {
    std::error_code error;
    // Who simulates writes the report after the summary.
    const bool will_be = options_.simulated && !trace_.empty() && name == "report.html";
    if (will_be || std::filesystem::exists(options_.folder.file(name), error)) {
      files.push_back(name);
    }
  }
  if (!files.empty() && files.back().starts_with("traces")) files.back() += " for ui.perfetto.dev";
  return absl::StrJoin(files, ", ");
}

absl::Status RunReporter::summarise(const actors::RunResult& result) {
  history_.title = absl::StrCat(options_.job.name, ": the run over time");
  write_pages(options_.simulated ? "" : run_history_svg(history_));
  const double wall_seconds = elapsed_seconds();
  // A reader that is late is first given what waits: then nothing is left out of the summary.
  const double patience =
      options_.simulated ? actors::LinePrinter::kUntilRead : actors::LinePrinter::kAtEnd;
  printer_.finish(patience).IgnoreError();
  if (options_.format == LogFormat::kJson) {
    line(summary_json(result, wall_seconds));
  } else {
    print_summary(result, wall_seconds);
  }
  return printer_.finish(patience);
}

/// In tokens, or samples, per second.
double RunReporter::mean_rate() const {
  return step_seconds_ > 0 ? static_cast<double>(timed_amount_) / step_seconds_ : 0;
}

double RunReporter::control_share() const {
  return step_seconds_ > 0 ? control_seconds_ / step_seconds_ : 0;
}

std::string RunReporter::summary_json(const actors::RunResult& result, double wall_seconds) const {
  Json json = {{"kind", "summary"},
               {"status", result.status.ok() ? "ok" : std::string(result.status.message())},
               {"steps_done", result.steps_done},
               {"loss", last_loss_},
               {options_.counts_samples ? "samples" : "tokens", amount_},
               {"wall_seconds", wall_seconds},
               {options_.counts_samples ? "samples_per_second" : "tokens_per_second", mean_rate()},
               {"control_share", control_share()},
               {"checkpoint", result.checkpoint_path},
               {"folder", options_.folder.path}};
  if (validation_loss_) json["validation_loss"] = *validation_loss_;
  if (!options_.simulated) json["goodput"] = goodput_json(goodput_);
  return json_text(json);
}

void RunReporter::print_summary(const actors::RunResult& result, double wall_seconds) {
  line("");
  const char* end = !result.status.ok()    ? "failed"
                    : result.stopped_early ? "stopped"
                    : options_.simulated   ? "simulated: done"
                                           : "done";
  const double rate = mean_rate();
  const char* unit = options_.counts_samples ? "samples" : "tok";
  line(absl::StrFormat("%s after %d of %d steps, %s %s in %s%s", end, result.steps_done,
                       options_.job.training.steps, with_commas(amount_),
                       options_.counts_samples ? "samples" : "tokens", duration_text(wall_seconds),
                       rate > 0 ? absl::StrCat(" (", rate_text(rate), " ", unit, "/s)") : ""));
  if (steps_ > 0 && !options_.simulated) {
    line(absl::StrFormat("  loss         %.4f%s", last_loss_,
                         validation_loss_ ? absl::StrFormat(", validation %.4f", *validation_loss_)
                                          : std::string()));
  }
  if (plan_ && step_seconds_ > 0) {
    std::vector<std::string> stages;
    for (size_t s = 0; s < busy_seconds_.size(); ++s) {
      const int32_t promised = plans::stash_peak_of(*plan_, static_cast<int32_t>(s));
      stages.push_back(absl::StrFormat("stage %d busy %.0f%%, stash %d of %d", s,
                                       busy_seconds_[s] / step_seconds_ * 100, stash_peak_[s],
                                       promised));
    }
    const double measured = bubble(busy_seconds_, wait_seconds_, step_seconds_);
    line(absl::StrFormat("  bubble       %.1f%% %s, %.1f%% ideal for equal stages", measured * 100,
                         options_.simulated ? "simulated" : "measured", ideal_bubble() * 100));
    line(prediction_line());
    line(absl::StrCat("  stages       ", absl::StrJoin(stages, "; ")));
    if (const double share = other_jobs_share(); share > 0) {
      line(
          absl::StrFormat("  other jobs   had a device for %.1f%% of the time, while work of this "
                          "one waited",
                          share * 100));
    }
    if (!options_.simulated) {
      line(absl::StrFormat("  control      %.2f%% of the step time", control_share() * 100));
    }
  }
  if (!options_.simulated && goodput_.total_s() > 0) line(goodput_line(goodput_));
  if (!result.checkpoint_path.empty()) line("  checkpoint   " + result.checkpoint_path);
  line(absl::StrCat("  run          ", options_.folder.path, " (", files_text(), ")"));
  if (!result.checkpoint_path.empty()) {
    const bool is_complete = result.status.ok() && !result.stopped_early;
    line(absl::StrCat("  next         skein ", is_complete ? "generate " : "train --resume ",
                      options_.folder.path));
  }
}

}  // namespace skein::cli
