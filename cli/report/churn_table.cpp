#include "cli/report/churn_table.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/config/json_text.hpp"
#include "cli/report/number_text.hpp"

namespace skein::cli {
namespace {

using Kind = plans::MemberChange::Kind;

int64_t count(const plans::Churn& churn, Kind kind) {
  return std::count_if(churn.changes.begin(), churn.changes.end(),
                       [kind](const plans::MemberChange& change) { return change.kind == kind; });
}

/// "every machine", "every 3rd machine".
std::string machines_text(int64_t every) {
  if (every == 1) return "every machine";
  const char* ending = "th";
  if (every / 10 % 10 != 1) {
    if (every % 10 == 1) ending = "st";
    if (every % 10 == 2) ending = "nd";
    if (every % 10 == 3) ending = "rd";
  }
  return absl::StrCat("every ", every, ending, " machine");
}

std::string row(const std::string& name, double samples, const plans::ChurnSimulation& simulation) {
  const double share = simulation.ideal_samples > 0 ? samples / simulation.ideal_samples : 0;
  return absl::StrFormat("%-28s %10s %8.1f%%", name, rate_text(samples / simulation.length_s),
                         share * 100);
}

}  // namespace

std::string churn_table(const ChurnSource& source, const plans::Churn& churn,
                        const plans::ChurnSimulation& simulation) {
  std::string text = absl::StrFormat(
      "simulated: %s of %s, %g times faster, for %s\n"
      "%d of %d devices at the start, %.1f in the mean; %d join, %d are lost, ",
      machines_text(churn.every), source.name, source.options.scale, duration_text(churn.length_s),
      churn.begin.size(), source.devices, simulation.members_mean, count(churn, Kind::kJoins),
      count(churn, Kind::kGoes));
  if (source.options.notice_s > 0) {
    absl::StrAppendFormat(&text, "with a notice %.1f s before\n",
                          source.options.notice_s / source.options.scale);
  } else {
    absl::StrAppend(&text, "without a notice\n");
  }
  absl::StrAppendFormat(&text, "\n%-28s %10s %9s %9s %13s %10s\n", "", "samples/s", "of ideal",
                        "re-plans", "steps redone", "stopped");
  absl::StrAppend(&text, row("ideal by capacity", simulation.ideal_samples, simulation), "\n");
  absl::StrAppend(&text, row("best plans, free changes", simulation.free_samples, simulation),
                  "\n");
  for (const plans::ChurnOutcome& outcome : simulation.outcomes) {
    absl::StrAppendFormat(&text, "%s %9d %13d %10s\n",
                          row(outcome.way, outcome.samples, simulation), outcome.plans,
                          outcome.steps_redone, duration_text(outcome.stopped_s));
  }
  return text;
}

Json churn_json(const ChurnSource& source, const plans::Churn& churn,
                const plans::ChurnSimulation& simulation) {
  Json ways = Json::array();
  for (const plans::ChurnOutcome& outcome : simulation.outcomes) {
    ways.push_back({{"way", outcome.way},
                    {"samples", outcome.samples},
                    {"plans", outcome.plans},
                    {"steps_redone", outcome.steps_redone},
                    {"stopped_s", outcome.stopped_s}});
  }
  return {{"simulated", true},
          {"trace", source.name},
          {"every", churn.every},
          {"scale", source.options.scale},
          {"notice_s", source.options.notice_s / source.options.scale},
          {"length_s", churn.length_s},
          {"first_workers", churn.begin.size()},
          {"joins", count(churn, Kind::kJoins)},
          {"losses", count(churn, Kind::kGoes)},
          {"members_mean", simulation.members_mean},
          {"ideal_samples", simulation.ideal_samples},
          {"free_samples", simulation.free_samples},
          {"ways", ways},
          {"chaos", plans::to_text(plans::chaos_of(churn))}};
}

}  // namespace skein::cli
