#include "cli/compare/experiment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "tests/support/temporary_folder.hpp"

namespace skein::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kGood = R"([compare]
base = "jobs/base.toml"
workers = 4
target = 2.5
seeds = [3, 1]
scenarios = ["H0", "H2 factor=4 devices=0"]

[job]
"training.steps" = 60
validation.interval = 5

[variants.plain]

[variants.a-bucket]
"comm.bucket_cap_mb" = 0
sync.reducer = "bf16"
)";

/// kGood with one text in the place of another.
std::string changed(const std::string& from, const std::string& to) {
  const std::string text = absl::StrReplaceAll(kGood, {{from, to}});
  EXPECT_NE(text, kGood) << from;
  return text;
}

std::string trouble(const std::string& text) {
  const auto experiment = parse_experiment(text, "e.toml");
  return experiment.ok() ? "nothing" : std::string(experiment.status().message());
}

TEST(Experiment, IsReadWithVariantsInTheOrderOfTheFile) {
  const auto experiment = parse_experiment(kGood, "some/e.toml");
  ASSERT_TRUE(experiment.ok()) << experiment.status();
  EXPECT_EQ(experiment->name, "e");
  EXPECT_EQ(experiment->base, "some/jobs/base.toml");
  EXPECT_EQ(experiment->folder, "outputs/compare-e");
  EXPECT_EQ(experiment->workers, 4);
  EXPECT_EQ(experiment->target, 2.5);
  EXPECT_THAT(experiment->seeds, ElementsAre(3, 1));
  EXPECT_THAT(experiment->scenarios, ElementsAre("H0", "H2 factor=4 devices=0"));
  EXPECT_EQ(experiment->job, (Overrides{{"training.steps", "60"}, {"validation.interval", "5"}}));
  ASSERT_EQ(experiment->variants.size(), 2u);
  EXPECT_EQ(experiment->baseline(), (Variant{"plain", {}}));
  EXPECT_EQ(experiment->variants[1].keys,
            (Overrides{{"comm.bucket_cap_mb", "0"}, {"sync.reducer", "\"bf16\""}}));
}

TEST(Experiment, ErrorsNameTheLineAndWhatToDo) {
  EXPECT_EQ(trouble(kGood), "nothing");
  EXPECT_THAT(trouble(changed("[compare]", "[compar]")),
              HasSubstr("e.toml:1: unknown section [compar] (did you mean compare?)"));
  EXPECT_THAT(trouble(changed("seeds", "seed")),
              HasSubstr("e.toml:5: unknown key compare.seed (did you mean seeds?)"));
  EXPECT_THAT(
      trouble(changed("comm.bucket_cap_mb", "comm.bucket_cap")),
      HasSubstr("e.toml:15: unknown key comm.bucket_cap (did you mean comm.bucket_cap_mb?)"));
  EXPECT_THAT(trouble(changed("sync.reducer", "sync.reduce")),
              HasSubstr("did you mean sync.reducer?"));
  EXPECT_THAT(trouble(changed("seeds = [3, 1]", "")), HasSubstr("lacks compare.seeds"));
  EXPECT_THAT(trouble(changed("[3, 1]", "[]")), HasSubstr("lacks compare.seeds"));
  EXPECT_THAT(trouble(changed("[3, 1]", "[3, 3]")), HasSubstr("one appears twice"));
  EXPECT_THAT(trouble(changed("[3, 1]", "[3, -1]")), HasSubstr("e.toml:5: compare.seeds"));
  EXPECT_THAT(trouble(changed("[3, 1]", "3")), HasSubstr("expected a list of integers"));
  EXPECT_THAT(trouble(changed("target = 2.5", "")), HasSubstr("lacks compare.target"));
  EXPECT_THAT(trouble(changed("target = 2.5", "target = 0")), HasSubstr("above 0"));
  EXPECT_THAT(trouble(changed("target = 2.5", "target = \"low\"")),
              HasSubstr("e.toml:4: compare.target: expected a validation loss"));
  EXPECT_THAT(trouble(changed("workers = 4", "workers = 0")), HasSubstr("at least 1"));
  EXPECT_THAT(trouble(changed("base = \"jobs/base.toml\"", "")), HasSubstr("lacks compare.base"));
  EXPECT_THAT(trouble(changed("\"training.steps\" = 60", "\"debug.seed\" = 60")),
              HasSubstr("e.toml:9: debug.seed is set by the comparison"));
  EXPECT_THAT(trouble(changed("a-bucket", "\"a/b\"")), HasSubstr("variant \"a/b\": write at most"));
  EXPECT_THAT(trouble("[compare]\nbase = \"b\"\ntarget = 1\nseeds = [1]\n"),
              HasSubstr("has no variant"));
  EXPECT_THAT(trouble("[compare\n"), HasSubstr("e.toml:"));
}

TEST(Experiment, RunsAreInterleavedSoThatDriftHitsAllVariantsAlike) {
  const Experiment experiment = *parse_experiment(kGood, "e.toml");
  const std::vector<ExperimentRun> runs = runs_of(experiment);
  ASSERT_EQ(runs.size(), experiment.run_count());
  EXPECT_THAT(runs,
              ElementsAre(ExperimentRun{0, 0, 0}, ExperimentRun{0, 0, 1}, ExperimentRun{0, 1, 0},
                          ExperimentRun{0, 1, 1}, ExperimentRun{1, 0, 0}, ExperimentRun{1, 0, 1},
                          ExperimentRun{1, 1, 0}, ExperimentRun{1, 1, 1}));
  std::set<std::string> folders;
  for (const ExperimentRun& run : runs) folders.insert(folder_of(experiment, run));
  EXPECT_EQ(folders.size(), runs.size());
  EXPECT_EQ(folder_of(experiment, runs[3]), "runs/seed-3/2-H2-factor-4-devices-0/a-bucket");
}

TEST(Experiment, VariantsOfASeedDifferInTheirOwnKeysOnly) {
  const Experiment experiment = *parse_experiment(kGood, "e.toml");
  Overrides own = keys_of(experiment, {1, 1, 1});
  const Overrides plain = keys_of(experiment, {1, 1, 0});
  for (const auto& key : experiment.variants[1].keys) {
    const auto found = std::find(own.begin(), own.end(), key);
    ASSERT_NE(found, own.end());
    own.erase(found);
  }
  EXPECT_EQ(own, plain);
  EXPECT_THAT(plain, testing::Contains(std::pair("debug.seed", "1")));
  EXPECT_THAT(plain, testing::Contains(std::pair("device.scenario", "\"H2 factor=4 devices=0\"")));
}

TEST(Experiment, KeysOfTheCommandLineAreForAllRuns) {
  Experiment experiment = *parse_experiment(kGood, "e.toml");
  EXPECT_TRUE(add_keys(experiment, {{"optimizer.lr", "0.1"}}).ok());
  EXPECT_THAT(keys_of(experiment, {0, 0, 0}), testing::Contains(std::pair("optimizer.lr", "0.1")));
  EXPECT_THAT(std::string(add_keys(experiment, {{"debug.seed", "1"}}).message()),
              HasSubstr("debug.seed is set by the comparison"));
}

TEST(Experiment, JobsAreCheckedBeforeTheFirstRun) {
  tests::TemporaryFolder folder;
  std::ofstream(folder.file("base.toml")) << "[validation]\ninterval = 5\n";
  const auto check = [&](const std::string& text) {
    const std::string here = absl::StrReplaceAll(text, {{"jobs/base.toml", "base.toml"}});
    const auto experiment = parse_experiment(here, folder.file("e.toml"));
    EXPECT_TRUE(experiment.ok()) << experiment.status();
    return std::string(check_jobs(*experiment).message());
  };
  EXPECT_EQ(check(kGood), "");
  EXPECT_THAT(check(changed("\"bf16\"", "\"bf61\"")), HasSubstr("variant a-bucket: "));
  EXPECT_THAT(check(changed("devices=0", "devices=4")), HasSubstr("there are 4 devices"));
  EXPECT_THAT(check(changed("\"H0\"", "\"H9\"")), HasSubstr("did you mean H"));
  EXPECT_THAT(check(changed("\"H0\"", "\"H1\"")), HasSubstr("device.scenario_step_seconds"));
  EXPECT_THAT(check(changed("validation.interval = 5", "validation.interval = 0")),
              HasSubstr("validation.interval and validation.batches"));
}

TEST(Experiment, WhatIsIgnoredInAllJobsIsSaidOnce) {
  tests::TemporaryFolder folder;
  std::ofstream(folder.file("base.toml")) << "[debug]\ndeterministic = true\n";
  const std::string here = absl::StrReplaceAll(kGood, {{"jobs/base.toml", "base.toml"}});
  const auto experiment = parse_experiment(here, folder.file("e.toml"));
  ASSERT_TRUE(experiment.ok()) << experiment.status();
  std::vector<std::string> said;
  const auto say = [&said](const std::string& line) { said.push_back(line); };
  EXPECT_EQ(check_jobs(*experiment, say), absl::OkStatus());
  EXPECT_THAT(said, ElementsAre(HasSubstr("base.toml:2: debug.deterministic is no longer used")));
}

}  // namespace
}  // namespace skein::cli
