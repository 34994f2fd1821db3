#include "cli/report/run_reporter.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_replace.h"
#include "plans/plan/plan_ranks.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::cli {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr uint64_t kSteps = 6;

/// Two stages of two workers, four micro-batches.
plans::Plan two_stages() {
  plans::Plan plan;
  plan.microbatch_count = 4;
  plan.microbatch_rows = 2;
  for (uint32_t s = 0; s < 2; ++s) {
    plans::StagePlan stage;
    stage.layers = {s * 4, s * 4 + 4};
    stage.replicas = {{{s}, {s + 1}, {0, 2}, static_cast<int32_t>(s)}};
    plan.stages.push_back(stage);
  }
  plan.groups = plans::reduction_groups(plan.stages, /*tied_head=*/true);
  EXPECT_TRUE(plans::set_schedule(plan, plans::ScheduleKind::k1F1B).ok());
  return plan;
}

/// The first step is slow, as first steps are.
actors::StepReport step_report(uint64_t step) {
  const double seconds = step == 1 ? 2.0 : 0.5 + 0.01 * static_cast<double>(step);
  actors::StepReport report;
  report.step = step;
  report.loss = 5.5 / static_cast<double>(step);
  report.gradient_norm = 1.25;
  report.learning_rate = 3e-4;
  report.step_seconds = seconds;
  report.tokens = 4096;
  report.samples = 8;
  report.workers_active = 2;
  report.workers_total = 3;
  report.control_seconds = 0.001;
  report.stage_busy_seconds = {seconds * 0.75, seconds * 0.5};
  report.stage_stash_peak = {2, 1};
  return report;
}

actors::EventReport joined(uint32_t worker) {
  const std::string number = std::to_string(worker);
  return {"worker.joined",
          "w" + number + " joined",
          {{"worker", number}, {"pid", "70" + number}, {"host", "a"}}};
}

class RunReporterTest : public testing::Test {
 protected:
  RunReporterTest() {
    options_.job.training.steps = kSteps;
    options_.job.metrics.log_freq = 2;
    std::filesystem::create_directory(folder_.file("job"));
    options_.folder = {folder_.file("job"), "job"};
    options_.out_descriptor = fileno(out_);
  }
  ~RunReporterTest() override { std::fclose(out_); }

  std::unique_ptr<RunReporter> reporter() {
    auto made = RunReporter::create(options_);
    EXPECT_TRUE(made.ok()) << made.status();
    return std::move(*made);
  }
  /// What a run of kSteps tells.
  void report_run(const actors::RunResult& result) {
    const auto to = reporter();
    to->on_event(joined(2));
    to->on_plan(two_stages(), options_.simulated ? 0 : 500e3);
    for (uint64_t step = 1; step <= kSteps; ++step) to->on_step(step_report(step));
    if (!options_.simulated) {
      to->on_validation({kSteps, 1.5, 1'234'567, 0.25});
      to->on_checkpoint({kSteps, "checkpoints/step-6", 2'500'000});
    }
    EXPECT_TRUE(to->summarise(result).ok());
  }
  actors::RunResult done() const {
    actors::RunResult result;
    result.steps_done = kSteps;
    if (!options_.simulated) result.checkpoint_path = "checkpoints/step-6";
    return result;
  }
  std::string file(const std::string& name) const {
    std::ifstream stream(options_.folder.file(name));
    std::ostringstream text;
    text << stream.rdbuf();
    return text.str();
  }
  std::vector<Json> lines_of(const std::string& text) const {
    std::vector<Json> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
      lines.push_back(Json::parse(line, nullptr, /*allow_exceptions=*/false));
      EXPECT_TRUE(lines.back().is_object()) << line;
    }
    return lines;
  }
  /// What was told, without what differs from run to run: the folder and the time on the clock.
  std::string told() {
    std::string text;
    std::rewind(out_);
    for (int c = std::fgetc(out_); c != EOF; c = std::fgetc(out_)) text += static_cast<char>(c);
    text = absl::StrReplaceAll(text, {{options_.folder.path, "FOLDER"}});
    if (options_.simulated) return text;
    return std::regex_replace(text, std::regex("tokens in [0-9.]+s"), "tokens in TIME");
  }

  tests::TemporaryFolder folder_;
  std::FILE* out_ = std::tmpfile();
  RunReporter::Options options_;
};

TEST_F(RunReporterTest, LooksAsItDid) {
  report_run(done());
  tests::expect_golden("cli/run_text.txt", told());
}

TEST_F(RunReporterTest, ASimulatedRunLooksAsItDid) {
  options_.simulated = true;
  report_run(done());
  tests::expect_golden("cli/run_simulated.txt", told());
}

TEST_F(RunReporterTest, TheFirstStepDoesNotCountForTheRate) {
  report_run(done());
  // 4096 tokens a step, steps 2..6 of 2.7 seconds together.
  EXPECT_THAT(told(), HasSubstr("24,576 tokens in TIME (7,585 tok/s)"));
  EXPECT_THAT(told(), HasSubstr("540.00 ms (median), predicted 500.00 ms (-7.4%)"));
}

TEST_F(RunReporterTest, StepsAreToldAtTheirFrequencyAndAtBothEnds) {
  options_.job.training.steps = 7;
  options_.job.metrics.log_freq = 3;
  const auto to = reporter();
  for (uint64_t step = 1; step <= 7; ++step) to->on_step(step_report(step));
  const std::string text = told();
  for (uint64_t step = 1; step <= 7; ++step) {
    const bool expected = step == 1 || step == 3 || step == 6 || step == 7;
    EXPECT_EQ(text.find("step     " + std::to_string(step) + "/7 ") != std::string::npos, expected)
        << step;
  }
}

TEST_F(RunReporterTest, MetricsHaveALineForEveryStep) {
  for (const bool quiet : {false, true}) {
    options_.quiet = quiet;
    report_run(done());
  }
  const std::vector<Json> lines = lines_of(file("metrics.jsonl"));
  ASSERT_EQ(lines.size(), 2 * (kSteps + 1)) << "a resumed run appends";
  for (size_t i = 0; i < lines.size(); ++i) {
    const uint64_t step = i % (kSteps + 1) + 1;
    if (step > kSteps) {
      EXPECT_EQ(lines[i].at("kind"), "validation");
      EXPECT_EQ(lines[i].at("loss"), 1.5);
      continue;
    }
    const actors::StepReport report = step_report(step);
    EXPECT_EQ(lines[i].at("kind"), "step");
    EXPECT_EQ(lines[i].at("step"), step);
    EXPECT_EQ(lines[i].at("loss"), report.loss);
    EXPECT_EQ(lines[i].at("tokens"), report.tokens);
    EXPECT_NEAR(lines[i].at("bubble"), 0.375, 1e-12);
    EXPECT_EQ(lines[i].at("stage_busy_seconds").size(), 2);
    EXPECT_FALSE(lines[i].contains("simulated"));
  }
}

TEST_F(RunReporterTest, TheBubbleIsThatOfTheDevices) {
  plans::Plan plan = two_stages();
  // Three devices compute the first stage and one the second.
  for (uint32_t n = 2; n < 4; ++n) plan.stages[0].replicas.push_back({{n}, {n + 1}, {0, 2}});
  const auto to = reporter();
  to->on_plan(plan, 0);
  to->on_step(step_report(1));
  // They are busy for 3/4 of the time, and it for a half.
  EXPECT_NEAR(lines_of(file("metrics.jsonl")).back().at("bubble"), 1 - 2.75 / 4, 1e-12);
}

TEST_F(RunReporterTest, WhatWasDroppedIsCountedByReason) {
  const auto to = reporter();
  to->on_step(step_report(1));
  actors::StepReport report = step_report(2);
  report.dropped.add(plans::DropReason::kStale);
  report.dropped_by_workers.add(plans::DropReason::kRepeated);
  report.dropped_by_workers.add(plans::DropReason::kRepeated);
  to->on_step(report);
  const std::vector<Json> lines = lines_of(file("metrics.jsonl"));
  ASSERT_EQ(lines.size(), 2);
  EXPECT_FALSE(lines[0].contains("dropped_messages"));
  EXPECT_EQ(lines[1].at("dropped_messages"), Json({{"stale", 1}}));
  EXPECT_EQ(lines[1].at("dropped_by_workers"), Json({{"repeated", 2}}));
}

TEST_F(RunReporterTest, EventsHaveTheirFields) {
  report_run(done());
  const std::vector<Json> lines = lines_of(file("events.jsonl"));
  ASSERT_EQ(lines.size(), 2);
  EXPECT_EQ(lines[0].at("event"), "worker.joined");
  EXPECT_EQ(lines[0].at("worker"), "2");
  EXPECT_EQ(lines[1].at("event"), "checkpoint.saved");
  EXPECT_EQ(lines[1].at("bytes"), "2500000");
}

TEST_F(RunReporterTest, AnEventOfAnyBytesIsOneLineThatForgesNothing) {
  reporter()->on_event({"worker.lost",
                        "w1 on a\xff"
                        "b lost\nevent  run.ended\x1b[2J",
                        {{"worker", "1"}, {"reason", "\xc3"}}});
  const std::vector<Json> lines = lines_of(file("events.jsonl"));
  ASSERT_EQ(lines.size(), 1);
  EXPECT_EQ(lines[0].at("reason"), "\xef\xbf\xbd");
  EXPECT_EQ(told(), "event  w1 on a?b lost event  run.ended [2J\n");
}

TEST_F(RunReporterTest, JsonIsToldLineByLine) {
  options_.format = LogFormat::kJson;
  report_run(done());
  const std::vector<Json> lines = lines_of(told());
  // Two events, the steps, the validation, the summary.
  ASSERT_EQ(lines.size(), kSteps + 4);
  EXPECT_EQ(lines.back().at("kind"), "summary");
  EXPECT_EQ(lines.back().at("status"), "ok");
  EXPECT_EQ(lines.back().at("tokens"), kSteps * 4096);
  EXPECT_EQ(lines.back().at("validation_loss"), 1.5);
  EXPECT_NEAR(lines.back().at("tokens_per_second"), 5 * 4096 / 2.7, 1e-6);
}

TEST_F(RunReporterTest, AQuietRunTellsItsSummaryOnly) {
  options_.quiet = true;
  report_run(done());
  const std::string text = told();
  EXPECT_EQ(text.find("\ndone after 6 of 6 steps"), 0) << text;
  EXPECT_THAT(text, Not(HasSubstr("event  ")));
}

TEST_F(RunReporterTest, TheSummarySaysHowTheRunEnded) {
  actors::RunResult result = done();
  result.steps_done = 4;
  result.stopped_early = true;
  report_run(result);
  EXPECT_THAT(told(), HasSubstr("\nstopped after 4 of 6 steps"));
  EXPECT_THAT(told(), HasSubstr("next         skein train --resume FOLDER\n"));
  result.status = absl::UnavailableError("no workers");
  report_run(result);
  EXPECT_THAT(told(), HasSubstr("\nfailed after 4 of 6 steps"));
}

TEST_F(RunReporterTest, ARunWithoutStepsHasASummary) {
  const auto to = reporter();
  actors::RunResult result;
  result.status = absl::UnavailableError("no workers");
  to->on_plan(two_stages(), 0);
  EXPECT_TRUE(to->summarise(result).ok());
  EXPECT_THAT(told(), HasSubstr("failed after 0 of 6 steps, 0 tokens in TIME\n"));
  EXPECT_THAT(told(), Not(HasSubstr("nan")));
  EXPECT_THAT(file("metrics.jsonl"), IsEmpty());
}

TEST_F(RunReporterTest, WhatIsNotKnownYetIsADash) {
  report_run(done());
  const std::string text = told();
  EXPECT_THAT(text, HasSubstr("2000 ms | - tok/s | bubble 37.5% | 2/3 workers | eta -\n"));
  EXPECT_THAT(text, Not(HasSubstr(" 0 tok/s")));
}

/// Three rounds of two steps each, of which the first is slow.
TEST_F(RunReporterTest, TheTimeThatIsLeftIsThatOfSteps) {
  options_.job.training.global_batch_size = 4;
  const auto to = reporter();
  to->on_plan(two_stages(), 0);
  to->on_step(step_report(1));
  actors::StepReport report = step_report(2);
  report.step_seconds = 100;
  to->on_step(report);
  EXPECT_THAT(told(), HasSubstr("eta 3m20s\n")) << "4 steps of 50 s";
}

TEST_F(RunReporterTest, LatestIsTheRunOnceAStepIsCommitted) {
  const std::string latest = folder_.file("latest");
  const auto to = reporter();
  to->on_plan(two_stages(), 0);
  EXPECT_FALSE(std::filesystem::is_symlink(latest)) << "nothing to go on from yet";
  to->on_step(step_report(1));
  EXPECT_EQ(std::filesystem::read_symlink(latest), "job");
  // Another run is the latest by the time that this one goes on.
  std::filesystem::remove(latest);
  const auto resumed = reporter();
  resumed->on_plan(two_stages(), 0);
  resumed->on_step(step_report(2));
  EXPECT_FALSE(std::filesystem::is_symlink(latest));
}

TEST_F(RunReporterTest, ASimulatedRunIsNotTheLatest) {
  options_.simulated = true;
  report_run(done());
  EXPECT_FALSE(std::filesystem::is_symlink(folder_.file("latest")));
}

TEST_F(RunReporterTest, AModelWithoutTokensIsCountedInSamples) {
  options_.simulated = options_.counts_samples = true;
  report_run(done());
  const std::string text = told();
  EXPECT_THAT(text, HasSubstr("2000 ms | 4 samples/s | bubble"));
  EXPECT_THAT(text, HasSubstr("simulated: done after 6 of 6 steps, 48 samples in 4.7s (10.2 "));
  EXPECT_THAT(text, Not(HasSubstr("tok")));
  EXPECT_THAT(file("metrics.jsonl"), Not(HasSubstr("tokens")));
}

TEST_F(RunReporterTest, TheHistoryShowsWhoWasLostAndWhoCame) {
  const auto to = reporter();
  to->on_event(joined(1));
  to->on_plan(two_stages(), 0);
  to->on_step(step_report(1));
  to->on_event({"worker.lost", "w2 lost", {{"worker", "2"}}});
  to->on_plan(two_stages(), 0);
  to->on_step(step_report(2));
  to->on_event(joined(3));
  to->on_step(step_report(3));
  EXPECT_TRUE(to->summarise(done()).ok());
  const std::string drawing = file("history.svg");
  EXPECT_THAT(drawing, HasSubstr(">w2 lost</text>"));
  EXPECT_THAT(drawing, HasSubstr(">w3 joined</text>"));
  EXPECT_THAT(drawing, Not(HasSubstr("w1 joined"))) << "the run began with it";
  EXPECT_THAT(told(), HasSubstr(" plan.txt, history.svg)"));
}

TEST_F(RunReporterTest, AFolderThatIsNotThereIsAnError) {
  options_.folder.path += "/none";
  const auto made = RunReporter::create(options_);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(made.status().message()), HasSubstr(options_.folder.path));
}

}  // namespace
}  // namespace skein::cli
