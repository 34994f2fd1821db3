#include "plans/coordinator/progress_watch.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/units.hpp"

namespace skein::plans {
namespace {

/// A step that takes so many times the one before is stuck.
constexpr double kStuckFactor = 20;

}  // namespace

ProgressWatch::ProgressWatch(const JobSpec& job, uint64_t now_us)
    : lease_us_(job.elastic.heartbeat_timeout_seconds * kMicrosecondsPerSecond),
      init_s_(job.comm.init_timeout_seconds),
      train_s_(job.comm.train_timeout_seconds),
      last_us_(now_us) {}

void ProgressWatch::on_commit(uint64_t now_us) {
  on_progress(now_us);
  tried_again_ = false;
  blamed_first_ = false;
}

void ProgressWatch::on_own_pause(uint64_t paused_us, uint64_t now_us) {
  const uint64_t until_us = now_us + std::min(paused_us, kRejoinUs);
  if (until_us <= catch_up_until_us_)
    return;  // A moment's, while it catches up after a longer one.
  catch_up_since_us_ = now_us;
  catch_up_until_us_ = until_us;
}

bool ProgressWatch::may_be_cut_off(const Member& member, uint64_t now_us) const {
  return is_catching_up(now_us) && (!member.is_newcomer || member.joined_us < catch_up_since_us_);
}

bool ProgressWatch::is_slow_to_answer(const Member& member, double limit_s, uint64_t now_us) const {
  const uint64_t asked_us = std::max(last_us_, member.joined_us);
  return now_us > asked_us &&
         static_cast<double>(now_us - asked_us) > limit_s * kMicrosecondsPerSecond;
}

/// The worker whose device works for longest on one action.
const Member* ProgressWatch::find_culprit(const Situation& situation) const {
  const Member* culprit = nullptr;
  for (const Member* each : situation.workers) {
    const WorkerActivity& activity = each->activity;
    if (!activity.works || activity.action_us * 2 < lease_us_) continue;
    if (!culprit || activity.action_us > culprit->activity.action_us) culprit = each;
  }
  return culprit;
}

bool ProgressWatch::awaits_devices(const Situation& situation) {
  bool awaits = false;
  for (const Member* each : situation.workers) {
    if (each->activity.works) return false;
    awaits = awaits || each->activity.awaits_device;
  }
  return awaits;
}

ProgressWatch::Verdict ProgressWatch::check(const Situation& situation, uint64_t now_us) {
  Verdict verdict;
  const uint64_t last_check_us = std::exchange(last_check_us_, now_us);
  if (now_us <= last_us_) return verdict;
  // A worker that quiesces says nothing new.
  const bool has_steps = situation.is_training || situation.is_finishing;
  if (has_steps && awaits_devices(situation))
    last_us_ += now_us - std::clamp(last_check_us, last_us_, now_us);
  const double waited_us = static_cast<double>(now_us - last_us_);
  verdict.waited_s = waited_us / kMicrosecondsPerSecond;
  verdict.limit_s = has_steps ? train_s_ : init_s_;
  verdict.limit = has_steps ? "comm.train_timeout_seconds" : "comm.init_timeout_seconds";
  // How long the first step of a plan takes nobody knows. Whoever has worked on one piece of it
  // for most of the time that the run has is to blame, before the run is given up, once a step.
  const bool is_first = situation.last_step_us == 0;
  const double patience_us = is_first ? train_s_ * kMicrosecondsPerSecond
                                      : std::max(lease_us_, kStuckFactor * situation.last_step_us);
  const bool is_late = has_steps && waited_us > patience_us && !(is_first && blamed_first_);
  const Member* culprit = is_late ? find_culprit(situation) : nullptr;
  const bool is_to_blame =
      culprit != nullptr && (!is_first || static_cast<double>(culprit->activity.action_us) * 2 >=
                                              train_s_ * kMicrosecondsPerSecond);
  if (is_to_blame) {
    blamed_first_ = is_first;
    verdict.kind = Verdict::Kind::kCulprit;
    verdict.culprit = culprit->id;
    verdict.reason = absl::StrCat("its device works on ", culprit->activity.action, " for ",
                                  culprit->activity.action_us / kMicrosecondsPerSecond, " s");
    return verdict;
  }
  const bool is_idle = situation.is_training && !situation.is_journaling &&
                       std::none_of(situation.workers.begin(), situation.workers.end(),
                                    [](const Member* each) { return each->activity.works; });
  if (is_idle && !tried_again_ && verdict.waited_s > verdict.limit_s / 2) {
    tried_again_ = true;
    verdict.kind = Verdict::Kind::kStuck;
  } else if (verdict.waited_s > verdict.limit_s) {
    verdict.kind = Verdict::Kind::kTimedOut;
  }
  return verdict;
}

}  // namespace skein::plans
