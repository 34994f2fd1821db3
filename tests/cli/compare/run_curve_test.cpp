#include "cli/compare/run_curve.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace skein::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string time_text(double seconds) {
  return absl::StrFormat("2026-11-21T18:08:%06.3fZ", seconds);
}

std::string step_line(double at, uint64_t step, const std::string& more = "") {
  return absl::StrCat(R"({"kind":"step","time":")", time_text(at), R"(","step":)", step,
                      R"(,"loss":3.0,"step_seconds":1.0,"samples":16)", more, "}\n");
}

std::string validation_line(double at, uint64_t step, const std::string& loss) {
  return absl::StrCat(R"({"kind":"validation","time":")", time_text(at), R"(","step":)", step,
                      R"(,"loss":)", loss, R"(,"tokens":64,"seconds":0.5})", "\n");
}

/// Three steps of a second each, and a validation of half a second after each of the first two.
std::string three_steps() {
  return step_line(11, 1) + validation_line(11.5, 1, "4.0") + step_line(12.5, 2) +
         validation_line(13, 2, "3.0") + step_line(14, 3);
}

TEST(RunCurve, CountsTrainingAndNoValidation) {
  const auto curve = parse_run_curve(three_steps(), "m");
  ASSERT_TRUE(curve.ok()) << curve.status();
  ASSERT_EQ(curve->points.size(), 2u);
  EXPECT_NEAR(curve->points[0].seconds, 1, 1e-6);
  EXPECT_NEAR(curve->points[1].seconds, 2, 1e-6);
  EXPECT_EQ(curve->points[1].step, 2u);
  EXPECT_EQ(curve->points[1].samples, 32u);
  EXPECT_NEAR(curve->seconds, 3, 1e-6);
  EXPECT_NEAR(curve->steps_per_second, 1, 1e-6);
  EXPECT_NEAR(curve->samples_per_second, 16, 1e-5);
  EXPECT_FALSE(curve->bytes_sent);
  EXPECT_FALSE(curve->staleness);
}

TEST(RunCurve, TheTargetIsReachedAtTheFirstValidationThatIsLowEnough) {
  const RunCurve curve = *parse_run_curve(three_steps(), "m");
  EXPECT_EQ(curve.reached(5)->step, 1u);
  EXPECT_EQ(curve.reached(4)->step, 1u);
  EXPECT_EQ(curve.reached(3.999)->step, 2u);
  EXPECT_EQ(curve.reached(2.999), nullptr);
}

TEST(RunCurve, LossBetweenValidationsIsOnALineAndNowhereElse) {
  const RunCurve curve = *parse_run_curve(three_steps(), "m");
  EXPECT_FALSE(curve.loss_at(15));
  EXPECT_EQ(curve.loss_at(16), 4.0);
  EXPECT_EQ(curve.loss_at(24), 3.5);
  EXPECT_EQ(curve.loss_at(32), 3.0);
  EXPECT_FALSE(curve.loss_at(33));
}

TEST(RunCurve, ReadsWhatOnlyRunsOfPipelinesTell) {
  const std::string more = R"(,"steps":5,"staleness":3,"pipeline_samples":[10,6],"bytes_sent":1e6)";
  const auto curve =
      parse_run_curve(step_line(11, 5, more) + step_line(12, 10, R"(,"staleness":1)"), "m");
  ASSERT_TRUE(curve.ok()) << curve.status();
  EXPECT_EQ(curve->staleness, 2.0);
  EXPECT_EQ(curve->bytes_sent, 1e6);
  EXPECT_THAT(curve->pipeline_samples, ElementsAre(10u, 6u));
  EXPECT_NEAR(curve->steps_per_second, 3, 1e-6);
}

TEST(RunCurve, ALossThatIsNoneReachesNothing) {
  const auto curve = parse_run_curve(step_line(11, 1) + validation_line(12, 1, "null"), "m");
  ASSERT_TRUE(curve.ok()) << curve.status();
  EXPECT_TRUE(std::isinf(curve->points.front().loss));
  EXPECT_EQ(curve->reached(1e9), nullptr);
}

TEST(RunCurve, ErrorsNameTheLine) {
  const auto trouble = [](const std::string& text) {
    return std::string(parse_run_curve(text, "m.jsonl").status().message());
  };
  EXPECT_EQ(trouble(""), "m.jsonl: there is no step");
  EXPECT_EQ(trouble("{\"kind\":\"other\"}\n"), "m.jsonl: there is no step");
  EXPECT_THAT(trouble(three_steps() + "{\"kind\":"), HasSubstr("m.jsonl:6: this is no JSON"));
  EXPECT_THAT(trouble("{\"kind\":\"step\",\"step\":\"x\"}\n"), HasSubstr("m.jsonl:1: "));
  EXPECT_THAT(trouble(validation_line(1, 1, "\"low\"")), HasSubstr("lacks its time, step or loss"));
}

}  // namespace
}  // namespace skein::cli
