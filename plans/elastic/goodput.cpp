#include "plans/elastic/goodput.hpp"

#include <algorithm>

#include "plans/base/units.hpp"

namespace skein::plans {
namespace {

double seconds(uint64_t time_us) { return static_cast<double>(time_us) / kMicrosecondsPerSecond; }

}  // namespace

double Goodput::ratio() const { return total_s() > 0 ? useful_s / total_s() : 0; }

void GoodputLedger::begin(uint64_t now_us) {
  has_begun_ = true;
  last_us_ = now_us;
}

void GoodputLedger::enter(Activity activity, uint64_t now_us) {
  advance(now_us);
  if (activity == activity_) return;
  if (activity_ == Activity::kTraining) cut_off();
  if (activity == Activity::kTraining) cut_off_us_ = 0;
  activity_ = activity;
}

void GoodputLedger::on_commit(uint64_t step, uint64_t other_jobs_us, uint64_t now_us) {
  advance(now_us);
  if (!has_begun_ || (!committed_.empty() && step <= committed_.back().step)) return;
  // The journal was still writing when training ended: nothing was lost after all.
  parts_.redone_us -= cut_off_us_;
  parts_.useful_us += cut_off_us_;
  const uint64_t duration_us = progress_us_ + cut_off_us_;
  const uint64_t lent_us = std::min(other_jobs_us, duration_us);
  parts_.useful_us -= lent_us;
  parts_.other_jobs_us += lent_us;
  committed_.push_back({step, duration_us - lent_us});
  if (committed_.size() > kStepsKept) committed_.pop_front();
  progress_us_ = 0;
  cut_off_us_ = 0;
}

void GoodputLedger::on_own_pause(uint64_t paused_us) {
  if (has_begun_) parts_.waiting_us += paused_us;
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
    parts_.useful_us -= committed_.back().useful_us;
    parts_.redone_us += committed_.back().useful_us;
    committed_.pop_back();
  }
}

Goodput GoodputLedger::at(uint64_t now_us) const {
  Parts parts = parts_;
  if (has_begun_ && now_us > last_us_) part_of(parts, activity_) += now_us - last_us_;
  return {.useful_s = seconds(parts.useful_us),
          .redone_s = seconds(parts.redone_us),
          .other_jobs_s = seconds(parts.other_jobs_us),
          .waiting_s = seconds(parts.waiting_us),
          .moving_s = seconds(parts.moving_us)};
}

uint64_t& GoodputLedger::part_of(Parts& parts, Activity activity) {
  switch (activity) {
    case Activity::kTraining:
      return parts.useful_us;
    case Activity::kWaiting:
      return parts.waiting_us;
    case Activity::kMoving:
      return parts.moving_us;
  }
  return parts.waiting_us;
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
