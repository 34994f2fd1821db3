#include "actors/replica/step_trace.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "plans/base/check.hpp"

namespace skein::actors {
namespace {

constexpr uint64_t kInProgress = UINT64_MAX;

}  // namespace

void StepTrace::end_step(uint64_t step, uint64_t now_us, bool profiles_next, const Report& report) {
  for (const auto& [stage, times] : stages_) {
    record(stage, "commit", kControl, times.ready_us, now_us);
  }
  for (auto& [stage, by_step] : slices_) {
    const auto in_progress = by_step.extract(kInProgress);
    if (!in_progress.empty()) {
      std::vector<net::Slice>& own = by_step[step];
      own.insert(own.end(), in_progress.mapped().begin(), in_progress.mapped().end());
    }
    const auto end = by_step.upper_bound(step);
    for (auto each = by_step.begin(); each != end; ++each) {
      for (net::Slice& slice : each->second) {
        // The coordinator's clock may be so far behind ours that a slice began before its zero.
        const int64_t start_us = static_cast<int64_t>(slice.start_us) + clock_offset_us_;
        slice.start_us = static_cast<uint64_t>(std::max<int64_t>(start_us, 0));
      }
      report(stage, each->first, std::move(each->second));
    }
    by_step.erase(by_step.begin(), end);
  }
  // What there is of a step that is not profiled to its end is no picture of it.
  if (!profiles_next) slices_.clear();
  if (profiles_) profiled_step_ = step;
  profiles_ = profiles_next;
  step_start_us_ = now_us;
}

void StepTrace::on_work(const plans::ProgramCommand& work, uint64_t start_us, uint64_t end_us,
                        uint64_t wait_us) {
  const uint64_t taken_us = end_us - start_us;
  if (const auto* run = std::get_if<plans::RunAction>(&work)) {
    const int32_t stage = run->action.stage;
    StageTimes& times = count(stage, taken_us, wait_us);
    if (wait_us > 0) {
      record(stage, "another job", kCompute, start_us - wait_us, start_us, -1, run->step);
    }
    if (run->part == 0) times.parts_start_us = start_us;
    if (!run->is_last_part()) return;
    record(stage, plans::to_text(run->action), kCompute, times.parts_start_us, end_us,
           run->action.microbatch, run->step);
    count_stash(*run);
  } else if (const auto* norm = std::get_if<plans::RunNorm>(&work)) {
    count(norm->stage, taken_us, wait_us);
  } else if (const auto* share = std::get_if<plans::RunShare>(&work)) {
    count(share->stage, taken_us, wait_us);
  } else if (const auto* begin = std::get_if<plans::RunBegin>(&work)) {
    spread(taken_us, wait_us);
    record(stages_.begin()->first, "begin", kCompute, start_us, end_us, -1, begin->step);
  } else if (std::holds_alternative<plans::RunUpdate>(work)) {
    spread(taken_us, wait_us);
    record(stages_.begin()->first, "update", kCompute, start_us, end_us, -1,
           std::get<plans::RunUpdate>(work).step);
  }
}

/// Work of all stages together.
void StepTrace::spread(uint64_t taken_us, uint64_t wait_us) {
  for (const auto& [stage, times] : stages_) {
    count(stage, taken_us / stages_.size(), wait_us / stages_.size());
  }
}

StepTrace::StageTimes& StepTrace::count(int32_t stage, uint64_t taken_us, uint64_t wait_us) {
  StageTimes& times = stages_.at(stage);
  times.busy_us += taken_us;
  times.wait_us += wait_us;
  return times;
}

void StepTrace::count_stash(const plans::RunAction& run) {
  StageTimes& times = stages_.at(run.action.stage);
  if (run.action.type == plans::ActionType::kForward) {
    times.stash_peak = std::max(times.stash_peak, ++times.stashes);
  } else if (run.action.type != plans::ActionType::kBackwardInput) {
    SKEIN_CHECK(times.stashes > 0) << plans::to_text(run.action) << " has no forward";
    --times.stashes;
  }
}

void StepTrace::on_snapshot(uint64_t taken_us) {
  for (auto& [stage, times] : stages_) times.snapshot_us = taken_us;
}

void StepTrace::on_ready(int32_t stage, uint64_t now_us, plans::ReadyReport& report) {
  StageTimes& times = stages_.at(stage);
  times.ready_us = now_us;
  report.busy_us = std::exchange(times.busy_us, 0);
  report.device_wait_us = std::exchange(times.wait_us, 0);
  report.step_us = now_us - step_start_us_;
  report.stash_peak = std::exchange(times.stash_peak, times.stashes);
  report.snapshot_us = times.snapshot_us;
  times.weight_delay = report.weight_delay;
}

void StepTrace::record(int32_t stage, const std::string& slice, Track track, uint64_t start_us,
                       uint64_t end_us, int32_t microbatch, std::optional<uint64_t> step) {
  if (!overlaps_) step.reset();
  const bool is_late = step && profiled_step_ && *step == *profiled_step_;
  if ((!profiles_ && !is_late) || end_us < start_us) return;
  slices_[stage][step.value_or(kInProgress)].push_back(
      {slice, track, start_us, end_us - start_us, microbatch});
}

}  // namespace skein::actors
