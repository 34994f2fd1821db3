#include "cli/config/resume_keys.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cli/config/job_keys.hpp"

namespace skein::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// Another value of the key than that of `job`.
plans::JobSpec with_other_value(const plans::JobSpec& job, const JobKey& key) {
  plans::JobSpec other = job;
  for (const char* text : {"7", "0.125", "true", "false", "other", "[5, 6]"}) {
    if (key.set(other, text).ok() && key.get(other) != key.get(job)) return other;
    other = job;
  }
  ADD_FAILURE() << "no other value for " << key.full_name();
  return other;
}

TEST(ResumeKeys, TheSameJobHasNoChangesAndTheSameDigest) {
  const plans::JobSpec job;
  const auto changes = resumed_changes(job, job);
  ASSERT_TRUE(changes.ok()) << changes.status();
  EXPECT_THAT(*changes, IsEmpty());
  EXPECT_EQ(config_digest(job), config_digest(plans::JobSpec()));
  EXPECT_NE(config_digest(job), 0u);
}

TEST(ResumeKeys, EveryKeyIsRefusedByNameOrMayChange) {
  const plans::JobSpec job;
  for (const JobKey& key : job_keys()) {
    const std::string name = key.full_name();
    const auto changes = resumed_changes(job, with_other_value(job, key));
    ASSERT_EQ(changes.ok(), may_change_on_resume(name)) << name;
    if (changes.ok()) {
      ASSERT_EQ(changes->size(), 1u) << name;
      EXPECT_EQ(changes->front().name, name);
      EXPECT_EQ(changes->front().before, key.get(job));
    } else {
      EXPECT_TRUE(absl::IsInvalidArgument(changes.status()));
      EXPECT_THAT(std::string(changes.status().message()),
                  AllOf(HasSubstr(name + " = "), HasSubstr("(was " + key.get(job) + ")")));
    }
  }
}

/// A key that somebody adds and that nobody thinks of is in the digest, and may not change.
TEST(ResumeKeys, WhatMayNotChangeIsInTheDigest) {
  const plans::JobSpec job;
  for (const JobKey& key : job_keys()) {
    const bool is_other = config_digest(with_other_value(job, key)) != config_digest(job);
    if (key.section == "job") {
      EXPECT_FALSE(is_other) << "names train nothing: " << key.full_name();
    } else if (!may_change_on_resume(key.full_name())) {
      EXPECT_TRUE(is_other) << key.full_name();
    }
  }
}

TEST(ResumeKeys, WhatIsTrainedDecidesTheDigestAndADeviceDoesNot) {
  const plans::JobSpec job;
  plans::JobSpec other = job;
  other.device.threads = 7;
  other.device.speed = 0.5;
  EXPECT_EQ(config_digest(other), config_digest(job));
  other.device.precision = "float32";
  EXPECT_NE(config_digest(other), config_digest(job));
  other = job;
  other.optimizer.lr = 1e-12;
  EXPECT_NE(config_digest(other), config_digest(job));
}

TEST(ResumeKeys, AllThatMayNotChangeIsListedWithBothValues) {
  const plans::JobSpec before;
  plans::JobSpec now = before;
  now.debug.seed = 7;
  now.training.global_batch_size = 64;
  now.optimizer.lr = 1e-12;
  const auto changes = resumed_changes(before, now);
  ASSERT_TRUE(absl::IsInvalidArgument(changes.status()));
  EXPECT_THAT(std::string(changes.status().message()),
              AllOf(HasSubstr("debug.seed = 7 (was 1337)"),
                    HasSubstr("training.global_batch_size = 64 (was 32)"),
                    HasSubstr("--checkpoint.initial_load_path"), Not(HasSubstr("optimizer.lr"))));
}

}  // namespace
}  // namespace skein::cli
