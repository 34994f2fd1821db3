#include "cli/config/job_keys.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace skein::cli {
namespace {

using plans::JobSpec;
using testing::HasSubstr;

/// A value of the key's type that no default has.
std::string other_value(const JobKey& key) {
  if (key.type == "boolean") return key.get(JobSpec{}) == "true" ? "false" : "true";
  if (key.type == "string") return "\"elsewhere\"";
  if (key.type == "number") return "0.3125";
  if (key.type == "list of integers") return "[7, 0, 3]";
  if (key.type == "list of numbers") return "[0.5, 1e-09]";
  if (key.type == "list of strings") return R"(["a, b.bin", "c\"d"])";
  return "77";
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const JobKey& key : job_keys()) result.push_back(key.full_name());
  return result;
}

/// The key's value after `text` was set, or what went wrong.
std::string after(const char* name, const std::string& text) {
  const JobKey* key = find_key(name);
  JobSpec job;
  const absl::Status status = key->set(job, text);
  return status.ok() ? key->get(job) : std::string(status.message());
}

TEST(JobKeys, AreUniqueAndTheirSectionsAreTogether) {
  std::set<std::string> seen;
  std::set<std::string> sections;
  std::string section;
  for (const JobKey& key : job_keys()) {
    EXPECT_TRUE(seen.insert(key.full_name()).second) << key.full_name();
    EXPECT_FALSE(key.help.empty()) << key.full_name();
    if (key.section == section) continue;
    section = key.section;
    EXPECT_TRUE(sections.insert(section).second) << "two sections " << section;
  }
}

TEST(JobKeys, TheDefaultOfEveryKeyReadsBack) {
  for (const JobKey& key : job_keys()) {
    JobSpec job;
    ASSERT_TRUE(key.set(job, key.get(JobSpec{})).ok()) << key.full_name();
    EXPECT_EQ(job, JobSpec{}) << key.full_name();
  }
}

TEST(JobKeys, EveryKeySetsItsOwnFieldAndNoOther) {
  for (const JobKey& key : job_keys()) {
    JobSpec job;
    ASSERT_TRUE(key.set(job, other_value(key)).ok()) << key.full_name();
    EXPECT_NE(job, JobSpec{}) << key.full_name();
    for (const JobKey& each : job_keys()) {
      const bool own = each.full_name() == key.full_name();
      EXPECT_EQ(each.get(job), own ? other_value(key) : each.get(JobSpec{}))
          << key.full_name() << " was set";
    }
    JobSpec again;
    ASSERT_TRUE(key.set(again, key.get(job)).ok()) << key.full_name();
    EXPECT_EQ(again, job) << key.full_name();
  }
}

TEST(JobKeys, NothingOfTheWrongTypeIsTaken) {
  for (const JobKey& key : job_keys()) {
    if (key.type == "string" || key.type == "list of strings") continue;
    for (const char* wrong : {"", "seven", "1x", "[1, x]", "nan", "\"3\""}) {
      const bool is_list = key.type.starts_with("list");
      if (is_list && std::string(wrong).empty()) continue;  // The empty list.
      JobSpec job;
      const absl::Status status = key.set(job, wrong);
      ASSERT_FALSE(status.ok()) << key.full_name() << " = " << wrong;
      EXPECT_THAT(std::string(status.message()), HasSubstr("expected ")) << key.full_name();
      EXPECT_THAT(std::string(status.message()), HasSubstr(wrong)) << key.full_name();
    }
  }
}

TEST(JobKeys, NumbersKeepTheirExactValue) {
  for (double value : {0.1, 1.0 / 3, 1e-300, 6e23, 5e-324, 100.0, 1e21, -0.0}) {
    JobSpec job;
    job.optimizer.lr = value;
    JobSpec again;
    const JobKey* key = find_key("optimizer.lr");
    ASSERT_TRUE(key->set(again, key->get(job)).ok()) << key->get(job);
    EXPECT_EQ(again.optimizer.lr, value) << key->get(job);
    // TOML tells numbers from integers by these.
    EXPECT_NE(key->get(job).find_first_of(".e"), std::string::npos) << key->get(job);
  }
  EXPECT_EQ(after("optimizer.lr", "1_000.5"), "1000.5");
  EXPECT_THAT(after("optimizer.lr", "inf"), HasSubstr("expected a number, got inf"));
}

TEST(JobKeys, IntegersReachTheEndsOfTheirRange) {
  EXPECT_EQ(after("training.steps", "9223372036854775807"), "9223372036854775807");
  EXPECT_EQ(after("training.steps", "1_000_000"), "1000000");
  EXPECT_THAT(after("training.steps", "9223372036854775808"), HasSubstr("expected an integer"));
  EXPECT_THAT(after("training.steps", "1.5"), HasSubstr("expected an integer, got 1.5"));
  EXPECT_EQ(after("debug.seed", "9223372036854775807"), "9223372036854775807");
  EXPECT_THAT(after("debug.seed", "-1"), HasSubstr("an integer of 0 or more, got -1"));
}

TEST(JobKeys, ListsAreReadWithAndWithoutBrackets) {
  for (const char* text : {"[4, 2, 2]", "4,2,2", " 4 , 2 ,2 ", "[4,2,2,]"}) {
    EXPECT_EQ(after("parallelism.layout", text), "[4, 2, 2]") << text;
  }
  EXPECT_EQ(after("parallelism.layout", "3"), "[3]");
  EXPECT_EQ(after("parallelism.layout", "[]"), "[]");
  EXPECT_EQ(after("device.speeds", "1,0.5"), "[1.0, 0.5]");
  EXPECT_THAT(after("parallelism.layout", "[4, 2.5]"),
              HasSubstr("expected a list of integers such as [4, 2, 2], got [4, 2.5]"));
  EXPECT_THAT(after("device.speeds", "fast"),
              HasSubstr("expected a list of numbers such as [1.0, 0.5], got fast"));
}

TEST(JobKeys, ListsOfStringsAreReadWithAndWithoutQuotes) {
  for (const char* text : {R"(["a b", "c"])", "a b,c", "[a b, c]", R"('a b', "c",)"}) {
    EXPECT_EQ(after("data.mixture", text), R"(["a b", "c"])") << text;
  }
  EXPECT_EQ(after("data.mixture", ""), "[]");
  EXPECT_EQ(after("data.mixture", R"(["a\\", "b,c"])"), R"(["a\\", "b,c"])");
  for (const char* text : {R"(["a" "b"])", ", a", "a,,b"}) {
    EXPECT_THAT(after("data.mixture", text), HasSubstr("expected a list of strings")) << text;
  }
}

TEST(JobKeys, OnlyThePipelineDegreeMayBeAuto) {
  const char* degree = "parallelism.pipeline_parallel_degree";
  for (const char* text : {"auto", "\"auto\""}) EXPECT_EQ(after(degree, text), "\"auto\"");
  JobSpec job;
  ASSERT_TRUE(find_key(degree)->set(job, "auto").ok());
  EXPECT_EQ(job.parallelism.pipeline_parallel_degree, plans::kAutoDegree);
  EXPECT_EQ(after(degree, "0"), "0");
  EXPECT_EQ(after(degree, "4"), "4");
  for (const char* text : {"-1", "-2", "Auto", "2.0"}) {
    EXPECT_THAT(after(degree, text), HasSubstr("an integer of 0 or more, or \"auto\"")) << text;
  }
  EXPECT_THAT(after("training.steps", "auto"), HasSubstr("expected an integer"));
}

TEST(JobKeys, AreFoundWithDashesForUnderscores) {
  ASSERT_NE(find_key("training.seq-len"), nullptr);
  EXPECT_EQ(find_key("training.seq-len")->full_name(), "training.seq_len");
  for (const char* wrong : {"", "training", "seq_len", "training.seq_len ", "Training.steps"}) {
    EXPECT_EQ(find_key(wrong), nullptr) << wrong;
  }
}

TEST(JobKeys, AKeyThatWasRenamedIsFoundByItsOldName) {
  const std::string old_name = "sync.segment_steps";  // Old key.
  ASSERT_NE(find_key(old_name), nullptr);
  EXPECT_EQ(find_key(old_name)->full_name(), "sync.round_steps");
}

TEST(Suggestion, NamesTheNearestOrNothing) {
  EXPECT_EQ(suggestion("training.seq_lenn", names()), " (did you mean training.seq_len?)");
  EXPECT_EQ(suggestion("model.weight_decay", names()), " (did you mean optimizer.weight_decay?)");
  EXPECT_EQ(suggestion("xyzzy.frobnicate_quux_zap", {"training.steps"}), "");
  EXPECT_EQ(suggestion("", names()), "");
  // One wrong letter after the section leads to a key of it, if only to a sibling as near.
  for (const std::string& name : names()) {
    for (size_t at = name.find('.') + 1; at < name.size(); ++at) {
      std::string wrong = name;
      wrong[at] = '?';
      EXPECT_THAT(suggestion(wrong, names()),
                  HasSubstr("(did you mean " + name.substr(0, name.find('.') + 1)))
          << wrong;
    }
  }
}

}  // namespace
}  // namespace skein::cli
