#include "cli/compare/results.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "cli/compare/words.hpp"
#include "tests/cli/compare/synthetic_results.hpp"

namespace skein::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Results, TimesAreMeansOverSeedsAndSpeedUpsOverPairs) {
  const Results results = synthetic_results();
  const ScenarioResult& h0 = results.scenarios[0];
  EXPECT_NEAR(h0.variants[0].seconds_to_target->mean, 10.2, 1e-9);
  EXPECT_NEAR(h0.variants[1].seconds_to_target->mean, 5.1, 1e-9);
  // Each seed is slower for all alike: pairs do not see it.
  EXPECT_NEAR(h0.variants[1].speed_up->mean, 2, 1e-9);
  EXPECT_NEAR(h0.variants[1].speed_up->half_width.value(), 0, 1e-9);
  EXPECT_GT(h0.variants[1].seconds_to_target->half_width.value(), 0.1);
  EXPECT_NEAR(h0.resolution, 0.1, 1e-9);
}

TEST(Results, ATargetThatSomeSeedMissesHasNoTime) {
  const Results results = synthetic_results();
  const VariantResult& lame = results.scenarios[0].variants[3];
  EXPECT_FALSE(lame.has_reached());
  EXPECT_FALSE(lame.speed_up);
  EXPECT_EQ(target_text(lame), "not reached (0 of 3 seeds)");
  EXPECT_EQ(target_text(results.scenarios[1].variants[1]), "failed (1 of 3 seeds)");
}

TEST(Results, LossesAreComparedAtSamplesThatAllRunsCameTo) {
  const Results results = synthetic_results();
  EXPECT_EQ(results.scenarios[0].equal_samples, 1440u) << "lame ends a validation earlier";
  for (const VariantResult& variant : results.scenarios[0].variants) {
    EXPECT_NEAR(variant.loss_at_equal_samples->mean, 4 - 1.5 * 0.9, 1e-9) << variant.name;
  }
}

TEST(Results, RankingPutsThoseThatMissTheTargetLast) {
  const Results results = synthetic_results();
  EXPECT_THAT(results.scenarios[0].ranking(), ElementsAre(1, 0, 2, 3));
  EXPECT_THAT(results.scenarios[1].ranking(), ElementsAre(0, 1, 2, 3));
}

TEST(Results, MissingRunsCountAsFailed) {
  Experiment experiment = synthetic_results().experiment;
  const Results results = summarise(experiment, {});
  EXPECT_EQ(results.scenarios[0].variants[0].failed, 3u);
  EXPECT_EQ(verdict(results), "Under H0, H2 none reaches the target.");
}

TEST(Words, StandingsTakeOverlapForUnclear) {
  const Results results = synthetic_results();
  const ScenarioResult& h0 = results.scenarios[0];
  EXPECT_EQ(standing(h0, 0), Standing::kBaseline);
  EXPECT_EQ(standing(h0, 1), Standing::kFaster);
  EXPECT_EQ(standing(h0, 2), Standing::kUnclear);
  EXPECT_EQ(standing(h0, 3), Standing::kNotReached);
}

TEST(Words, VerdictsSayWhoIsFirstAndWhetherItIsCertain) {
  const Results results = synthetic_results();
  EXPECT_EQ(verdict(results.scenarios[0], 2.5),
            "Under H0, swift reaches a loss of 2.5 first, 2.00 times as fast as the baseline base; "
            "its 95% interval does not overlap that of the next, base.");
  EXPECT_EQ(verdict(results.scenarios[1], 2.5), "Under H2, base reaches a loss of 2.5 first.");
  EXPECT_EQ(verdict(results), "base is first under H2; swift is first under H0.");
}

TEST(Words, PairsTellWhatADriftingMachineHides) {
  Experiment experiment = synthetic_results().experiment;
  experiment.scenarios = {"H0"};
  std::vector<RunOutcome> runs;
  const double ratios[] = {1, 0.8, 1, 1.25};
  for (const ExperimentRun& run : runs_of(experiment)) {
    const double noise = run.variant == 2 ? 0.1 * (static_cast<double>(run.seed) - 1) : 0;
    const double drift = 1 + static_cast<double>(run.seed);
    runs.push_back({run, "", "", falling_curve(10 * drift * (ratios[run.variant] + noise))});
  }
  const Results results = summarise(experiment, runs);
  const ScenarioResult& h0 = results.scenarios[0];
  for (size_t v = 1; v < 4; ++v) EXPECT_EQ(standing(h0, v), Standing::kUnclear);
  EXPECT_EQ(paired_standing(h0, 0), 0);
  EXPECT_EQ(paired_standing(h0, 1), 1);
  EXPECT_EQ(paired_standing(h0, 2), 0);
  EXPECT_EQ(paired_standing(h0, 3), -1);
  EXPECT_THAT(verdict(h0, 2.5),
              HasSubstr("as fast as the baseline base (seed by seed 1.25 ± 0.00 times); but"));
}

TEST(Words, OneSeedProvesNothing) {
  Experiment experiment = synthetic_results().experiment;
  experiment.seeds = {1};
  experiment.scenarios = {"H0"};
  std::vector<RunOutcome> runs;
  for (const ExperimentRun& run : runs_of(experiment)) {
    runs.push_back({run, "", "", falling_curve(run.variant == 1 ? 5 : 10)});
  }
  const Results results = summarise(experiment, runs);
  EXPECT_THAT(verdict(results.scenarios[0], 2.5), HasSubstr("with one seed nothing is certain"));
  EXPECT_EQ(verdict(results), "Under H0 it is open which is first, as there is one seed.");
  EXPECT_EQ(target_text(results.scenarios[0].variants[1]), "5.00 s (one seed)");
  EXPECT_EQ(standing(results.scenarios[0], 1), Standing::kUnclear);
}

TEST(Words, TheTableIsSortedAndLinesUp) {
  const std::string text = terminal_text(synthetic_results());
  EXPECT_LT(text.find("swift"), text.find("base"));
  EXPECT_THAT(text, HasSubstr("5.10 s ± 0.25 s"));
  EXPECT_THAT(text, HasSubstr("2.00 ± 0.00"));
  EXPECT_THAT(text, HasSubstr("not reached (0 of 3 seeds)"));
}

TEST(Words, TheCsvHasALineForEachRunAndAsManyFieldsInEach) {
  const Results results = synthetic_results();
  const std::vector<std::string> lines = absl::StrSplit(csv_text(results), '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 1 + results.experiment.run_count());
  const std::vector<std::string> heads = absl::StrSplit(lines[0], ',');
  EXPECT_THAT(lines[1], HasSubstr("H0,base,1,done,yes,10,100,1600,10,10,160,2.5,2.5,2.65,1440,"));
  for (const std::string& line : lines) {
    if (line.find('"') != std::string::npos) continue;  // Quoted text may have commas.
    const std::vector<std::string> fields = absl::StrSplit(line, ',');
    EXPECT_EQ(fields.size(), heads.size()) << line;
  }
  const std::string failed = csv_text(results);
  EXPECT_THAT(failed, HasSubstr("H2,swift,3,failed,,,,"));
  EXPECT_THAT(failed, HasSubstr("\"skein train ended with code 1: a, \"\"b\"\"\""));
}

}  // namespace
}  // namespace skein::cli
