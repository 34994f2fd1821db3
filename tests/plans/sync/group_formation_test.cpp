#include "plans/sync/group_formation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

using Members = std::vector<WorkerId>;
using Offers = std::map<WorkerId, GroupOffer>;

/// Every member offers each of `groups` that it is in.
Offers offers_of(const std::vector<FormedGroup>& groups, const Members& alive, bool can_shrink,
                 bool can_split) {
  Offers offers;
  for (WorkerId worker : alive) {
    GroupOffer& offer = offers[worker];
    offer.can_shrink = can_shrink;
    offer.can_split = can_split;
    for (const FormedGroup& group : groups) {
      if (std::count(group.members.begin(), group.members.end(), worker) > 0) {
        offer.groups.push_back(group);
      }
    }
  }
  return offers;
}

const Members kFour = {{1}, {2}, {3}, {4}};
const FormedGroup kWorld{7, kFour, 3};

TEST(GroupFormation, ACachedGroupIsUsedOncePerRound) {
  const Offers offers = offers_of({kWorld}, kFour, true, true);
  const auto formations = choose_formations({kFour, kFour}, offers);
  EXPECT_EQ(formations[0], (Formation{FormationKind::kCached, 7}));
  EXPECT_EQ(formations[1], (Formation{FormationKind::kNewId, 0}));
}

TEST(GroupFormation, OneGroupOfASupersetShrinksIt) {
  const Offers offers = offers_of({kWorld}, kFour, true, true);
  EXPECT_EQ(choose_formations({{{1}, {3}}}, offers)[0], (Formation{FormationKind::kShrink, 7}));
}

TEST(GroupFormation, SeveralDisjointGroupsComeOfOneSplit) {
  const Offers offers = offers_of({kWorld}, kFour, true, true);
  const Formation split{FormationKind::kSplit, 7};
  const auto formations = choose_formations({{{1}, {3}}, {{2}, {4}}, {{1}, {2}}}, offers);
  EXPECT_EQ(formations[0], split);
  EXPECT_EQ(formations[1], split);
  EXPECT_EQ(formations[2].kind, FormationKind::kNewId) << "overlaps both";
}

TEST(GroupFormation, ALibraryThatCannotShrinkSplits) {
  EXPECT_EQ(choose_formations({{{1}, {3}}}, offers_of({kWorld}, kFour, false, true))[0].kind,
            FormationKind::kSplit);
  EXPECT_EQ(choose_formations({{{1}, {3}}}, offers_of({kWorld}, kFour, false, false))[0].kind,
            FormationKind::kNewId);
}

TEST(GroupFormation, AParentWithADeadMemberIsNotUsed) {
  const Offers offers = offers_of({kWorld}, {{1}, {2}, {3}}, true, true);
  EXPECT_EQ(choose_formations({{{1}, {2}, {3}}}, offers)[0].kind, FormationKind::kNewId);
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
  EXPECT_EQ(choose_formations({{{1}, {2}}}, offers)[0], (Formation{FormationKind::kShrink, 9}));
}

/// The rules, on random rounds.
TEST(GroupFormation, EveryRoundCanBeCarriedOut) {
  int counts[4] = {};
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    Rng rng(seed);
    const auto workers = static_cast<uint32_t>(2 + rng.below(5));
    auto draw = [&] {
      Members members;
      while (members.size() < 2) {
        members.clear();
        for (uint32_t w = 1; w <= workers; ++w) {
          if (rng.below(2) == 0) members.push_back(WorkerId{w});
        }
      }
      return members;
    };
    Members alive;
    for (uint32_t w = 1; w <= workers; ++w) alive.push_back(WorkerId{w});
    std::vector<FormedGroup> groups;
    for (uint64_t number = 1; number <= rng.below(5); ++number)
      groups.push_back({number, draw(), 0});
    const bool can_shrink = rng.below(4) > 0, can_split = rng.below(4) > 0;
    Offers offers = offers_of(groups, alive, can_shrink, can_split);
    for (auto& [worker, offer] : offers) {
      if (!offer.groups.empty() && rng.below(6) == 0) offer.groups.pop_back();  // It was aborted.
    }
    std::vector<Members> wanted;
    for (uint64_t i = 0; i <= rng.below(4); ++i) wanted.push_back(draw());
    const auto formations = choose_formations(wanted, offers);
    ASSERT_EQ(formations.size(), wanted.size());
    std::set<uint64_t> alone;
    std::map<uint64_t, std::set<WorkerId>> cut;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto [kind, number] = formations[i];
      ++counts[static_cast<int>(kind)];
      if (kind == FormationKind::kNewId) continue;
      const auto parent = std::find_if(groups.begin(), groups.end(),
                                       [&](const auto& each) { return each.number == number; });
      ASSERT_NE(parent, groups.end());
      ASSERT_TRUE(std::includes(parent->members.begin(), parent->members.end(), wanted[i].begin(),
                                wanted[i].end()));
      ASSERT_EQ(kind == FormationKind::kCached, parent->members == wanted[i]);
      for (WorkerId member : parent->members) {
        const auto& offered = offers.at(member).groups;
        ASSERT_EQ(std::count(offered.begin(), offered.end(), *parent), 1) << "seed " << seed;
      }
      if (kind == FormationKind::kSplit) {
        ASSERT_TRUE(can_split);
        for (WorkerId member : wanted[i]) {
          ASSERT_TRUE(cut[number].insert(member).second) << "in two groups of one split";
        }
      } else {
        ASSERT_TRUE(alone.insert(number).second) << "seed " << seed;
      }
      ASSERT_FALSE(alone.contains(number) && cut.contains(number)) << "seed " << seed;
    }
  }
  for (int count : counts) EXPECT_GT(count, 50) << "every kind occurs";
}

TEST(GroupFormation, OffersSurviveTheirText) {
  for (bool can_shrink : {false, true}) {
    const GroupOffer offer{{kWorld, {9, {{2}, {5}}, 0}}, can_shrink, !can_shrink};
    const auto parsed = parse_group_offer(to_text(offer));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, offer);
  }
  EXPECT_EQ(*parse_group_offer(to_text({})), GroupOffer{});
}

TEST(GroupFormation, WhatIsNoOfferIsRefused) {
  for (const char* text :
       {"", "2", "12", "111", "11\n", "11\n1", "11\n1 x 2", "11\n1 0 3 2", "11\n1 0 3 3",
        "11\n1 0 -1", "11\n1 0 4294967297", "11\n1 0 99999999999999999999999"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(parse_group_offer(text).status())) << text;
  }
}

}  // namespace
}  // namespace skein::plans
