#include "plans/simulator/job_scenario.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace skein::plans {
namespace {

using testing::HasSubstr;
using Kind = Scenario::Kind;

JobSpec job_with(const std::string& scenario, double step_seconds = 0.05) {
  JobSpec job;
  job.device.scenario = scenario;
  job.device.scenario_step_seconds = step_seconds;
  return job;
}

std::string refusal(const JobSpec& job, int32_t workers = 4) {
  return std::string(job_scenario(job, workers).status().message());
}

TEST(JobScenario, IsNothingByDefault) {
  EXPECT_EQ(job_scenario({}, 4)->slowdown, Scenario{});
  EXPECT_EQ(device_scenario({}), Scenario{});
}

TEST(JobScenario, EveryNameResolvesToATextThatDevicesReadAlike) {
  for (const std::string& name : scenario_names()) {
    for (int32_t workers = 2; workers <= 5; ++workers) {
      JobSpec job = job_with(name);
      const auto scenario = job_scenario(job, workers);
      ASSERT_TRUE(scenario.ok()) << name << scenario.status();
      EXPECT_EQ(scenario->changes.empty(), name != "H7");
      EXPECT_TRUE(validate(scenario->slowdown, workers).ok()) << name;
      const std::string text = to_text(scenario->slowdown);
      job.device.scenario = text;
      EXPECT_EQ(to_text(device_scenario(job.device)), text);
      EXPECT_EQ(to_text(job_scenario(job, workers)->slowdown), text) << "resolving it again";
    }
  }
}

TEST(JobScenario, SleepsAreInProportionToTheStep) {
  for (const char* name : {"H1", "H3", "H4"}) {
    const double once = job_scenario(job_with(name, 0.05), 4)->slowdown.sleep_us;
    EXPECT_GT(once, 0);
    EXPECT_DOUBLE_EQ(job_scenario(job_with(name, 0.5), 4)->slowdown.sleep_us, 10 * once);
    EXPECT_THAT(refusal(job_with(name, 0)), HasSubstr("device.scenario_step_seconds"));
    EXPECT_THAT(refusal(job_with(name, 0)), HasSubstr(absl::StrCat(name, " sleep=5000")));
  }
  EXPECT_TRUE(job_scenario(job_with("H2", 0), 4).ok());
  EXPECT_TRUE(job_scenario(job_with("H5", 0), 4).ok());
}

TEST(JobScenario, NamesDrawWithTheSeedOfTheJobAndTextsWithTheirOwn) {
  for (const char* name : {"H1", "H4", "H6"}) {
    JobSpec job = job_with(name);
    const Scenario first = job_scenario(job, 4)->slowdown;
    EXPECT_EQ(job_scenario(job, 4)->slowdown, first);
    job.optimizer.lr *= 2;
    EXPECT_EQ(job_scenario(job, 4)->slowdown, first) << "another variant of the job";
    ++job.debug.seed;
    EXPECT_NE(to_text(job_scenario(job, 4)->slowdown), to_text(first));
  }
  EXPECT_EQ(job_scenario(job_with("H1 sleep=5000 seed=7"), 4)->slowdown.seed, 7u);
}

TEST(JobScenario, WorkersOfH7DieInTurnAndOthersJoinHalfAPeriodLater) {
  JobSpec job = job_with("H7");
  job.training.steps = 100;
  // Periods of 50 steps of 50 ms, for four times the undisturbed time.
  EXPECT_EQ(to_text(job_scenario(job, 2)->changes),
            "w1:kill@2.5s;another:join@3.75s;w2:kill@5s;another:join@6.25s;w3:kill@7.5s;"
            "another:join@8.75s;w4:kill@10s;another:join@11.25s;w5:kill@12.5s;another:join@13.75s;"
            "w6:kill@15s;another:join@16.25s;w7:kill@17.5s;another:join@18.75s");
}

TEST(JobScenario, ErrorsNameTheKeyAndAWayOut) {
  EXPECT_THAT(refusal(job_with("H9")), HasSubstr("device.scenario = \"H9\": expected one of H0"));
  EXPECT_THAT(refusal(job_with("h2 factor=4 devices=0")), HasSubstr("did you mean H"));
  EXPECT_THAT(refusal(job_with("H2 factor=4")), HasSubstr("lacks devices="));
  EXPECT_THAT(refusal(job_with("H2 factor=4 devices=4")), HasSubstr("there are 4 devices"));
  EXPECT_THAT(refusal(job_with("H5"), 1), HasSubstr("more --workers"));
  EXPECT_THAT(refusal(job_with("H0", -1)), HasSubstr("device.scenario_step_seconds = -1"));
  JobSpec job = job_with("H2");
  job.device.scenario_trace = "speeds.csv";
  EXPECT_THAT(refusal(job), HasSubstr("a trace is for device.scenario = \"H6\""));
  EXPECT_THAT(std::string(validate(job_with("H9")).message()), HasSubstr("device.scenario"));
}

TEST(ScenarioTrace, IsReadWithHeadingCommentsAndSpaces) {
  const auto trace = parse_scenario_trace(
      "seconds,worker,speed\n# a night\n\n0, 1, 0.5\n 12.5,2,0.25 # worse\n", "t.csv");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(*trace, (std::vector<Scenario::TracePoint>{{0, 0, 0.5}, {12.5e6, 1, 0.25}}));
  JobSpec job = job_with("H6", 0);
  job.device.scenario_trace = "t.csv";
  EXPECT_EQ(to_text(job_scenario(job, 2, *trace)->slowdown), "H6 trace=0:0:0.5,12500000:1:0.25");
  EXPECT_THAT(std::string(job_scenario(job, 1, *trace).status().message()),
              HasSubstr("there are 1 devices"));
}

TEST(ScenarioTrace, ErrorsNameTheLineAndWhatToWrite) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "t.csv: no point; write lines such as 12.5,1,0.5"},
      {"seconds,worker,speed\n", "t.csv: no point"},
      {"0,1,0.5\n1,2\n", "t.csv:2: \"1,2\": expected seconds,worker,speed"},
      {"0,1,0.5,9\n", "t.csv:1: \"0,1,0.5,9\""},
      {"0,x,0.5\n", "t.csv:1: \"0,x,0.5\""},
      {"-1,1,0.5\n", "t.csv:1: -1 seconds: write 0 or more"},
      {"0,0,0.5\n", "t.csv:1: worker 0: workers are numbered from 1"},
      {"0,1,0\n", "t.csv:1: speed 0: write a number above 0"},
      {"0,1,1.5\n", "t.csv:1: speed 1.5"},
      {"0,1,nan\n", "t.csv:1: speed nan"},
      {"5,1,0.5\n3,1,1\n", "t.csv:2: 3 seconds come after 5: sort the lines by time"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(std::string(parse_scenario_trace(text, "t.csv").status().message()),
                HasSubstr(message));
  }
}

}  // namespace
}  // namespace skein::plans
