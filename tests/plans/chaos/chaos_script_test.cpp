#include "plans/chaos/chaos_script.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

using Kind = ChaosAction::Kind;
using testing::HasSubstr;

ChaosAction one(const std::string& text) {
  const auto script = parse_chaos(text);
  EXPECT_TRUE(script.ok()) << script.status();
  if (!script.ok() || script->size() != 1) return {};
  return script->front();
}

TEST(ChaosScript, ReadsEveryKind) {
  EXPECT_EQ(one("w1:slow=4x@10s"), (ChaosAction{Kind::kSlow, {1}, {}, 4, 0, {10, {}}}));
  EXPECT_EQ(one("w1:slow=4x,20s@10s"), (ChaosAction{Kind::kSlow, {1}, {}, 4, 20, {10, {}}}));
  EXPECT_EQ(one("w1:slow=1x@40s"), (ChaosAction{Kind::kSlow, {1}, {}, 1, 0, {40, {}}}));
  EXPECT_EQ(one("w2:kill@30s"), (ChaosAction{Kind::kKill, {2}, {}, 1, 0, {30, {}}}));
  EXPECT_EQ(one("w2:kill@step=12"), (ChaosAction{Kind::kKill, {2}, {}, 1, 0, {0, 12}}));
  EXPECT_EQ(one("w12:term@1.5m"), (ChaosAction{Kind::kTerm, {12}, {}, 1, 0, {90, {}}}));
  EXPECT_EQ(one("w3:pause=5s@500ms"), (ChaosAction{Kind::kPause, {3}, {}, 1, 5, {0.5, {}}}));
  EXPECT_EQ(one("link(w1,w2):drop@50s"), (ChaosAction{Kind::kDropLink, {1}, {2}, 1, 0, {50, {}}}));
  EXPECT_EQ(one("link(w2,w1):drop=2s@step=0"),
            (ChaosAction{Kind::kDropLink, {2}, {1}, 1, 2, {0, 0}}));
  EXPECT_EQ(one("another:join@45s"), (ChaosAction{Kind::kJoin, {}, {}, 1, 0, {45, {}}}));
  EXPECT_EQ(one(" coordinator:kill@0s ; "), (ChaosAction{Kind::kKill, {0}, {}, 1, 0, {0, {}}}));
}

TEST(ChaosScript, IsSortedByTimeThenByStepAndElseAsItIsWritten) {
  const auto script =
      parse_chaos("w1:kill@step=3;w2:kill@2s;w3:kill@step=1;w4:kill@1s;w5:term@2000ms");
  ASSERT_TRUE(script.ok()) << script.status();
  EXPECT_EQ(to_text(*script), "w4:kill@1s;w2:kill@2s;w5:term@2s;w3:kill@step=1;w1:kill@step=3");
}

TEST(ChaosScript, ErrorsNameTheEntryTheFaultAndAWayOut) {
  struct Case {
    const char* entry;
    const char* fault;
    const char* advice;
  };
  const Case cases[] = {
      {"w2", "expected target:what@when", "w2:kill@30s"},
      {"w2:kill", "expected target:what@when", "w2:kill@30s"},
      {"w2@30s:kill", "expected target:what@when", "w2:kill@30s"},
      {"w0:kill@1s", "\"w0\" is not a worker", "w1, w2"},
      {"w-1:kill@1s", "\"w-1\" is not a worker", "w1, w2"},
      {"w4294967296:kill@1s", "is not a worker", "w1, w2"},
      {"2:kill@1s", "\"2\" is not a worker", "w1, w2"},
      {"w2:kill@30", "\"30\" is not a time", "5s"},
      {"w2:kill@s", "\"s\" is not a time", "5s"},
      {"w2:kill@-1s", "is not a time", "5s"},
      {"w2:kill@infs", "is not a time", "5s"},
      {"w2:kill@1h", "is not a time", "2m"},
      {"w2:kill@1e9s", "more than 31 days", "5s"},
      {"w2:kill@step=x", "is not a step", "step=12"},
      {"w2:kill@step=-1", "is not a step", "step=12"},
      {"w2:kill=9@1s", "kill takes no value", "w2:kill@30s"},
      {"w2:slow@1s", "is not how many times slower", "slow=4x"},
      {"w2:slow=4@1s", "\"4\" is not how many times slower", "slow=4x"},
      {"w2:slow=0.5x@1s", "is not how many times slower", "slow=4x"},
      {"w2:slow=nanx@1s", "is not how many times slower", "slow=4x"},
      {"w2:slow=4x,0s@1s", "lasts no time", "5s"},
      {"w2:pause@1s", "is not a time", "5s"},
      {"w2:explode@1s", "\"explode\" cannot be done to a worker", "pause=5s"},
      {"w2:drop@1s", "\"drop\" cannot be done to a worker", "slow=4x"},
      {"link(w1,w2):kill@1s", "\"kill\" cannot be done to a link", "drop=2s"},
      {"link(w1):drop@1s", "does not name two workers", "link(w1,w2)"},
      {"link():drop@1s", "does not name two workers", "link(w1,w2)"},
      {"link(w1,w1):drop@1s", "joins a worker to itself", "link(w1,w2)"},
      {"another:kill@1s", "can only join", "another:join@30s"},
      {"another:join=2@1s", "join takes no value", "join"},
      {"coordinator:pause=5s@1s", "can only be killed", "coordinator:kill@30s"},
  };
  for (const Case& each : cases) {
    const auto script = parse_chaos(absl::StrCat("w1:kill@1s;", each.entry, ";w1:kill@2s"));
    ASSERT_TRUE(absl::IsInvalidArgument(script.status())) << each.entry;
    const std::string message(script.status().message());
    EXPECT_THAT(message, HasSubstr(absl::StrCat("entry 2, \"", each.entry, "\""))) << message;
    EXPECT_THAT(message, HasSubstr(each.fault)) << message;
    EXPECT_THAT(message, HasSubstr(each.advice)) << message;
  }
  EXPECT_THAT(std::string(parse_chaos(" ; ").status().message()), HasSubstr("there is no entry"));
}

TEST(ChaosScript, RefusesMoreEntriesThanAnyRunNeeds) {
  std::string text;
  for (int i = 0; i < 10'000; ++i) text += "w1:kill@1s;";
  EXPECT_TRUE(parse_chaos(text).ok());
  EXPECT_FALSE(parse_chaos(text + "w1:kill@1s").ok());
}

ChaosAction any_action(Rng& rng) {
  constexpr Kind kKinds[] = {Kind::kSlow, Kind::kKill, Kind::kTerm, Kind::kPause, Kind::kDropLink};
  ChaosAction action;
  action.kind = kKinds[rng.below(5)];
  action.worker = {static_cast<uint32_t>(1 + rng.below(9))};
  if (action.kind == Kind::kKill && rng.below(4) == 0) action.worker = {};
  const bool lasts = rng.below(2) == 1;
  const double duration_s = rng.uniform() * 100 + 1e-6;
  if (action.kind == Kind::kDropLink) action.other = {action.worker.value + 1};
  if (action.kind == Kind::kSlow) action.factor = 1 + rng.uniform() * 9;
  if (action.kind == Kind::kPause) action.duration_s = duration_s;
  if ((action.kind == Kind::kSlow || action.kind == Kind::kDropLink) && lasts) {
    action.duration_s = duration_s;
  }
  if (rng.below(2) == 0) {
    action.when.at_s = rng.uniform() * 1000;
  } else {
    action.when.at_step = rng.below(1000);
  }
  return action;
}

TEST(ChaosScript, ItsTextParsesBackToTheSame) {
  Rng rng(7);
  for (int round = 0; round < 2000; ++round) {
    ChaosScript script;
    for (uint64_t n = 1 + rng.below(5); n > 0; --n) script.push_back(any_action(rng));
    for (const ChaosAction& action : script) ASSERT_EQ(one(to_text(action)), action);
    const auto sorted = parse_chaos(to_text(script));
    ASSERT_TRUE(sorted.ok()) << sorted.status();
    ASSERT_TRUE(std::is_permutation(sorted->begin(), sorted->end(), script.begin(), script.end()));
    ASSERT_EQ(*parse_chaos(to_text(*sorted)), *sorted);
  }
}

TEST(ChaosScript, NoTextBreaksTheParser) {
  Rng rng(11);
  const std::string seed = "w1:slow=4x,20s@10s;link(w1,w2):drop=2s@step=3;coordinator:kill@1m";
  for (int round = 0; round < 20'000; ++round) {
    std::string text = seed.substr(0, 1 + rng.below(seed.size()));
    for (int n = 0; n < 3; ++n) {
      text[rng.below(text.size())] = static_cast<char>(rng.below(128));
    }
    const auto script = parse_chaos(text);
    if (!script.ok()) continue;
    ASSERT_EQ(*parse_chaos(to_text(*script)), *script) << text;
  }
}

}  // namespace
}  // namespace skein::plans
