#include "cli/verbs/model_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace skein::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

const MemoryNeed kNeed = {"judging 8 windows", 3'000'000'000, 2'000'000'000, "a smaller --batch"};

TEST(CheckMemory, LetsPassWhatFitsOrWhatNobodyKnows) {
  EXPECT_TRUE(check_memory(kNeed, 3'000'000'000).ok());
  EXPECT_TRUE(check_memory(kNeed, 0).ok());
  EXPECT_TRUE(check_available_memory({"little", 4096, 4096, ""}).ok());
}

TEST(CheckMemory, SaysWhatToMakeSmaller) {
  const absl::Status status = check_memory(kNeed, 2'999'999'999);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("judging 8 windows takes 3 GB"), HasSubstr("2 GB of it"),
                             HasSubstr("give a smaller --batch"), Not(HasSubstr("\n"))));
}

TEST(CheckMemory, AdvisesNothingThatDoesNotHelp) {
  const absl::Status status = check_memory(kNeed, 1'000'000'000);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("machine with more memory"), Not(HasSubstr("--batch"))));
}

TEST(CheckMemory, KnowsThatTheMachineIsFinite) {
  EXPECT_TRUE(absl::IsResourceExhausted(check_available_memory({"all", INT64_MAX, 0, "less"})));
}

}  // namespace
}  // namespace skein::cli
