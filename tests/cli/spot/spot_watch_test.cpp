#include "cli/spot/spot_watch.hpp"

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skein::cli {
namespace {

using testing::HasSubstr;

/// Looks until the notice is there; the test's time-out bounds it.
SpotNotice wait_for_notice(SpotWatch& watch) {
  while (true) {
    if (auto notice = watch.take_notice()) return *notice;
    std::this_thread::yield();
  }
}

SpotWatchOptions options_for(std::vector<Cloud> clouds, AskMetadata ask) {
  SpotWatchOptions options;
  options.clouds = std::move(clouds);
  options.ask = std::move(ask);
  options.warn = [](const std::string& line) { ADD_FAILURE() << "warned: " << line; };
  options.period_seconds = 1e-4;
  return options;
}

bool is_gcp(const MetadataRequest& request) { return request.path.starts_with("/computeMetadata"); }

TEST(SpotWaitSeconds, DoublesUpToHalfTheShortestLead) {
  EXPECT_EQ(spot_wait_seconds(0, 2), 2);
  EXPECT_EQ(spot_wait_seconds(1, 2), 2);
  EXPECT_EQ(spot_wait_seconds(2, 2), 4);
  EXPECT_EQ(spot_wait_seconds(3, 2), 8);
  EXPECT_EQ(spot_wait_seconds(4, 2), kSpotRetrySecondsMax);
  EXPECT_EQ(spot_wait_seconds(2'000'000'000, 2), kSpotRetrySecondsMax);
  EXPECT_EQ(spot_wait_seconds(5, 60), 60);  // Never more often than asked for.
}

TEST(SpotWatch, TellsOfANoticeOnce) {
  std::atomic<int> asked = 0;
  SpotWatch watch(options_for({Cloud::kGcp}, [&](const MetadataRequest&) {
    return MetadataAnswer{200, ++asked < 20 ? "FALSE" : "TRUE"};
  }));
  EXPECT_THAT(wait_for_notice(watch).reason, HasSubstr("GCP"));
  EXPECT_FALSE(watch.take_notice());
  EXPECT_GE(asked, 20);
}

TEST(SpotWatch, WarnsOnceOfASilentServiceAndGoesOnAsking) {
  std::atomic<int> asked = 0;
  std::atomic<int> warned = 0;
  SpotWatchOptions options = options_for({Cloud::kGcp}, [&](const MetadataRequest& request) {
    ++asked;
    if (asked < 4 || asked == 6) return MetadataAnswer();  // It is away twice.
    const bool is_late = asked > 8 && request.path.ends_with("preempted");
    return MetadataAnswer{200, is_late ? "TRUE" : "FALSE"};
  });
  options.warn = [&](const std::string& line) {
    ++warned;
    EXPECT_THAT(line, HasSubstr("gcp: no answer to GET"));
  };
  SpotWatch watch(std::move(options));
  wait_for_notice(watch);
  EXPECT_EQ(warned, 1);
}

TEST(SpotWatch, OfSeveralCloudsTheFirstThatAnswersIsTheOne) {
  std::atomic<int> others_after = 0;
  std::atomic<int> asked_gcp = 0;
  SpotWatch watch(
      options_for({Cloud::kAws, Cloud::kGcp, Cloud::kAzure}, [&](const MetadataRequest& request) {
        if (!is_gcp(request)) {
          if (asked_gcp > 0) ++others_after;
          return MetadataAnswer{404, "<html>"};
        }
        return MetadataAnswer{200, ++asked_gcp < 10 ? "FALSE" : "TRUE"};
      }));
  wait_for_notice(watch);
  EXPECT_EQ(others_after, 0);
}

TEST(SpotWatch, EndsWhileItWaitsForTheNextRound) {
  std::promise<void> asked;
  std::atomic<bool> has_asked = false;
  SpotWatchOptions options = options_for({Cloud::kGcp}, [&](const MetadataRequest&) {
    if (!has_asked.exchange(true)) asked.set_value();
    return MetadataAnswer{200, "FALSE"};
  });
  options.period_seconds = 1e6;
  SpotWatch watch(std::move(options));
  asked.get_future().wait();
}  // And the watch ends here.

TEST(SpotWatch, EndsWhileAQuestionHangsAndWarnsNotOfThat) {
  std::promise<void> asked;
  std::promise<void> interrupted;
  std::atomic<bool> was_interrupted = false;
  SpotWatchOptions options = options_for({Cloud::kGcp}, [&](const MetadataRequest&) {
    asked.set_value();
    interrupted.get_future().wait();
    return MetadataAnswer();
  });
  options.interrupt = [&] {
    if (!was_interrupted.exchange(true)) interrupted.set_value();
  };
  SpotWatch watch(std::move(options));
  asked.get_future().wait();
}

TEST(SpotWatch, CanEndAtOnce) {
  for (int trial = 0; trial < 100; ++trial) {
    SpotWatch watch(options_for({Cloud::kGcp}, [](const MetadataRequest&) {
      return MetadataAnswer{200, "FALSE"};
    }));
  }
}

}  // namespace
}  // namespace skein::cli
