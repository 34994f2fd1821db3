#include "cli/compare/page.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/compare/words.hpp"
#include "cli/pictures/charts.hpp"
#include "cli/pictures/markup.hpp"
#include "cli/report/number_text.hpp"

namespace skein::cli {
namespace {

/// Advice of those who compare policies: fewer seeds say little, and a coarser evaluation blurs.
constexpr size_t kSeedsWanted = 5;
constexpr double kResolutionWanted = 0.02;

constexpr const char* kHead = R"(<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<style>
:root{--paper:#fff;--ink:#1d2126;--muted:#5d6670;--grid:#e3e6ea;--good:#0b7a3e;--bad:#b3261e;
--goodback:#d5f0df;--badback:#f9dcd9;--openback:#eef0f2;
--c0:#6b7480;--c1:#1f6fc4;--c2:#d9701a;--c3:#1f9158;
--c4:#b23a78;--c5:#7355c0;--c6:#8c6f12;--c7:#168a9c}
@media (prefers-color-scheme:dark){:root{
--paper:#15181c;--ink:#e8eaed;--muted:#9aa3ad;--grid:#2d3339;
--good:#5fd38f;--bad:#ff8a80;--goodback:#153d27;--badback:#4a1f1d;--openback:#23282e;
--c0:#98a2ae;--c1:#6db1f5;--c2:#f2a35c;--c3:#5fcf95;
--c4:#ea86b6;--c5:#b59df0;--c6:#d1b75c;--c7:#56c6d6}}
body{font:14px/1.45 "DejaVu Sans",Verdana,sans-serif;color:var(--ink);background:var(--paper);
margin:24px;max-width:1180px}
h1{font-size:20px;margin-bottom:6px}h2{font-size:17px;margin:34px 0 4px}
.verdict{font-size:18px;line-height:1.4;margin:8px 0 12px;max-width:900px}
.note{color:var(--muted)}.warn{color:var(--bad)}
table{border-collapse:collapse;margin:10px 0}
td,th{padding:4px 14px 4px 0;text-align:left;white-space:nowrap}
th{border-bottom:1px solid var(--muted);font-weight:normal;color:var(--muted)}
td.r,th.r{text-align:right}
.map td,.map th{padding:6px 14px;text-align:center}
.map td:first-child,.map th:first-child{text-align:left}
.map td{border:3px solid var(--paper)}
.good{background:var(--goodback);color:var(--good)}.bad{background:var(--badback);color:var(--bad)}
.open{background:var(--openback)}.first{font-weight:bold}
.key{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:7px}
.wide{overflow-x:auto}.charts{display:flex;flex-wrap:wrap;gap:24px;margin-top:8px}
</style>
)";

std::string key(size_t variant) {
  return absl::StrCat("<span class=\"key\" style=\"background:var(--c", variant % kChartColours,
                      ")\"></span>");
}

const char* css_class(Standing standing) {
  switch (standing) {
    case Standing::kFaster:
      return "good";
    case Standing::kSlower:
    case Standing::kNotReached:
      return "bad";
    default:
      return "open";
  }
}

/// Mean time of the baseline / own one; none if one of them is not known.
std::optional<double> ratio(const ScenarioResult& scenario, size_t variant) {
  const VariantResult& own = scenario.variants[variant];
  if (!own.has_reached() || !scenario.baseline().has_reached()) return std::nullopt;
  return scenario.baseline().seconds_to_target->mean / own.seconds_to_target->mean;
}

std::string map_cell(const ScenarioResult& scenario, size_t variant) {
  const VariantResult& own = scenario.variants[variant];
  const Standing stands = standing(scenario, variant);
  const bool is_first = scenario.ranking().front() == variant && own.has_reached();
  std::string words;
  if (own.failed > 0) {
    words = "failed";
  } else if (!own.has_reached()) {
    words = "not reached";
  } else if (const auto times = ratio(scenario, variant)) {
    const int by_pairs = paired_standing(scenario, variant);
    const char* arrow = "";
    if (by_pairs != 0) arrow = by_pairs > 0 ? "\u25b3 " : "\u25bd ";
    if (stands == Standing::kFaster) arrow = "\u25b2 ";
    if (stands == Standing::kSlower) arrow = "\u25bc ";
    words = absl::StrFormat("%s%.2f\u00d7", arrow, *times);
  } else {
    words = absl::StrFormat("%.2f s", own.seconds_to_target->mean);
  }
  return absl::StrCat("<td class=\"", css_class(stands), is_first ? " first" : "", "\">", words,
                      is_first ? " \u2605" : "", "</td>");
}

/// Variants by scenarios, coloured: the whole result in one look.
std::string map_html(const Results& results) {
  std::string text = "<table class=\"map\">\n<tr><th>times as fast to the target</th>";
  for (const ScenarioResult& scenario : results.scenarios) {
    absl::StrAppend(&text, "<th>", escaped(scenario.scenario), "</th>");
  }
  text += "</tr>\n";
  for (size_t v = 0; v < results.experiment.variants.size(); ++v) {
    absl::StrAppend(&text, "<tr><td>", key(v), escaped(results.experiment.variants[v].name),
                    v == 0 ? " <span class=\"note\">(baseline)</span>" : "", "</td>");
    for (const ScenarioResult& scenario : results.scenarios) {
      absl::StrAppend(&text, map_cell(scenario, v));
    }
    text += "</tr>\n";
  }
  return absl::StrCat(
      text,
      "</table>\n<p class=\"note\">\u2605 first. Green \u25b2: faster than the baseline, red "
      "\u25bc: slower, where the 95% intervals do not overlap; grey: they do, and "
      "\u25b3 \u25bd mark what is certain nevertheless, as it is so seed by seed.</p>\n");
}

std::string facts_html(const Results& results) {
  const Experiment& experiment = results.experiment;
  const auto failed = static_cast<size_t>(
      std::count_if(results.runs.begin(), results.runs.end(),
                    [](const RunOutcome& outcome) { return !outcome.error.empty(); }));
  std::string text = absl::StrCat(
      "<p class=\"note\">", escaped(experiment.base), ", ", experiment.workers,
      " workers, target: a validation loss of ", experiment.target, ", seeds ",
      absl::StrJoin(experiment.seeds, ", "), ". ", results.runs.size() - failed, " of ",
      experiment.run_count(), " runs done",
      failed > 0 ? absl::StrCat(", <span class=\"warn\">", failed, " failed</span>") : "", ".");
  if (experiment.seeds.size() < kSeedsWanted) {
    absl::StrAppend(&text, " ", experiment.seeds.size(), " seeds are few: ", kSeedsWanted,
                    " or more make the intervals short.");
  }
  return text + "</p>\n";
}

std::string bar_note(const ScenarioResult& scenario, size_t variant) {
  const VariantResult& own = scenario.variants[variant];
  if (own.failed > 0 || !own.has_reached()) return target_text(own);
  std::string note = absl::StrFormat("%.2f s", own.seconds_to_target->mean);
  const auto times = ratio(scenario, variant);
  if (variant == 0 || !times) return note;
  return absl::StrFormat("%s, %.2f\u00d7 as fast%s", note, *times,
                         standing(scenario, variant) == Standing::kUnclear ? "?" : "");
}

std::string bars_html(const Results& results, const ScenarioResult& scenario) {
  const VariantResult& baseline = scenario.baseline();
  // Without a baseline there is nothing to be relative to.
  const double unit = baseline.has_reached() ? baseline.seconds_to_target->mean : 1;
  BarChart chart;
  chart.axis = absl::StrCat("training time to a validation loss of ", results.experiment.target,
                            baseline.has_reached() ? ", baseline = 1" : ", seconds",
                            ", with 95% intervals: shorter is better");
  if (baseline.has_reached()) {
    chart.reference = 1;
    chart.reference_label = baseline.name;
  }
  for (const size_t v : scenario.ranking()) {
    const VariantResult& variant = scenario.variants[v];
    ChartBar bar;
    bar.label = variant.name;
    bar.colour = v;
    bar.note = bar_note(scenario, v);
    const Standing stands = standing(scenario, v);
    if (stands == Standing::kFaster) bar.tone = Tone::kGood;
    if (stands == Standing::kSlower || stands == Standing::kNotReached) bar.tone = Tone::kBad;
    if (variant.has_reached()) {
      bar.value = variant.seconds_to_target->mean / unit;
      bar.low = variant.seconds_to_target->low() / unit;
      bar.high = variant.seconds_to_target->high() / unit;
    }
    chart.bars.push_back(std::move(bar));
  }
  return absl::StrCat("<div class=\"wide\">", bars_svg(chart), "</div>\n");
}

/// Point by point over the seeds, as far as all of them go.
std::vector<std::pair<double, double>> mean_points(const VariantResult& variant,
                                                   double (*x_of)(const CurvePoint&)) {
  std::vector<std::pair<double, double>> means;
  if (variant.curves.empty()) return means;
  size_t count = variant.curves.front().points.size();
  for (const RunCurve& curve : variant.curves) count = std::min(count, curve.points.size());
  means.resize(count);
  for (const RunCurve& curve : variant.curves) {
    for (size_t i = 0; i < count; ++i) {
      means[i].first += x_of(curve.points[i]) / static_cast<double>(variant.curves.size());
      means[i].second += curve.points[i].loss / static_cast<double>(variant.curves.size());
    }
  }
  return means;
}

std::string curves_svg(const Results& results, const ScenarioResult& scenario, const char* x_axis,
                       double (*x_of)(const CurvePoint&)) {
  LineChart chart;
  chart.x_axis = x_axis;
  chart.y_axis = "validation loss";
  chart.target = results.experiment.target;
  std::vector<ChartLine> means;
  for (size_t v = 0; v < scenario.variants.size(); ++v) {
    const VariantResult& variant = scenario.variants[v];
    for (const RunCurve& curve : variant.curves) {
      ChartLine line{variant.name, v, true, {}};
      for (const CurvePoint& point : curve.points) line.points.push_back({x_of(point), point.loss});
      chart.lines.push_back(std::move(line));
    }
    means.push_back({variant.name, v, false, mean_points(variant, x_of)});
  }
  chart.lines.insert(chart.lines.end(), means.begin(), means.end());
  return absl::StrCat("<div>", lines_svg(chart), "</div>\n");
}

std::string charts_html(const Results& results, const ScenarioResult& scenario) {
  return absl::StrCat(
      "<div class=\"charts\">\n",
      curves_svg(results, scenario, "seconds of training",
                 [](const CurvePoint& point) { return point.seconds; }),
      curves_svg(results, scenario, "samples",
                 [](const CurvePoint& point) { return static_cast<double>(point.samples); }),
      "</div>\n");
}

std::string optional_cell(const std::string& text) {
  return absl::StrCat("<td class=\"r\">", text, "</td>");
}

std::string shards_text(const std::vector<double>& samples) {
  return absl::StrJoin(samples, " / ", [](std::string* out, double value) {
    absl::StrAppend(out, with_commas(static_cast<uint64_t>(std::llround(value))));
  });
}

std::string table_html(const Results& results, const ScenarioResult& scenario) {
  bool has_bytes = false, has_staleness = false, has_pipelines = false;
  for (const VariantResult& variant : scenario.variants) {
    has_bytes |= variant.bytes_sent.has_value();
    has_staleness |= variant.staleness.has_value();
    has_pipelines |= !variant.pipeline_samples.empty();
  }
  std::string text = absl::StrCat(
      "<table>\n<tr><th>variant</th><th class=\"r\">time to loss ", results.experiment.target,
      "</th><th class=\"r\">times as fast, by seed</th><th class=\"r\">steps/s</th>"
      "<th class=\"r\">samples/s</th><th class=\"r\">loss at ",
      with_commas(scenario.equal_samples), " samples</th>",
      has_bytes ? "<th class=\"r\">sent</th>" : "",
      has_staleness ? "<th class=\"r\">staleness</th>" : "",
      has_pipelines ? "<th class=\"r\">samples of each pipeline replica</th>" : "", "</tr>\n");
  for (const size_t v : scenario.ranking()) {
    const VariantResult& variant = scenario.variants[v];
    const bool fails = !variant.has_reached();
    absl::StrAppend(&text, "<tr><td>", key(v), escaped(variant.name), "</td><td class=\"r",
                    fails ? " warn" : "", "\">", target_text(variant), "</td>",
                    optional_cell(v == 0 ? "baseline" : interval_text(variant.speed_up)),
                    optional_cell(interval_text(variant.steps_per_second)),
                    optional_cell(interval_text(variant.samples_per_second)),
                    optional_cell(interval_text(variant.loss_at_equal_samples)));
    if (has_bytes) {
      absl::StrAppend(
          &text,
          optional_cell(variant.bytes_sent ? bytes_text(static_cast<int64_t>(*variant.bytes_sent))
                                           : ""));
    }
    if (has_staleness) {
      absl::StrAppend(
          &text,
          optional_cell(variant.staleness ? absl::StrFormat("%.2f", *variant.staleness) : ""));
    }
    if (has_pipelines) absl::StrAppend(&text, optional_cell(shards_text(variant.pipeline_samples)));
    text += "</tr>\n";
  }
  return absl::StrCat("<div class=\"wide\">", text, "</table></div>\n");
}

std::string scenario_html(const Results& results, const ScenarioResult& scenario) {
  std::string text = absl::StrCat("<h2>", escaped(scenario.scenario), "</h2>\n<p>",
                                  escaped(verdict(scenario, results.experiment.target)), "</p>\n",
                                  bars_html(results, scenario), table_html(results, scenario));
  if (scenario.resolution > kResolutionWanted) {
    absl::StrAppend(&text, absl::StrFormat("<p class=\"note\">Between two validations lies up to "
                                           "%.0f%% of the time to the target: times are no more "
                                           "exact than that. A smaller validation.interval makes "
                                           "them so.</p>\n",
                                           scenario.resolution * 100));
  }
  return text + charts_html(results, scenario);
}

std::string failures_html(const Results& results) {
  std::string rows;
  for (const RunOutcome& outcome : results.runs) {
    if (outcome.error.empty()) continue;
    absl::StrAppend(&rows, "<tr><td>", escaped(outcome.folder), "</td><td class=\"warn\">",
                    escaped(outcome.error), "</td></tr>\n");
  }
  if (rows.empty()) return "";
  return absl::StrCat("<h2>Failed runs</h2>\n<div class=\"wide\"><table>\n", rows,
                      "</table></div>\n");
}

}  // namespace

std::string compare_html(const Results& results) {
  std::string text =
      absl::StrCat("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<title>",
                   escaped(results.experiment.name), "</title>\n", kHead, "</head>\n<body>\n<h1>",
                   escaped(results.experiment.name), "</h1>\n<p class=\"verdict\">",
                   escaped(verdict(results)), "</p>\n", map_html(results), facts_html(results));
  for (const ScenarioResult& scenario : results.scenarios) {
    absl::StrAppend(&text, scenario_html(results, scenario));
  }
  return absl::StrCat(text, failures_html(results), "</body>\n</html>\n");
}

}  // namespace skein::cli
