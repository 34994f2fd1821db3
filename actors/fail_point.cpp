#include "actors/fail_point.hpp"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace skein::actors {
namespace {

constexpr std::array<std::pair<const char*, FailPlace>, 13> kPlaces = {{
    {"before-ready", FailPlace::kBeforeReady},
    {"after-ready", FailPlace::kAfterReady},
    {"during-reduction", FailPlace::kDuringReduction},
    {"while-applying", FailPlace::kWhileApplying},
    {"during-state-send", FailPlace::kDuringStateSend},
    {"during-state-fetch", FailPlace::kDuringStateFetch},
    {"before-prepared", FailPlace::kBeforePrepared},
    {"before-quiesced", FailPlace::kBeforeQuiesced},
    {"during-checkpoint", FailPlace::kDuringCheckpoint},
    {"during-snapshot", FailPlace::kDuringSnapshot},
    {"before-commit-broadcast", FailPlace::kBeforeCommitBroadcast},
    {"before-start", FailPlace::kBeforeStart},
    {"while-planning", FailPlace::kWhilePlanning},
}};

std::optional<FailPlace> find_place(const std::string& name) {
  for (const auto& [each, place] : kPlaces) {
    if (name == each) return place;
  }
  return std::nullopt;
}

/// "coordinator" or "w2".
std::optional<plans::WorkerId> parse_target(const std::string& text) {
  if (text == "coordinator") return plans::WorkerId{};
  uint32_t number = 0;
  const bool fits = text.starts_with("w") && absl::SimpleAtoi(text.substr(1), &number);
  return fits && number > 0 ? std::optional(plans::WorkerId{number}) : std::nullopt;
}

absl::Status bad_text(const std::string& text) {
  const std::string names = absl::StrJoin(
      kPlaces, ", ", [](std::string* out, const auto& each) { out->append(each.first); });
  return absl::InvalidArgumentError(
      absl::StrCat("fail point \"", text,
                   "\" is not [w2:|coordinator:]place[:count|:20s] with "
                   "one of these places: ",
                   names));
}

}  // namespace

absl::StatusOr<std::shared_ptr<FailPoint>> FailPoint::parse(const std::string& text) {
  std::vector<std::string> words = absl::StrSplit(text, ':');
  std::optional<plans::WorkerId> target;
  if (words.size() > 1 && !find_place(words.front())) {
    target = parse_target(words.front());
    if (!target) return bad_text(text);
    words.erase(words.begin());
  }
  const std::optional<FailPlace> place = find_place(words.front());
  int64_t count = 1;
  int64_t pause_seconds = 0;
  bool fits = place.has_value() && words.size() <= 2;
  if (fits && words.size() == 2) {
    absl::string_view number = words[1];
    int64_t& to = absl::ConsumeSuffix(&number, "s") ? pause_seconds : count;
    fits = absl::SimpleAtoi(number, &to) && to > 0;
  }
  if (!fits) return bad_text(text);
  return std::make_shared<FailPoint>(*place, target, count, pause_seconds);
}

void FailPoint::reach(FailPlace place) {
  if (place != place_ || !is_armed_) return;
  if (pause_seconds_ > 0) {
    poll(nullptr, 0, static_cast<int>(pause_seconds_ * 1000));
    return;
  }
  if (++reached_ != count_) return;
  for (const auto& [name, each] : kPlaces) {
    if (each == place) std::fprintf(stderr, "fail point %s: SIGKILL\n", name);
  }
  kill(getpid(), SIGKILL);
}

}  // namespace skein::actors
