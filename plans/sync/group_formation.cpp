#include "plans/sync/group_formation.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace skein::plans {
namespace {

using Members = std::vector<WorkerId>;
using Offers = std::map<WorkerId, GroupOffer>;

/// Bounds of what a peer may say.
constexpr size_t kOfferGroupsMax = 256;
constexpr size_t kOfferMembersMax = 4096;

bool contains(const Members& whole, const Members& part) {
  return std::includes(whole.begin(), whole.end(), part.begin(), part.end());
}

bool is_offered_by(const Offers& offers, WorkerId worker, const FormedGroup& group) {
  const auto found = offers.find(worker);
  if (found == offers.end()) return false;
  const auto& groups = found->second.groups;
  // Equal counts of operations, too: members that have not done the same are out of step.
  return std::find(groups.begin(), groups.end(), group) != groups.end();
}

bool is_healthy(const Offers& offers, const FormedGroup& group) {
  return std::all_of(group.members.begin(), group.members.end(),
                     [&](WorkerId member) { return is_offered_by(offers, member, group); });
}

bool all_can(const Offers& offers, const Members& members, bool GroupOffer::*ability) {
  return std::all_of(members.begin(), members.end(), [&](WorkerId member) {
    const auto found = offers.find(member);
    return found != offers.end() && found->second.*ability;
  });
}

/// A round, and what has been decided in it so far.
struct Round {
  const std::vector<Members>& wanted;
  const Offers& offers;
  std::set<uint64_t> whole;                    // Cached or shrunk: for nobody else.
  std::map<uint64_t, std::set<WorkerId>> cut;  // Split: who has a group already.
};

/// Whether one split would make several groups.
bool has_several(const Round& round, const FormedGroup& parent) {
  return std::count_if(round.wanted.begin(), round.wanted.end(), [&](const Members& each) {
           return each != parent.members && contains(parent.members, each);
         }) > 1;
}

bool may_split(const Round& round, const FormedGroup& parent, const Members& wanted) {
  if (!all_can(round.offers, parent.members, &GroupOffer::can_split)) return false;
  const auto cut = round.cut.find(parent.number);
  if (cut == round.cut.end()) return true;
  return std::none_of(wanted.begin(), wanted.end(),
                      [&](WorkerId member) { return cut->second.contains(member); });
}

/// How `wanted` comes from `parent`, if it can.
std::optional<Formation> formation_from(const Round& round, const FormedGroup& parent,
                                        const Members& wanted) {
  if (round.whole.contains(parent.number) || !contains(parent.members, wanted) ||
      !is_healthy(round.offers, parent)) {
    return std::nullopt;
  }
  const bool is_cut = round.cut.contains(parent.number);
  if (parent.members == wanted) {
    if (is_cut) return std::nullopt;
    return Formation{FormationKind::kCached, parent.number};
  }
  const bool splits = may_split(round, parent, wanted);
  if (splits && (is_cut || has_several(round, parent))) {
    return Formation{FormationKind::kSplit, parent.number};
  }
  if (!is_cut && all_can(round.offers, wanted, &GroupOffer::can_shrink)) {
    return Formation{FormationKind::kShrink, parent.number};
  }
  if (splits) return Formation{FormationKind::kSplit, parent.number};
  return std::nullopt;
}

Formation choose(Round& round, const Members& wanted) {
  Formation best;
  const FormedGroup* best_parent = nullptr;
  const auto first = round.offers.find(wanted.front());
  if (first == round.offers.end()) return best;
  for (const FormedGroup& parent : first->second.groups) {
    const auto formation = formation_from(round, parent, wanted);
    if (!formation) continue;
    const bool is_better = best_parent == nullptr ||
                           parent.members.size() < best_parent->members.size() ||
                           (parent.members.size() == best_parent->members.size() &&
                            parent.number > best_parent->number);
    if (!is_better) continue;
    best = *formation;
    best_parent = &parent;
  }
  if (best.kind == FormationKind::kSplit) {
    round.cut[best.parent].insert(wanted.begin(), wanted.end());
  } else if (best.kind != FormationKind::kNewId) {
    round.whole.insert(best.parent);
  }
  return best;
}

absl::StatusOr<uint64_t> parse_number(absl::string_view text) {
  uint64_t number = 0;
  if (absl::SimpleAtoi(text, &number)) return number;
  return absl::InvalidArgumentError(
      absl::StrCat("an offer of groups has '", std::string(text), "' for a number"));
}

absl::StatusOr<FormedGroup> parse_group(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  if (words.size() < 2 || words.size() > kOfferMembersMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("an offer of groups has a line of ", words.size(), " words"));
  }
  std::vector<uint64_t> numbers;
  for (absl::string_view word : words) {
    const absl::StatusOr<uint64_t> number = parse_number(word);
    if (!number.ok()) return number.status();
    numbers.push_back(*number);
  }
  FormedGroup group;
  group.number = numbers[0];
  group.operations = numbers[1];
  for (size_t i = 2; i < numbers.size(); ++i) {
    const auto member = static_cast<uint32_t>(numbers[i]);
    if (member != numbers[i] || (i > 2 && numbers[i] <= numbers[i - 1])) {
      return absl::InvalidArgumentError(absl::StrCat("group ", group.number, " of an offer has ",
                                                     numbers[i], " among its members"));
    }
    group.members.push_back(WorkerId{member});
  }
  return group;
}

}  // namespace

std::vector<Formation> choose_formations(const std::vector<std::vector<WorkerId>>& wanted,
                                         const std::map<WorkerId, GroupOffer>& offers) {
  Round round{wanted, offers, {}, {}};
  std::vector<Formation> formations;
  for (const Members& members : wanted) formations.push_back(choose(round, members));
  return formations;
}

std::string to_text(const GroupOffer& offer) {
  std::string text = absl::StrCat(offer.can_shrink ? 1 : 0, offer.can_split ? 1 : 0);
  for (const FormedGroup& group : offer.groups) {
    absl::StrAppend(&text, "\n", group.number, " ", group.operations);
    for (WorkerId member : group.members) absl::StrAppend(&text, " ", member.value);
  }
  return text;
}

absl::StatusOr<GroupOffer> parse_group_offer(const std::string& text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  const absl::string_view abilities = lines.front();
  const bool is_known =
      abilities.size() == 2 && abilities.find_first_not_of("01") == absl::string_view::npos;
  if (!is_known || lines.size() > kOfferGroupsMax + 1) {
    return absl::InvalidArgumentError(absl::StrCat("an offer of groups of ", lines.size(),
                                                   " lines begins with '",
                                                   std::string(abilities.substr(0, 20)), "'"));
  }
  GroupOffer offer;
  offer.can_shrink = abilities[0] == '1';
  offer.can_split = abilities[1] == '1';
  for (size_t i = 1; i < lines.size(); ++i) {
    absl::StatusOr<FormedGroup> group = parse_group(lines[i]);
    if (!group.ok()) return group.status();
    offer.groups.push_back(*std::move(group));
  }
  return offer;
}

}  // namespace skein::plans
