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

std::string to_text(const ChaosDeed& deed) {
  const std::string who = name_of(deed.worker);
  switch (deed.kind) {
    case ChaosDeed::Kind::kSetSpeed:
      return deed.speed == 1 ? absl::StrCat(who, " runs at its own speed")
                             : absl::StrCat(who, " runs ", 1 / deed.speed, "x slower");
    case ChaosDeed::Kind::kKill:
      return absl::StrCat(who, " killed");
    case ChaosDeed::Kind::kTerm:
      return absl::StrCat(who, " asked to leave");
    case ChaosDeed::Kind::kStop:
      return absl::StrCat(who, " paused");
    case ChaosDeed::Kind::kContinue:
      return absl::StrCat(who, " goes on");
    case ChaosDeed::Kind::kJoin:
      return "another worker starts";
    case ChaosDeed::Kind::kDropLink:
      break;
  }
  return absl::StrCat(
      "link of ", who, " and ", name_of(deed.other), " dropped",
      deed.duration_s > 0 ? absl::StrCat(" for ", deed.duration_s, " s") : " for ever");
}

ChaosTimeline::ChaosTimeline(ChaosScript script) : script_(std::move(script)) {}

std::vector<ChaosDeed> ChaosTimeline::due(double elapsed_s, uint64_t steps_done) {
  std::vector<ChaosDeed> deeds;
  ChaosScript later;
  for (const ChaosAction& action : script_) {
    if (!is_due(action.when, elapsed_s, steps_done)) {
      later.push_back(action);
      continue;
    }
    // When exactly the step was done is not known: now.
    const double begin_s = action.when.at_step ? elapsed_s : action.when.at_s;
    end_until(begin_s, deeds);
    begin(action, begin_s, deeds);
  }
  script_ = std::move(later);
  end_until(elapsed_s, deeds);
  return deeds;
}

void ChaosTimeline::begin(const ChaosAction& action, double begin_s,
                          std::vector<ChaosDeed>& deeds) {
  ChaosDeed deed{ChaosDeed::Kind::kKill, action.worker, action.other, 1, 0};
  const End slow{action.worker, Lasting::kSlow};
  const End pause{action.worker, Lasting::kPause};
  switch (action.kind) {
    case Kind::kSlow:
      deed.kind = ChaosDeed::Kind::kSetSpeed;
      deed.speed = 1 / action.factor;
      ends_.erase(slow);
      if (action.duration_s > 0) ends_[slow] = begin_s + action.duration_s;
      break;
    case Kind::kKill:  // A number of a dead process may be another's soon.
      ends_.erase(slow);
      ends_.erase(pause);
      break;
    case Kind::kTerm:
      deed.kind = ChaosDeed::Kind::kTerm;
      break;
    case Kind::kPause:
      deed.kind = ChaosDeed::Kind::kStop;
      ends_[pause] = begin_s + action.duration_s;
      break;
    case Kind::kDropLink:
      deed.kind = ChaosDeed::Kind::kDropLink;
      deed.duration_s = action.duration_s;
      break;
    case Kind::kJoin:
      deed.kind = ChaosDeed::Kind::kJoin;
      break;
  }
  deeds.push_back(deed);
}

void ChaosTimeline::end_until(double until_s, std::vector<ChaosDeed>& deeds) {
  const auto sooner = [](const auto& a, const auto& b) { return a.second < b.second; };
  while (!ends_.empty()) {
    const auto next = std::min_element(ends_.begin(), ends_.end(), sooner);
    if (next->second > until_s) return;
    const auto& [worker, lasting] = next->first;
    const auto kind =
        lasting == Lasting::kSlow ? ChaosDeed::Kind::kSetSpeed : ChaosDeed::Kind::kContinue;
    deeds.push_back({kind, worker, {}, 1, 0});
    ends_.erase(next);
  }
}

}  // namespace skein::plans
