#include "plans/chaos/chaos_timeline.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::plans {
namespace {

using Kind = ChaosAction::Kind;

std::string name_of(WorkerId worker) {
  return worker.value == 0 ? "the coordinator" : absl::StrCat("w", worker.value);
}

bool is_due(const ChaosAction::Trigger& when, double elapsed_s, uint64_t steps_done) {
  return when.at_step ? *when.at_step <= steps_done : when.at_s <= elapsed_s;
}

}  // namespace

std::string to_text(const FaultAction& fault_action) {
  const std::string who = name_of(fault_action.worker);
  switch (fault_action.kind) {
    case FaultAction::Kind::kSetSpeed:
      return fault_action.speed == 1
                 ? absl::StrCat(who, " runs at its own speed")
                 : absl::StrCat(who, " runs ", 1 / fault_action.speed, "x slower");
    case FaultAction::Kind::kKill:
      return absl::StrCat(who, " killed");
    case FaultAction::Kind::kTerm:
      return absl::StrCat(who, " asked to leave");
    case FaultAction::Kind::kStop:
      return absl::StrCat(who, " paused");
    case FaultAction::Kind::kContinue:
      return absl::StrCat(who, " goes on");
    case FaultAction::Kind::kJoin:
      return "another worker starts";
    case FaultAction::Kind::kDropLink:
      break;
  }
  return absl::StrCat("link of ", who, " and ", name_of(fault_action.other), " dropped",
                      fault_action.duration_s > 0
                          ? absl::StrCat(" for ", fault_action.duration_s, " s")
                          : " for ever");
}

ChaosTimeline::ChaosTimeline(ChaosScript script) : script_(std::move(script)) {}

std::vector<FaultAction> ChaosTimeline::due(double elapsed_s, uint64_t steps_done) {
  std::vector<FaultAction> fault_actions;
  ChaosScript later;
  for (const ChaosAction& action : script_) {
    if (!is_due(action.when, elapsed_s, steps_done)) {
      later.push_back(action);
      continue;
    }
    // When exactly the step was done is not known: now.
    const double begin_s = action.when.at_step ? elapsed_s : action.when.at_s;
    end_until(begin_s, fault_actions);
    begin(action, begin_s, fault_actions);
  }
  script_ = std::move(later);
  end_until(elapsed_s, fault_actions);
  return fault_actions;
}

bool ChaosTimeline::awaits_join() const {
  return std::any_of(script_.begin(), script_.end(), [](const ChaosAction& action) {
    return action.kind == ChaosAction::Kind::kJoin && !action.when.at_step;
  });
}

void ChaosTimeline::begin(const ChaosAction& action, double begin_s,
                          std::vector<FaultAction>& fault_actions) {
  FaultAction fault_action{FaultAction::Kind::kKill, action.worker, action.other, 1, 0};
  const End slow{action.worker, Lasting::kSlow};
  const End pause{action.worker, Lasting::kPause};
  switch (action.kind) {
    case Kind::kSlow:
      fault_action.kind = FaultAction::Kind::kSetSpeed;
      fault_action.speed = 1 / action.factor;
      ends_.erase(slow);
      if (action.duration_s > 0) ends_[slow] = begin_s + action.duration_s;
      break;
    case Kind::kKill:  // A number of a dead process may be another's soon.
      ends_.erase(slow);
      ends_.erase(pause);
      break;
    case Kind::kTerm:
      fault_action.kind = FaultAction::Kind::kTerm;
      break;
    case Kind::kPause:
      fault_action.kind = FaultAction::Kind::kStop;
      ends_[pause] = begin_s + action.duration_s;
      break;
    case Kind::kDropLink:
      fault_action.kind = FaultAction::Kind::kDropLink;
      fault_action.duration_s = action.duration_s;
      break;
    case Kind::kJoin:
      fault_action.kind = FaultAction::Kind::kJoin;
      break;
  }
  fault_actions.push_back(fault_action);
}

void ChaosTimeline::end_until(double until_s, std::vector<FaultAction>& fault_actions) {
  const auto sooner = [](const auto& a, const auto& b) { return a.second < b.second; };
  while (!ends_.empty()) {
    const auto next = std::min_element(ends_.begin(), ends_.end(), sooner);
    if (next->second > until_s) return;
    const auto& [worker, lasting] = next->first;
    const auto kind =
        lasting == Lasting::kSlow ? FaultAction::Kind::kSetSpeed : FaultAction::Kind::kContinue;
    fault_actions.push_back({kind, worker, {}, 1, 0});
    ends_.erase(next);
  }
}

}  // namespace skein::plans
