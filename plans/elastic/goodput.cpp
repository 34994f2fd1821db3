#include "plans/elastic/goodput.hpp"

#include <algorithm>
#include <cmath>

#include "plans/base/units.hpp"

namespace skein::plans {
namespace {

double seconds(uint64_t time_us) { return static_cast<double>(time_us) / kMicrosecondsPerSecond; }

uint64_t microseconds(double time_s) {
  return static_cast<uint64_t>(std::llround(std::max(0.0, time_s) * kMicrosecondsPerSecond));
}

}  // namespace

double Goodput::ratio() const { return total_s() > 0 ? useful_s / total_s() : 0; }

void GoodputLedger::begin(uint64_t now_us, const Past& past) {
  has_begun_ = true;
  activity_ = Activity::kWaiting;
  last_us_ = now_us;
  parts_ = {.useful_us = microseconds(past.goodput.useful_s),
            .redone_us = microseconds(past.goodput.redone_s),
            .waiting_us = microseconds(past.goodput.waiting_s),
            .moving_us = microseconds(past.goodput.moving_s),
            .stopped_us = microseconds(past.goodput.stopped_s)};
  progress_us_ = 0;
  cut_off_us_ = 0;
  const size_t dropped = past.steps.size() - std::min(past.steps.size(), kStepsKept);
  committed_.assign(past.steps.begin() + static_cast<std::ptrdiff_t>(dropped), past.steps.end());
}

void GoodputLedger::enter(Activity activity, uint64_t now_us) {
  advance(now_us);
  if (activity == activity_) return;
  if (activity_ == Activity::kTraining) cut_off();
  if (activity == Activity::kTraining) cut_off_us_ = 0;
  activity_ = activity;
}

void GoodputLedger::on_commit(uint64_t step, uint64_t now_us) {
  advance(now_us);
  if (!has_begun_ || (!committed_.empty() && step <= committed_.back().step)) return;
  // The journal was still writing when training ended: nothing was lost after all.
  parts_.redone_us -= cut_off_us_;
  parts_.useful_us += cut_off_us_;
  committed_.push_back({step, progress_us_ + cut_off_us_});
  if (committed_.size() > kStepsKept) committed_.pop_front();
  progress_us_ = 0;
  cut_off_us_ = 0;
}

void GoodputLedger::on_abandoned(uint64_t now_us) {
  advance(now_us);
  if (activity_ != Activity::kTraining) return;
  cut_off();
  cut_off_us_ = 0;  // The next commit is of the step that is computed from now on.
}

void GoodputLedger::on_rollback(uint64_t first_step_redone, uint64_t now_us) {
  advance(now_us);
  if (activity_ == Activity::kTraining) cut_off();
  cut_off_us_ = 0;
  while (!committed_.empty() && committed_.back().step >= first_step_redone) {
    // A past whose steps took longer than its useful time must not make time negative.
    const uint64_t lost_us = std::min(committed_.back().duration_us, parts_.useful_us);
    parts_.useful_us -= lost_us;
    parts_.redone_us += lost_us;
    committed_.pop_back();
  }
}

Goodput GoodputLedger::at(uint64_t now_us) const {
  Parts parts = parts_;
  if (has_begun_ && now_us > last_us_) part_of(parts, activity_) += now_us - last_us_;
  return {.useful_s = seconds(parts.useful_us),
          .redone_s = seconds(parts.redone_us),
          .waiting_s = seconds(parts.waiting_us),
          .moving_s = seconds(parts.moving_us),
          .stopped_s = seconds(parts.stopped_us)};
}

uint64_t& GoodputLedger::part_of(Parts& parts, Activity activity) {
  switch (activity) {
    case Activity::kTraining:
      return parts.useful_us;
    case Activity::kWaiting:
      return parts.waiting_us;
    case Activity::kMoving:
      return parts.moving_us;
    case Activity::kStopped:
      return parts.stopped_us;
  }
  return parts.stopped_us;
}

void GoodputLedger::advance(uint64_t now_us) {
  if (!has_begun_ || now_us <= last_us_) return;
  const uint64_t passed_us = now_us - last_us_;
  last_us_ = now_us;
  part_of(parts_, activity_) += passed_us;
  if (activity_ == Activity::kTraining) progress_us_ += passed_us;
}

void GoodputLedger::cut_off() {
  parts_.useful_us -= progress_us_;
  parts_.redone_us += progress_us_;
  cut_off_us_ = progress_us_;
  progress_us_ = 0;
}

}  // namespace skein::plans
