#include "plans/collectives/group_formation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

using Members = std::vector<WorkerId>;
using Offers = std::map<WorkerId, GroupOffer>;

/// A group that was formed, as a test sees it.
struct Formed {
  uint64_t number = 0;
  Members members;
  uint64_t operations = 0;

  /// What a member offers of it.
  FormedGroup of(WorkerId member) const {
    const auto rank = std::find(members.begin(), members.end(), member) - members.begin();
    return {number, static_cast<uint32_t>(rank), static_cast<uint32_t>(members.size()), operations};
  }
};

/// Every member offers each of `groups` that it is in.
Offers offers_of(const std::vector<Formed>& groups, const Members& alive, bool can_shrink,
                 bool can_split, bool can_revoke = true) {
  Offers offers;
  for (WorkerId worker : alive) {
    GroupOffer& offer = offers[worker];
    offer.can_shrink = can_shrink;
    offer.can_split = can_split;
    offer.can_revoke = can_revoke;
    for (const Formed& group : groups) {
      if (std::count(group.members.begin(), group.members.end(), worker) > 0) {
        offer.groups.push_back(group.of(worker));
      }
    }
  }
  return offers;
}

const Members kFour = {{1}, {2}, {3}, {4}};
const Formed kWorld{7, kFour, 3};
Formation shrunk(uint64_t parent, std::vector<RankRange> left, bool revokes = false) {
  return {FormationKind::kShrink, parent, revokes, std::move(left)};
}

TEST(GroupFormation, ACachedGroupIsUsedOncePerRound) {
  const Offers offers = offers_of({kWorld}, kFour, true, true);
  const auto formations = choose_formations({kFour, kFour}, offers);
  EXPECT_EQ(formations[0], (Formation{FormationKind::kCached, 7}));
  EXPECT_EQ(formations[1], (Formation{FormationKind::kNewId, 0}));
}

TEST(GroupFormation, OneGroupOfASupersetShrinksIt) {
  const Offers offers = offers_of({kWorld}, kFour, true, true);
  EXPECT_EQ(choose_formations({{{1}, {3}}}, offers)[0], shrunk(7, {{1, 2}, {3, 4}}));
}

TEST(GroupFormation, GroupsThatAreAWholeParentTogetherComeOfOneSplit) {
  const Offers offers = offers_of({kWorld}, kFour, true, true);
  const Formation split{FormationKind::kSplit, 7};
  const auto formations = choose_formations({{{1}, {3}}, {{2}, {4}}, {{1}, {2}}}, offers);
  EXPECT_EQ(formations[0], split);
  EXPECT_EQ(formations[1], split);
  EXPECT_EQ(formations[2].kind, FormationKind::kNewId) << "overlaps both";
}

TEST(GroupFormation, NothingIsSplitWhereAMemberWouldBeLeftOver) {
  const Members six = {{1}, {2}, {3}, {4}, {5}, {6}};
  const std::vector<Members> wanted = {{{1}, {2}}, {{3}, {4}}};
  const auto formations = choose_formations(wanted, offers_of({{7, six, 3}}, six, true, true));
  EXPECT_EQ(formations[0], shrunk(7, {{2, 6}}));
  EXPECT_EQ(formations[1].kind, FormationKind::kNewId) << "one shrink of a parent at most";
  for (const Formation& each :
       choose_formations(wanted, offers_of({{7, six, 3}}, six, false, true))) {
    EXPECT_EQ(each.kind, FormationKind::kNewId);
  }
}

TEST(GroupFormation, WhereAPartHasABetterParentTheOthersAreFormedAnew) {
  const Members three = {{1}, {2}, {3}};
  const auto formations = choose_formations({{{1}, {2}}, {{3}, {4}}},
                                            offers_of({kWorld, {8, three, 0}}, kFour, true, true));
  EXPECT_EQ(formations[0], shrunk(8, {{2, 3}})) << "it is smaller";
  EXPECT_EQ(formations[1].kind, FormationKind::kNewId);
}

TEST(GroupFormation, ALibraryThatCannotShrinkSplitsWhatItCan) {
  const std::vector<Members> both = {{{1}, {3}}, {{2}, {4}}};
  const Offers offers = offers_of({kWorld}, kFour, false, true);
  EXPECT_EQ(choose_formations(both, offers)[1].kind, FormationKind::kSplit);
  EXPECT_EQ(choose_formations({both[0]}, offers)[0].kind, FormationKind::kNewId);
  EXPECT_EQ(choose_formations(both, offers_of({kWorld}, kFour, false, false))[0].kind,
            FormationKind::kNewId);
}

TEST(GroupFormation, AfterALossThoseWhoStayRevokeAndShrink) {
  const Members three = {{1}, {2}, {3}};
  const Offers offers = offers_of({kWorld}, three, true, true);
  EXPECT_EQ(choose_formations({three}, offers)[0], shrunk(7, {{3, 4}}, /*revokes=*/true));
  for (const Offers& weak : {offers_of({kWorld}, three, true, true, /*can_revoke=*/false),
                             offers_of({kWorld}, three, false, true)}) {
    EXPECT_EQ(choose_formations({three}, weak)[0].kind, FormationKind::kNewId);
  }
}

TEST(GroupFormation, OneThatWasStoppedIsShrunkByAllWhoStayAndNeverUsedAsItIs) {
  Offers offers = offers_of({kWorld}, kFour, true, true);
  offers[WorkerId{2}].groups[0].is_revoked = true;
  const auto formations = choose_formations({kFour, {{1}, {2}}}, offers);
  EXPECT_EQ(formations[0].kind, FormationKind::kNewId);
  EXPECT_EQ(formations[1], shrunk(7, {{2, 4}}, /*revokes=*/true));
  offers[WorkerId{1}].groups.clear();  // Aborted.
  EXPECT_EQ(choose_formations({{{1}, {2}}}, offers)[0].kind, FormationKind::kNewId);
}

TEST(GroupFormation, AParentWhoseMembersAreOutOfStepIsNotUsed) {
  Offers offers = offers_of({kWorld}, kFour, true, true);
  ++offers[WorkerId{2}].groups[0].operations;
  EXPECT_EQ(choose_formations({kFour}, offers)[0].kind, FormationKind::kNewId);
}

TEST(GroupFormation, TheSmallestParentWinsThenTheNewest) {
  const Members three = {{1}, {2}, {3}};
  const Offers offers =
      offers_of({kWorld, {8, three, 0}, {9, three, 0}, {10, kFour, 0}}, kFour, true, true);
  EXPECT_EQ(choose_formations({{{1}, {2}}}, offers)[0], shrunk(9, {{2, 3}}));
}

TEST(GroupFormation, NothingIsMadeOfAGroupWhoseMembersContradictEachOther) {
  const std::vector<void (*)(FormedGroup&)> lies = {
      [](FormedGroup& group) { group.rank = 0; },  // As another member's.
      [](FormedGroup& group) { group.rank = 3; },  // Behind a larger number's.
      [](FormedGroup& group) { ++group.rank_count; },
  };
  for (const auto& lie : lies) {
    Offers offers = offers_of({kWorld}, {{1}, {2}, {3}}, true, true);
    lie(offers[WorkerId{2}].groups[0]);
    const auto formations = choose_formations({{{1}, {2}}, {{1}, {3}}}, offers);
    for (const Formation& each : formations) EXPECT_EQ(each.kind, FormationKind::kNewId);
    EXPECT_EQ(kept_groups({kFour}, offers, {})[0], std::vector<uint64_t>{});
  }
}

TEST(GroupFormation, WhoLeavesInTooManyPlacesMakesAGroupAnew) {
  Members all, odd;
  for (uint32_t worker = 1; worker <= 2 * kLeftRangesMax + 2; ++worker) {
    all.push_back({worker});
    if (worker % 2 == 1) odd.push_back({worker});
  }
  const Offers offers = offers_of({{7, all, 0}}, all, true, true);
  EXPECT_EQ(choose_formations({odd}, offers)[0].kind, FormationKind::kNewId);
  odd.push_back({2});
  std::sort(odd.begin(), odd.end());
  EXPECT_EQ(choose_formations({odd}, offers)[0].left.size(), kLeftRangesMax);
}

TEST(GroupFormation, WhatIsWholeAndUnusedIsKeptTheNewestFirst) {
  const Members three = {{1}, {2}, {3}};
  const Offers offers =
      offers_of({kWorld, {8, three, 0}, {9, {{1}, {5}}, 0}, {10, three, 0}}, kFour, true, true);
  const std::vector<Formation> formations = {shrunk(8, {{2, 3}}), {FormationKind::kCached, 10}};
  EXPECT_EQ(kept_groups({three, {{3}, {4}}, {{4}, {5}}}, offers, formations),
            (std::vector<std::vector<uint64_t>>{{7, 10}, {7, 10}, {7}}))
      << "5 is gone, and with it group 9";
  std::vector<Formed> many;
  for (uint64_t number = 1; number <= kKeptMax + 2; ++number) many.push_back({number, three, 0});
  const auto kept = kept_groups({three}, offers_of(many, three, true, true), {})[0];
  EXPECT_EQ(kept.size(), kKeptMax);
  EXPECT_EQ(kept.front(), 3u);
}

/// A random round of up to 6 workers.
struct RandomRound {
  explicit RandomRound(uint64_t seed) : rng(seed) {
    const auto workers = static_cast<uint32_t>(2 + rng.below(5));
    for (uint32_t w = 1; w <= workers; ++w) alive.push_back(WorkerId{w});
    const uint64_t count = rng.below(5);
    for (uint64_t number = 1; number <= count; ++number) groups.push_back({number, draw(), 0});
    for (uint64_t i = rng.below(4); i > 0; --i) wanted.push_back(draw());
    if (workers >= 4 && rng.below(2) == 0) {  // Two that are a parent together.
      wanted.push_back({alive.begin(), alive.begin() + 2});
      wanted.push_back({alive.begin() + 2, alive.end()});
      groups.push_back({9, alive, 0});
    }
    offers = offers_of(groups, alive, rng.below(4) > 0, rng.below(4) > 0, rng.below(2) > 0);
    for (auto& [worker, offer] : offers) {
      if (!offer.groups.empty() && rng.below(6) == 0) offer.groups.pop_back();  // It was aborted.
      if (!offer.groups.empty() && rng.below(6) == 0) offer.groups[0].is_revoked = true;
    }
  }

  Members draw() {
    Members members;
    while (members.size() < 2) {
      members.clear();
      for (WorkerId each : alive) {
        if (rng.below(2) == 0) members.push_back(each);
      }
    }
    return members;
  }

  /// How many of `members` offer the group just as it was formed; or in any state.
  size_t offering(const Formed& group, const Members& members, bool in_any_state) const {
    size_t count = 0;
    for (WorkerId member : members) {
      for (FormedGroup each : offers.at(member).groups) {
        if (in_any_state) each.is_revoked = false;
        if (each == group.of(member)) ++count;
      }
    }
    return count;
  }

  Rng rng;
  Members alive;
  std::vector<Formed> groups;
  Offers offers;
  std::vector<Members> wanted;
};

/// The rules, on random rounds.
TEST(GroupFormation, EveryRoundCanBeCarriedOut) {
  int counts[4] = {};
  int revoked = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    const RandomRound round(seed);
    const auto& wanted = round.wanted;
    const auto formations = choose_formations(wanted, round.offers);
    ASSERT_EQ(formations.size(), wanted.size());
    std::set<uint64_t> alone;
    std::map<uint64_t, std::set<WorkerId>> cut;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto& [kind, number, revokes, left] = formations[i];
      ++counts[static_cast<int>(kind)];
      if (revokes) ++revoked;
      if (kind == FormationKind::kNewId) continue;
      const auto parent = std::find_if(round.groups.begin(), round.groups.end(),
                                       [&](const auto& each) { return each.number == number; });
      ASSERT_NE(parent, round.groups.end());
      const Members& members = parent->members;
      Members staying = members;
      for (auto range = left.rbegin(); range != left.rend(); ++range) {
        staying.erase(staying.begin() + range->begin, staying.begin() + range->end);
      }
      ASSERT_TRUE(kind != FormationKind::kShrink || staying == wanted[i]) << "seed " << seed;
      ASSERT_TRUE(
          std::includes(members.begin(), members.end(), wanted[i].begin(), wanted[i].end()));
      ASSERT_EQ(kind == FormationKind::kCached, members == wanted[i]);
      const bool is_healthy = round.offering(*parent, members, false) == members.size();
      ASSERT_EQ(is_healthy, !revokes) << "seed " << seed;
      ASSERT_EQ(round.offering(*parent, wanted[i], true), wanted[i].size()) << "seed " << seed;
      const GroupOffer& offer = round.offers.at(wanted[i].front());
      ASSERT_TRUE(!revokes || (offer.can_revoke && kind == FormationKind::kShrink));
      if (kind == FormationKind::kSplit) {
        ASSERT_TRUE(offer.can_split);
        for (WorkerId member : wanted[i]) {
          ASSERT_TRUE(cut[number].insert(member).second) << "in two groups of one split";
        }
      } else {
        ASSERT_TRUE(alone.insert(number).second) << "seed " << seed;
      }
      ASSERT_FALSE(alone.contains(number) && cut.contains(number)) << "seed " << seed;
    }
    for (const auto& [number, members] : cut) {
      const auto parent = std::find_if(round.groups.begin(), round.groups.end(),
                                       [&](const auto& each) { return each.number == number; });
      ASSERT_EQ(members.size(), parent->members.size()) << "nobody is left over, seed " << seed;
    }
  }
  for (int count : counts) EXPECT_GT(count, 50) << "every kind occurs";
  EXPECT_GT(revoked, 50);
}

TEST(GroupFormation, OffersSurviveTheirText) {
  for (bool can_shrink : {false, true}) {
    const GroupOffer offer{
        {kWorld.of({2}), {9, 1, 2, 0, can_shrink}}, can_shrink, !can_shrink, can_shrink};
    const auto parsed = parse_group_offer(to_text(offer));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, offer);
  }
  EXPECT_EQ(*parse_group_offer(to_text(GroupOffer{})), GroupOffer{});
}

TEST(GroupFormation, WhatIsNoOfferIsRefused) {
  for (const char* text :
       {"", "2", "12", "112", "1111", "111\n", "111\n1 0 0 0", "111\n1 x 0 0 2", "111\n1 0 2 0 2",
        "111\n1 0 0 2 2", "111\n1 0 0 0 1", "111\n1 0 0 -1 2", "111\n1 0 0 0 4294967297",
        "111\n1 0 0 0 2 3", "111\n99999999999999999999999 0 0 0 2"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(parse_group_offer(text).status())) << text;
  }
}

TEST(GroupFormation, FormationsSurviveTheirText) {
  for (const Formation& formation :
       {Formation(), Formation{FormationKind::kCached, 7}, Formation{FormationKind::kSplit, 8},
        shrunk(1 << 20, {{0, 1}, {3, 9}}, true)}) {
    const auto parsed = parse_formation(to_text(formation));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, formation);
  }
}

TEST(GroupFormation, WhatIsNoFormationIsRefused) {
  std::string long_text = "1 7 0";
  for (size_t i = 0; i <= kLeftRangesMax; ++i)
    absl::StrAppend(&long_text, " ", 2 * i, " ", 2 * i + 1);
  for (const std::string& text :
       {std::string(), std::string("1 7"), std::string("4 7 0"), std::string("1 7 2"),
        std::string("1 7 0 1"), std::string("1 7 0 2 2"), std::string("1 7 0 2 3 1 2"),
        std::string("1 7 0 0 99999999"), std::string("1 x 0"), long_text}) {
    EXPECT_TRUE(absl::IsInvalidArgument(parse_formation(text).status())) << text;
  }
}

}  // namespace
}  // namespace skein::plans
