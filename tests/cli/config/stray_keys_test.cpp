#include "cli/config/stray_keys.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skein::cli {
namespace {

const std::vector<std::string> kOptions = {"--join", "--device", "--speed"};

TEST(StrayKeysTest, ACommandWithoutAJobTakesNone) {
  EXPECT_TRUE(refuse_job_keys("skein verify", "", kOptions, {}).ok());
  const absl::Status status =
      refuse_job_keys("skein verify", "", kOptions, {{"training.steps", "3"}});
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(status.message(), "skein verify takes no keys of a job: --training.steps");
}

TEST(StrayKeysTest, TheCommandsOwnOptionIsNamed) {
  const absl::Status status =
      refuse_job_keys("skein worker", "the coordinator's job counts", kOptions,
                      {{"device.type", "cuda"}, {"training.steps", "3"}, {"device.speed", "0.5"}});
  EXPECT_EQ(status.message(),
            "skein worker takes no keys of a job, as the coordinator's job counts: --device.type, "
            "--training.steps, --device.speed; did you mean --device cuda --speed 0.5?");
}

}  // namespace
}  // namespace skein::cli
