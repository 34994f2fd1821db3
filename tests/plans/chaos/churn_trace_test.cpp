#include "plans/chaos/churn_trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

using ChangeKind = MemberChange::Kind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ChurnTrace trace_of(const std::string& text) {
  const auto trace = parse_churn(text);
  EXPECT_TRUE(trace.ok()) << trace.status();
  return trace.value_or(ChurnTrace{});
}

Churn churn_of(const std::string& text, int64_t devices, const ChurnOptions& options = {}) {
  const auto churn = members_of(trace_of(text), devices, options);
  EXPECT_TRUE(churn.ok()) << churn.status();
  return churn.value_or(Churn{});
}

std::string message_of(const std::string& text) {
  return std::string(parse_churn(text).status().message());
}

TEST(ChurnTrace, ReadsWhatBambooRecorded) {
  EXPECT_THAT(trace_of("# AWS\n480000,add,node1\n\n 540500 , add , node2  # Late.\n"
                       "600000,remove,node1\r\n"),
              ElementsAre(ChurnEvent{480, true, "node1"}, ChurnEvent{540.5, true, "node2"},
                          ChurnEvent{600, false, "node1"}));
}

TEST(ChurnTrace, LetsMachinesGoBeforeOthersComeAtOneInstant) {
  const ChurnTrace trace = trace_of("0,add,a\n1000,add,b\n1000,remove,a\n");
  EXPECT_THAT(trace, ElementsAre(ChurnEvent{0, true, "a"}, ChurnEvent{1, false, "a"},
                                 ChurnEvent{1, true, "b"}));
}

TEST(ChurnTrace, ForgetsAMachineThatStaysForNoTime) {
  EXPECT_THAT(trace_of("0,add,a\n5,add,b\n5,remove,b\n"), SizeIs(1));
  EXPECT_THAT(message_of("5,add,b\n5,remove,b\n"), HasSubstr("no machine that stays"));
}

TEST(ChurnTrace, NamesTheLineAndWhatIsWrongInIt) {
  EXPECT_THAT(message_of(""), HasSubstr("480000,add,node1"));
  EXPECT_THAT(message_of("0,add,a\n1,add\n"), HasSubstr("line 2: it has 2 cells"));
  EXPECT_THAT(message_of("0.5,add,a\n"), HasSubstr("line 1: its time"));
  EXPECT_THAT(message_of("-1,add,a\n"), HasSubstr("its time"));
  EXPECT_THAT(message_of("99999999999999999999,add,a\n"), HasSubstr("its time"));
  EXPECT_THAT(message_of("316224000001,add,a\n"), HasSubstr("its time"));
  EXPECT_THAT(message_of("0,join,a\n"), HasSubstr("neither add nor remove"));
  EXPECT_THAT(message_of("0,add,\n"), HasSubstr("no name"));
  EXPECT_THAT(message_of(absl::StrCat("0,add,", std::string(65, 'x'))), HasSubstr("no name"));
  EXPECT_THAT(message_of("0,add,a\x1b[2J\n"), HasSubstr("no name"));
  EXPECT_THAT(message_of("5,add,a\n4,add,b\n"), HasSubstr("line 2: its time is before"));
  EXPECT_THAT(message_of("5,add,a\n6,add,a\n"), HasSubstr("a comes and is there already"));
  EXPECT_THAT(message_of("5,remove,a\n"), HasSubstr("a goes and is not there"));
}

TEST(ChurnTrace, HasABound) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) absl::StrAppend(&text, i, ",add,n", i, "\n");
  EXPECT_THAT(trace_of(text), SizeIs(20'000));
  absl::StrAppend(&text, "20000,add,last\n");
  EXPECT_THAT(message_of(text), HasSubstr("more than 20000 events"));
}

TEST(Churn, BeginsWithWhoIsThereAndNumbersTheOthersAsTheyCome) {
  const Churn churn = churn_of(
      "0,add,a\n0,add,b\n10000,remove,a\n20000,add,c\n30000,add,a\n40000,remove,c\n50000,add,d\n",
      3);
  EXPECT_EQ(churn.every, 1);
  EXPECT_EQ(churn.length_s, 50);
  EXPECT_THAT(churn.begin, ElementsAre(MemberChange{0, ChangeKind::kJoins, {1}, 0},
                                       MemberChange{0, ChangeKind::kJoins, {2}, 1}));
  EXPECT_THAT(churn.changes, ElementsAre(MemberChange{10, ChangeKind::kGoes, {1}, 0},
                                         MemberChange{20, ChangeKind::kJoins, {3}, 0},
                                         MemberChange{30, ChangeKind::kJoins, {4}, 2},
                                         MemberChange{40, ChangeKind::kGoes, {3}, 0}));
}

TEST(Churn, IsScaledAndCut) {
  const std::string text = "0,add,a\n0,add,b\n10000,remove,a\n20000,add,c\n30000,remove,b\n";
  const Churn churn = churn_of(text, 3, {.scale = 10, .notice_s = 0, .from_s = 15, .length_s = 10});
  EXPECT_EQ(churn.length_s, 1);
  EXPECT_THAT(churn.begin, ElementsAre(MemberChange{0, ChangeKind::kJoins, {1}, 0}));  // b.
  EXPECT_THAT(churn.changes, ElementsAre(MemberChange{0.5, ChangeKind::kJoins, {2}, 1}));
}

TEST(Churn, HasNoticesNoEarlierThanTheMachine) {
  const Churn churn =
      churn_of("0,add,a\n60000,add,b\n90000,remove,b\n200000,remove,a\n300000,add,c\n", 2,
               {.scale = 10, .notice_s = 120});
  EXPECT_THAT(churn.changes, ElementsAre(MemberChange{6, ChangeKind::kJoins, {2}, 1},
                                         MemberChange{6, ChangeKind::kNotice, {2}, 1},
                                         MemberChange{8, ChangeKind::kNotice, {1}, 0},
                                         MemberChange{9, ChangeKind::kGoes, {2}, 1},
                                         MemberChange{20, ChangeKind::kGoes, {1}, 0}));
}

TEST(Churn, LeavesMachinesOutUntilTheOthersFit) {
  std::string text;
  for (int i = 0; i < 7; ++i) absl::StrAppend(&text, "0,add,n", i, "\n");
  text += "1000,remove,n0\n2000,add,last\n";
  EXPECT_EQ(churn_of(text, 7).every, 1);
  EXPECT_EQ(churn_of(text, 6).every, 2);
  EXPECT_EQ(churn_of(text, 3).every, 3);
  EXPECT_THAT(churn_of(text, 3).begin, SizeIs(3));  // n0, n3 and n6.
  EXPECT_EQ(churn_of(text, 1).every, 7);
}

TEST(Churn, RefusesWhatIsOutOfRange) {
  const ChurnTrace trace = trace_of("0,add,a\n9000,remove,a\n");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(members_of(trace, 0, {}).ok());
  EXPECT_FALSE(members_of({}, 1, {}).ok());
  for (const ChurnOptions& options :
       {ChurnOptions{.scale = 0}, ChurnOptions{.scale = nan}, ChurnOptions{.scale = 1e7},
        ChurnOptions{.notice_s = -1}, ChurnOptions{.notice_s = nan}, ChurnOptions{.from_s = nan},
        ChurnOptions{.length_s = -1}, ChurnOptions{.from_s = 9}, ChurnOptions{.from_s = 10}}) {
    EXPECT_FALSE(members_of(trace, 1, options).ok());
  }
}

TEST(Churn, NeverHasMoreMembersThanDevicesNorTwoOnOne) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    std::string text;
    std::set<uint64_t> here;
    for (uint64_t at_ms = 1; at_ms < 200; at_ms += rng.below(3)) {
      const uint64_t machine = rng.below(12);
      const bool comes = here.insert(machine).second;
      if (!comes) here.erase(machine);
      absl::StrAppend(&text, at_ms, comes ? ",add,n" : ",remove,n", machine, "\n");
    }
    const auto trace = parse_churn(text);
    ASSERT_TRUE(trace.ok()) << trace.status() << "\n" << text;
    const auto devices = static_cast<int64_t>(1 + rng.below(8));
    const auto churn = members_of(*trace, devices, {.notice_s = 0.002});
    ASSERT_TRUE(churn.ok()) << churn.status();
    std::map<uint32_t, int32_t> device_of;
    uint32_t newest = 0;
    double last_s = 0;
    auto join = [&](const MemberChange& change) {
      EXPECT_EQ(change.worker.value, ++newest);
      for (const auto& [worker, device] : device_of) EXPECT_NE(device, change.device);
      EXPECT_LT(change.device, devices);
      device_of[change.worker.value] = change.device;
    };
    for (const MemberChange& change : churn->begin) join(change);
    for (const MemberChange& change : churn->changes) {
      EXPECT_GE(change.at_s, last_s);
      EXPECT_LT(change.at_s, churn->length_s);
      last_s = change.at_s;
      if (change.kind == ChangeKind::kJoins) {
        join(change);
      } else {
        EXPECT_TRUE(device_of.contains(change.worker.value)) << "seed " << seed;
      }
      if (change.kind == ChangeKind::kGoes) device_of.erase(change.worker.value);
    }
  }
}

TEST(Churn, IsAFaultScriptForARealRun) {
  const Churn churn = churn_of("0,add,a\n60000,add,b\n90000,remove,a\n99000,remove,b\n", 2,
                               {.scale = 10, .notice_s = 20});
  const ChaosScript script = chaos_of(churn);
  EXPECT_EQ(to_text(script), "another:join@6s;w1:term@7s;w2:term@7.9s;w1:kill@9s");
  EXPECT_EQ(*parse_chaos(to_text(script)), script);
  EXPECT_THAT(chaos_of({}), IsEmpty());
}

}  // namespace
}  // namespace skein::plans
