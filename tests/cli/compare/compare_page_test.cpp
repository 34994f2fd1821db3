#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_replace.h"
#include "cli/compare/page.hpp"
#include "cli/pictures/charts.hpp"
#include "tests/cli/compare/synthetic_results.hpp"

namespace skein::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(ComparePage, SaysTheResultFirst) {
  const std::string page = compare_html(synthetic_results());
  const size_t verdict = page.find("base is first under H2; swift is first under H0.");
  ASSERT_NE(verdict, std::string::npos);
  EXPECT_LT(verdict, page.find("<table"));
  EXPECT_LT(page.find("class=\"map\""), page.find("<svg"));
}

TEST(ComparePage, ColoursTheMapByStanding) {
  const std::string page = compare_html(synthetic_results());
  EXPECT_THAT(page, HasSubstr("<td class=\"good first\">\u25b2 2.00\u00d7 \u2605</td>"));
  EXPECT_THAT(page, HasSubstr("<td class=\"open\">\u25bd 0.99\u00d7</td>"));
  EXPECT_THAT(page, HasSubstr("<td class=\"bad\">not reached</td>"));
  EXPECT_THAT(page, HasSubstr("<td class=\"bad\">failed</td>"));
}

TEST(ComparePage, RefersToNothingOutsideAndEscapesNames) {
  const std::string page = compare_html(synthetic_results());
  const std::string inside = absl::StrReplaceAll(page, {{"http://www.w3.org/2000/svg", ""}});
  for (const char* outside : {"http", "src=", "href=", "url(", "@import"}) {
    EXPECT_THAT(inside, Not(HasSubstr(outside)));
  }
  EXPECT_THAT(page, HasSubstr("synthetic &lt;&amp;&gt;"));
  EXPECT_THAT(page, Not(HasSubstr("synthetic <&>")));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme:dark"));
}

TEST(ComparePage, HasBarsAndTwoKindsOfCurvesForEachScenario) {
  const std::string page = compare_html(synthetic_results());
  EXPECT_EQ(count_of(page, "<svg"), 2u * 3);
  EXPECT_EQ(count_of(page, "</svg>"), 2u * 3);
  EXPECT_EQ(count_of(page, ">seconds of training<"), 2u);
  EXPECT_EQ(count_of(page, ">samples<"), 2u);
  EXPECT_EQ(count_of(page, ">target 2.5<"), 4u);
}

TEST(ComparePage, SaysWhatWeakensIt) {
  const std::string page = compare_html(synthetic_results());
  EXPECT_THAT(page, HasSubstr("3 seeds are few"));
  EXPECT_THAT(page, HasSubstr("1 failed"));
  EXPECT_THAT(page, HasSubstr("Failed runs"));
  EXPECT_THAT(page, HasSubstr("up to 10% of the time to the target"));
}

TEST(ComparePage, ShowsPipelinesOfNumbersThatOnlySomeRunsHave) {
  Results results = synthetic_results();
  EXPECT_THAT(compare_html(results), Not(HasSubstr("staleness")));
  for (RunOutcome& run : results.runs) {
    if (run.run.variant != 1) continue;
    run.curve.staleness = 2.5;
    run.curve.bytes_sent = 3e6;
    run.curve.pipeline_samples = {1000, 600};
  }
  const std::string page = compare_html(summarise(results.experiment, results.runs));
  EXPECT_THAT(page, HasSubstr("<td class=\"r\">2.50</td>"));
  EXPECT_THAT(page, HasSubstr("3 MB"));
  EXPECT_THAT(page, HasSubstr("1,000 / 600"));
}

TEST(Charts, TicksAreRoundAndCoverTheAxis) {
  for (const double high : {0.001, 0.7, 1.0, 3.3, 42.0, 160.0, 2560.0, 1e7}) {
    for (const double low : {0.0, 0.3 * high}) {
      const std::vector<double> ticks = axis_ticks(low, high, 5);
      EXPECT_LE(ticks.front(), low + 1e-9 * high);
      EXPECT_GE(ticks.back(), high - 1e-9 * high);
      EXPECT_GE(ticks.size(), 3u);
      EXPECT_LE(ticks.size(), 9u);
    }
  }
  EXPECT_EQ(axis_ticks(0, 1, 5), (std::vector<double>{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1}));
}

TEST(Charts, ABarThatIsNotThereSaysWhyAndALongIntervalIsCut) {
  BarChart chart;
  chart.bars = {{"a", 0, 1.0, 0.9, 100, "a note", Tone::kGood}, {"b", 1, {}, 0, 0, "not reached"}};
  const std::string svg = bars_svg(chart);
  EXPECT_EQ(count_of(svg, "<rect"), 1u);
  EXPECT_THAT(svg, HasSubstr(">not reached</text>"));
  EXPECT_THAT(svg, HasSubstr("fill=\"var(--good)\""));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(Charts, EmptyChartsAreDrawn) {
  EXPECT_THAT(bars_svg({}), HasSubstr("</svg>"));
  EXPECT_THAT(lines_svg({}), HasSubstr("</svg>"));
  LineChart one;
  one.lines = {{"a", 0, false, {{1, 2}, {INFINITY, 3}, {4, NAN}}}};
  EXPECT_THAT(lines_svg(one), Not(testing::AnyOf(HasSubstr("nan"), HasSubstr("inf"))));
}

}  // namespace
}  // namespace skein::cli
