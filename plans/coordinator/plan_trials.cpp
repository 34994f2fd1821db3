#include "plans/coordinator/plan_trials.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace skein::plans {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

bool is_same_but_for_generation(Plan a, const Plan& b) {
  a.generation = b.generation;
  return a == b;
}

void PlanTrials::on_chosen(const PlannedPipeline& chosen) {
  if (is_tried(chosen.plan)) return;
  candidates_.clear();
  current_ = 0;
  if (steps_ == 0 || chosen.rivals.empty()) return;
  is_due_ = false;
  candidates_.push_back({chosen});
  candidates_.front().pipeline.rivals.clear();
  for (const PlannedPipeline& rival : chosen.rivals) candidates_.push_back({rival});
}

void PlanTrials::begin_generation(const Plan& plan, bool was_urgent) {
  measured_us_.clear();
  // Another one may have been made of it, around a link that is down, or in a hurry.
  if (is_tried(plan)) return;
  candidates_.clear();
  is_due_ = steps_ > 0 && (is_due_ || was_urgent);
}

bool PlanTrials::take_due(const PlannedPipeline& chosen) {
  return std::exchange(is_due_, false) && !chosen.rivals.empty();
}

bool PlanTrials::is_tried(const Plan& plan) const {
  return !candidates_.empty() &&
         is_same_but_for_generation(candidates_[current_].pipeline.plan, plan);
}

PlanTrials::Outcome PlanTrials::on_commit(double step_us) {
  if (candidates_.empty()) return {};
  measured_us_.push_back(step_us);
  if (static_cast<int64_t>(measured_us_.size()) <= steps_) return {};
  measured_us_.erase(measured_us_.begin());
  candidates_[current_].step_us = median(std::exchange(measured_us_, {}));
  if (current_ + 1 == candidates_.size()) return end();
  ++current_;
  return {candidates_[current_].pipeline,
          absl::StrFormat("candidate %d of %d is tried: %s", current_ + 1, candidates_.size(),
                          candidates_[current_].pipeline.reason),
          /*is_end=*/false};
}

PlanTrials::Outcome PlanTrials::end() {
  const auto best = std::min_element(
      candidates_.begin(), candidates_.end(),
      [](const Candidate& a, const Candidate& b) { return a.step_us < b.step_us; });
  Outcome outcome;
  outcome.is_end = true;
  const bool stays = static_cast<size_t>(best - candidates_.begin()) == current_;
  outcome.text = absl::StrCat(
      "of the candidates ", stays ? "the last one was" : "an earlier one was",
      " the fastest: ", best->pipeline.reason, "; steps took ",
      absl::StrJoin(candidates_, ", ", [](std::string* out, const Candidate& each) {
        absl::StrAppendFormat(out, "%.4g ms", each.step_us * 1e-3);
        if (each.pipeline.objective_us == 0) return;  // Made in a hurry.
        absl::StrAppendFormat(out, " (%.4g predicted)", each.pipeline.objective_us * 1e-3);
      }));
  if (!stays) outcome.next = best->pipeline;
  candidates_.clear();
  current_ = 0;
  return outcome;
}

}  // namespace skein::plans
