#include "cli/report/churn_table.hpp"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/golden.hpp"

namespace skein::cli {
namespace {

using Kind = plans::MemberChange::Kind;

plans::Churn churn() {
  plans::Churn churn;
  churn.every = 3;
  churn.begin = {{0, Kind::kJoins, {1}, 0}, {0, Kind::kJoins, {2}, 1}};
  churn.changes = {{10, Kind::kNotice, {1}, 0},
                   {12, Kind::kGoes, {1}, 0},
                   {30, Kind::kJoins, {3}, 0},
                   {599, Kind::kGoes, {2}, 1}};
  churn.length_s = 600;
  return churn;
}

plans::ChurnSimulation simulation() {
  plans::ChurnSimulation simulation;
  simulation.length_s = 600;
  simulation.members_mean = 1.95;
  simulation.ideal_samples = 120'000;
  simulation.free_samples = 117'000;
  simulation.outcomes = {{"skein", 114'000, 3, 1, 0.3},
                         {"stop and restart", 90'000, 3, 22, 75.5},
                         {"whole pipelines of 4", 0, 0, 0, 600}};
  return simulation;
}

TEST(ChurnTable, HasAGoldenFile) {
  const ChurnSource source = {"g4dn-trace.csv", 8, {.scale = 60, .notice_s = 120}};
  tests::expect_golden("cli/churn.txt", churn_table(source, churn(), simulation()));
}

TEST(ChurnTable, SaysThatThereWasNoNotice) {
  plans::Churn every = churn();
  every.every = 1;
  const std::string text = churn_table({"a.csv", 8, {}}, every, simulation());
  EXPECT_NE(text.find("every machine of a.csv, 1 times faster"), std::string::npos) << text;
  EXPECT_NE(text.find("without a notice"), std::string::npos) << text;
}

TEST(ChurnTable, IsJsonForPrograms) {
  const ChurnSource source = {"g4dn-trace.csv", 8, {.scale = 60, .notice_s = 120}};
  const auto json = churn_json(source, churn(), simulation());
  EXPECT_EQ(json.at("simulated"), true);
  EXPECT_EQ(json.at("notice_s"), 2);
  EXPECT_EQ(json.at("losses"), 2);
  EXPECT_EQ(json.at("ways").at(1).at("steps_redone"), 22);
  EXPECT_EQ(json.at("chaos"), "w1:term@10s;w1:kill@12s;another:join@30s;w2:kill@599s");
}

}  // namespace
}  // namespace skein::cli
