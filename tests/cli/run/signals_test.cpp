#include "cli/run/signals.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace skein::cli {
namespace {

bool looks(const std::vector<std::string>& words) { return looks_at_signals(words); }

TEST(Signals, CommandsThatWaitHaveThemBeforeTheyReadTheirArguments) {
  for (const char* verb :
       {"train", "coordinator", "worker", "compare", "demo", "profile", "export"}) {
    EXPECT_TRUE(looks({verb, "job.toml", "--workers", "2"})) << verb;
  }
}

TEST(Signals, CommandsThatNeverLookAreEndedByThem) {
  for (const char* verb : {"plan", "eval", "verify", "generate", "status", "drain", "config"}) {
    EXPECT_FALSE(looks({verb, "train"})) << verb << ", of something with that name";
  }
  EXPECT_FALSE(looks({}));
  EXPECT_FALSE(looks({"--version"}));
}

}  // namespace
}  // namespace skein::cli
