#include "plans/collectives/group_formation.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace skein::plans {
namespace {

using Members = std::vector<WorkerId>;
using Offers = std::map<WorkerId, GroupOffer>;

/// What a peer may say.
constexpr size_t kOfferGroupsMax = 256;

/// A group as those say who offer it.
struct Parent {
  uint64_t number = 0;
  uint32_t rank_count = 0;
  uint64_t operations = 0;
  std::map<uint32_t, WorkerId> members;  // By rank; who does not offer it is not known.
  bool is_in_step = true;  // All who offer it have done the same, and none revoked it.
  bool is_sound = true;    // They do not contradict each other.

  bool is_healthy() const { return is_in_step && members.size() == rank_count; }
};
using Parents = std::map<uint64_t, Parent>;

void add_offer(WorkerId worker, const FormedGroup& group, Parents& parents) {
  const auto [found, is_new] = parents.try_emplace(group.number);
  Parent& parent = found->second;
  if (is_new) {
    parent.number = group.number;
    parent.rank_count = group.rank_count;
    parent.operations = group.operations;
  }
  const bool fits = group.rank_count == parent.rank_count && group.rank < group.rank_count;
  parent.is_sound &= fits && parent.members.emplace(group.rank, worker).second;
  parent.is_in_step &= group.operations == parent.operations && !group.is_revoked;
}

bool ascends(const std::map<uint32_t, WorkerId>& members) {
  return std::is_sorted(members.begin(), members.end(), [](const auto& one, const auto& other) {
    return one.second < other.second;
  });
}

Parents parents_of(const Offers& offers) {
  Parents parents;
  for (const auto& [worker, offer] : offers) {
    for (const FormedGroup& group : offer.groups) add_offer(worker, group, parents);
  }
  for (auto& [number, parent] : parents) parent.is_sound &= ascends(parent.members);
  std::erase_if(parents, [](const auto& each) { return !each.second.is_sound; });
  return parents;
}

bool all_can(const Offers& offers, const Members& members, bool GroupOffer::*ability) {
  return std::all_of(members.begin(), members.end(), [&](WorkerId member) {
    const auto found = offers.find(member);
    return found != offers.end() && found->second.*ability;
  });
}

Members members_of(const Parent& parent) {
  Members members;
  for (const auto& [rank, member] : parent.members) members.push_back(member);
  return members;
}

bool contains(const Members& whole, const Members& part) {
  return std::includes(whole.begin(), whole.end(), part.begin(), part.end());
}

/// A round, and what has been decided in it so far.
struct Round {
  const std::vector<Members>& wanted;
  const Offers& offers;
  const Parents parents;
  std::set<uint64_t> whole;                    // Cached or shrunk: for nobody else.
  std::map<uint64_t, std::set<WorkerId>> cut;  // Split: who has a group already.
  std::map<uint64_t, bool> splits;             // What `can_split` has found.
};

/// The groups that one split would make are the whole parent, and all of its members can.
bool can_split(Round& round, const Parent& parent) {
  const auto [known, is_new] = round.splits.try_emplace(parent.number);
  if (!is_new) return known->second;
  const Members members = members_of(parent);
  if (!parent.is_healthy() || !all_can(round.offers, members, &GroupOffer::can_split)) return false;
  std::set<WorkerId> covered;
  for (const Members& each : round.wanted) {
    const bool is_part = each != members && contains(members, each) &&
                         std::none_of(each.begin(), each.end(),
                                      [&](WorkerId member) { return covered.contains(member); });
    if (is_part) covered.insert(each.begin(), each.end());
  }
  return known->second = covered.size() == members.size();
}

bool may_split(Round& round, const Parent& parent, const Members& wanted) {
  if (!can_split(round, parent)) return false;
  const auto cut = round.cut.find(parent.number);
  if (cut == round.cut.end()) return true;
  return std::none_of(wanted.begin(), wanted.end(),
                      [&](WorkerId member) { return cut->second.contains(member); });
}

/// The parent's ranks that none of `wanted` has.
std::vector<RankRange> ranks_left(const Parent& parent, const Members& wanted) {
  std::vector<RankRange> left;
  for (uint32_t rank = 0; rank < parent.rank_count; ++rank) {
    const auto member = parent.members.find(rank);
    const bool stays = member != parent.members.end() &&
                       std::binary_search(wanted.begin(), wanted.end(), member->second);
    if (stays) continue;
    if (left.empty() || left.back().end != rank) left.push_back({rank, rank});
    left.back().end = rank + 1;
  }
  return left;
}

std::optional<Formation> shrink_from(const Round& round, const Parent& parent,
                                     const Members& wanted) {
  if (!all_can(round.offers, wanted, &GroupOffer::can_shrink)) return std::nullopt;
  const bool revokes = !parent.is_healthy();
  if (revokes && !all_can(round.offers, wanted, &GroupOffer::can_revoke)) return std::nullopt;
  std::vector<RankRange> left = ranks_left(parent, wanted);
  if (left.size() > kLeftRangesMax) return std::nullopt;
  return Formation{FormationKind::kShrink, parent.number, revokes, std::move(left)};
}

/// How `wanted` comes from `parent`, if it can: those who stay all offer it.
std::optional<Formation> formation_from(Round& round, const Parent& parent, const Members& wanted) {
  if (round.whole.contains(parent.number) || !contains(members_of(parent), wanted)) {
    return std::nullopt;
  }
  const bool is_cut = round.cut.contains(parent.number);
  if (parent.rank_count == wanted.size()) {
    if (is_cut || !parent.is_healthy()) return std::nullopt;
    return Formation{FormationKind::kCached, parent.number};
  }
  if (may_split(round, parent, wanted)) return Formation{FormationKind::kSplit, parent.number};
  return is_cut ? std::nullopt : shrink_from(round, parent, wanted);
}

Formation choose(Round& round, const Members& wanted) {
  Formation best;
  const Parent* best_parent = nullptr;
  const auto first = round.offers.find(wanted.front());
  if (first == round.offers.end()) return best;
  for (const FormedGroup& offered : first->second.groups) {
    const auto found = round.parents.find(offered.number);
    if (found == round.parents.end()) continue;
    const Parent& parent = found->second;
    std::optional<Formation> formation = formation_from(round, parent, wanted);
    if (!formation) continue;
    const bool is_better =
        best_parent == nullptr || parent.rank_count < best_parent->rank_count ||
        (parent.rank_count == best_parent->rank_count && parent.number > best_parent->number);
    if (!is_better) continue;
    best = *std::move(formation);
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
  for (Formation& formation : formations) {
    if (formation.kind != FormationKind::kSplit) continue;
    const Parent& parent = round.parents.at(formation.parent);
    if (round.cut.at(formation.parent).size() < parent.rank_count) formation = {};
  }
}

absl::Status wrong_text(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("how groups are formed is told with ", what));
}

absl::StatusOr<uint64_t> parse_number(absl::string_view text) {
  uint64_t number = 0;
  if (absl::SimpleAtoi(text, &number)) return number;
  return wrong_text(absl::StrCat("'", std::string(text.substr(0, 20)), "' for a number"));
}

absl::StatusOr<std::vector<uint64_t>> parse_numbers(absl::string_view line) {
  std::vector<uint64_t> numbers;
  for (absl::string_view word : absl::StrSplit(line, ' ')) {
    const absl::StatusOr<uint64_t> number = parse_number(word);
    if (!number.ok()) return number.status();
    numbers.push_back(*number);
  }
  return numbers;
}

absl::StatusOr<FormedGroup> parse_group(absl::string_view line) {
  const absl::StatusOr<std::vector<uint64_t>> numbers = parse_numbers(line);
  if (!numbers.ok()) return numbers.status();
  const bool fits = numbers->size() == 5 && (*numbers)[2] <= 1 && (*numbers)[4] >= 2 &&
                    (*numbers)[4] <= kWorkerIdMax && (*numbers)[3] < (*numbers)[4];
  if (!fits) return wrong_text(absl::StrCat("'", std::string(line.substr(0, 80)), "' for a group"));
  FormedGroup group;
  group.number = (*numbers)[0];
  group.operations = (*numbers)[1];
  group.is_revoked = (*numbers)[2] == 1;
  group.rank = static_cast<uint32_t>((*numbers)[3]);
  group.rank_count = static_cast<uint32_t>((*numbers)[4]);
  return group;
}

}  // namespace

std::vector<Formation> choose_formations(const std::vector<std::vector<WorkerId>>& wanted,
                                         const std::map<WorkerId, GroupOffer>& offers) {
  Round round{wanted, offers, parents_of(offers), {}, {}, {}};
  std::vector<Formation> formations;
  for (const Members& members : wanted) formations.push_back(choose(round, members));
  give_up_partial_splits(round, formations);
  return formations;
}

std::vector<std::vector<uint64_t>> kept_groups(const std::vector<std::vector<WorkerId>>& groups,
                                               const std::map<WorkerId, GroupOffer>& offers,
                                               const std::vector<Formation>& formations) {
  Parents parents = parents_of(offers);
  std::erase_if(parents, [](const auto& each) { return !each.second.is_healthy(); });
  for (const Formation& each : formations) {
    if (each.kind != FormationKind::kCached) parents.erase(each.parent);
  }
  std::vector<std::vector<uint64_t>> kept;
  for (const Members& members : groups) {
    std::set<uint64_t> offered;
    for (WorkerId member : members) {
      const auto found = offers.find(member);
      if (found == offers.end()) continue;
      for (const FormedGroup& group : found->second.groups) {
        if (parents.contains(group.number)) offered.insert(group.number);
      }
    }
    while (offered.size() > kKeptMax) offered.erase(offered.begin());
    kept.emplace_back(offered.begin(), offered.end());
  }
  return kept;
}

std::string to_text(const GroupOffer& offer) {
  std::string text =
      absl::StrCat(offer.can_shrink ? 1 : 0, offer.can_split ? 1 : 0, offer.can_revoke ? 1 : 0);
  for (const FormedGroup& group : offer.groups) {
    absl::StrAppend(&text, "\n", group.number, " ", group.operations, " ", group.is_revoked ? 1 : 0,
                    " ", group.rank, " ", group.rank_count);
  }
  return text;
}

absl::StatusOr<GroupOffer> parse_group_offer(const std::string& text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  const absl::string_view abilities = lines.front();
  const bool is_known =
      abilities.size() == 3 && abilities.find_first_not_of("01") == absl::string_view::npos;
  if (!is_known || lines.size() > kOfferGroupsMax + 1) {
    return wrong_text(absl::StrCat(lines.size(), " lines, of which the first is '",
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

std::string to_text(const Formation& formation) {
  std::string text = absl::StrCat(static_cast<int>(formation.kind), " ", formation.parent, " ",
                                  formation.revokes ? 1 : 0);
  for (const RankRange& range : formation.left) {
    absl::StrAppend(&text, " ", range.begin, " ", range.end);
  }
  return text;
}

absl::StatusOr<Formation> parse_formation(const std::string& text) {
  const absl::StatusOr<std::vector<uint64_t>> numbers = parse_numbers(text);
  if (!numbers.ok()) return numbers.status();
  const bool fits = numbers->size() >= 3 && numbers->size() % 2 == 1 &&
                    numbers->size() <= 3 + 2 * kLeftRangesMax &&
                    (*numbers)[0] <= static_cast<uint64_t>(FormationKind::kNewId) &&
                    (*numbers)[2] <= 1;
  if (!fits) {
    return wrong_text(absl::StrCat("'", std::string(text.substr(0, 80)), "' for a formation"));
  }
  Formation formation;
  formation.kind = static_cast<FormationKind>((*numbers)[0]);
  formation.parent = (*numbers)[1];
  formation.revokes = (*numbers)[2] == 1;
  uint64_t before = 0;
  for (size_t i = 3; i < numbers->size(); i += 2) {
    const uint64_t begin = (*numbers)[i], end = (*numbers)[i + 1];
    if (begin < before || end <= begin || end > kWorkerIdMax) {
      return wrong_text(absl::StrCat("ranks ", begin, " to ", end));
    }
    before = end;
    formation.left.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
  }
  return formation;
}

}  // namespace skein::plans
