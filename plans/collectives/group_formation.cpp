#include "plans/collectives/group_formation.hpp"

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

const FormedGroup* find_offered(const Offers& offers, WorkerId worker, const FormedGroup& group) {
  const auto found = offers.find(worker);
  if (found == offers.end()) return nullptr;
  for (const FormedGroup& each : found->second.groups) {
    if (each.number == group.number && each.members == group.members) return &each;
  }
  return nullptr;
}

/// All of its members live, have done the same in it, and none was stopped.
bool is_healthy(const Offers& offers, const FormedGroup& group) {
  if (group.is_revoked) return false;
  return std::all_of(group.members.begin(), group.members.end(), [&](WorkerId member) {
    const FormedGroup* offered = find_offered(offers, member, group);
    return offered != nullptr && *offered == group;
  });
}

bool is_held_by(const Offers& offers, const Members& members, const FormedGroup& group) {
  return std::all_of(members.begin(), members.end(), [&](WorkerId member) {
    return find_offered(offers, member, group) != nullptr;
  });
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

/// Whether the groups that one split would make are the whole parent.
bool is_covered(const Round& round, const FormedGroup& parent) {
  std::set<WorkerId> covered;
  for (const Members& each : round.wanted) {
    const bool is_part = each != parent.members && contains(parent.members, each) &&
                         std::none_of(each.begin(), each.end(),
                                      [&](WorkerId member) { return covered.contains(member); });
    if (is_part) covered.insert(each.begin(), each.end());
  }
  return covered.size() == parent.members.size();
}

bool may_split(const Round& round, const FormedGroup& parent, const Members& wanted) {
  if (!is_healthy(round.offers, parent) || !is_covered(round, parent) ||
      !all_can(round.offers, parent.members, &GroupOffer::can_split)) {
    return false;
  }
  const auto cut = round.cut.find(parent.number);
  if (cut == round.cut.end()) return true;
  return std::none_of(wanted.begin(), wanted.end(),
                      [&](WorkerId member) { return cut->second.contains(member); });
}

std::optional<Formation> shrink_from(const Round& round, const FormedGroup& parent,
                                     const Members& wanted) {
  if (!all_can(round.offers, wanted, &GroupOffer::can_shrink)) return std::nullopt;
  const bool revokes = !is_healthy(round.offers, parent);
  if (revokes && !all_can(round.offers, wanted, &GroupOffer::can_revoke)) return std::nullopt;
  return Formation{FormationKind::kShrink, parent.number, revokes};
}

/// How `wanted` comes from `parent`, if it can.
std::optional<Formation> formation_from(const Round& round, const FormedGroup& parent,
                                        const Members& wanted) {
  if (round.whole.contains(parent.number) || !contains(parent.members, wanted) ||
      !is_held_by(round.offers, wanted, parent)) {
    return std::nullopt;
  }
  const bool is_cut = round.cut.contains(parent.number);
  if (parent.members == wanted) {
    if (is_cut || !is_healthy(round.offers, parent)) return std::nullopt;
    return Formation{FormationKind::kCached, parent.number};
  }
  if (may_split(round, parent, wanted)) return Formation{FormationKind::kSplit, parent.number};
  return is_cut ? std::nullopt : shrink_from(round, parent, wanted);
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

/// A part may have found a better parent: then the other parts have nobody to split with.
void give_up_partial_splits(const Round& round, std::vector<Formation>& formations) {
  for (size_t i = 0; i < formations.size(); ++i) {
    if (formations[i].kind != FormationKind::kSplit) continue;
    const auto& groups = round.offers.at(round.wanted[i].front()).groups;
    const auto parent = std::find_if(groups.begin(), groups.end(), [&](const FormedGroup& each) {
      return each.number == formations[i].parent;
    });
    const std::set<WorkerId>& cut = round.cut.at(formations[i].parent);
    if (cut.size() < parent->members.size()) formations[i] = {};
  }
}

absl::StatusOr<uint64_t> parse_number(absl::string_view text) {
  uint64_t number = 0;
  if (absl::SimpleAtoi(text, &number)) return number;
  return absl::InvalidArgumentError(
      absl::StrCat("an offer of groups has '", std::string(text), "' for a number"));
}

absl::StatusOr<FormedGroup> parse_group(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  if (words.size() < 3 || words.size() > kOfferMembersMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("an offer of groups has a line of ", words.size(), " words"));
  }
  std::vector<uint64_t> numbers;
  for (absl::string_view word : words) {
    const absl::StatusOr<uint64_t> number = parse_number(word);
    if (!number.ok()) return number.status();
    numbers.push_back(*number);
  }
  if (numbers[2] > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("group ", numbers[0], " of an offer is ", numbers[2], " times revoked"));
  }
  FormedGroup group;
  group.number = numbers[0];
  group.operations = numbers[1];
  group.is_revoked = numbers[2] != 0;
  for (size_t i = 3; i < numbers.size(); ++i) {
    const auto member = static_cast<uint32_t>(numbers[i]);
    if (member != numbers[i] || (i > 3 && numbers[i] <= numbers[i - 1])) {
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
  give_up_partial_splits(round, formations);
  return formations;
}

std::string to_text(const GroupOffer& offer) {
  std::string text =
      absl::StrCat(offer.can_shrink ? 1 : 0, offer.can_split ? 1 : 0, offer.can_revoke ? 1 : 0);
  for (const FormedGroup& group : offer.groups) {
    absl::StrAppend(&text, "\n", group.number, " ", group.operations, " ",
                    group.is_revoked ? 1 : 0);
    for (WorkerId member : group.members) absl::StrAppend(&text, " ", member.value);
  }
  return text;
}

absl::StatusOr<GroupOffer> parse_group_offer(const std::string& text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  const absl::string_view abilities = lines.front();
  const bool is_known =
      abilities.size() == 3 && abilities.find_first_not_of("01") == absl::string_view::npos;
  if (!is_known || lines.size() > kOfferGroupsMax + 1) {
    return absl::InvalidArgumentError(absl::StrCat("an offer of groups of ", lines.size(),
                                                   " lines begins with '",
                                                   std::string(abilities.substr(0, 20)), "'"));
  }
  GroupOffer offer;
  offer.can_shrink = abilities[0] == '1';
  offer.can_split = abilities[1] == '1';
  offer.can_revoke = abilities[2] == '1';
  for (size_t i = 1; i < lines.size(); ++i) {
    absl::StatusOr<FormedGroup> group = parse_group(lines[i]);
    if (!group.ok()) return group.status();
    offer.groups.push_back(*std::move(group));
  }
  return offer;
}

}  // namespace skein::plans
