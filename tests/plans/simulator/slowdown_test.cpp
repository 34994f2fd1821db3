#include "plans/simulator/slowdown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace skein::plans {
namespace {

constexpr int32_t kDevices = 4;

double duration_us(const Scenario& scenario, const WorkPiece& piece, double start_us = 1000) {
  return end_of_work(scenario, piece, kDevices, start_us) - start_us;
}

Scenario parsed(const std::string& text) {
  auto scenario = parse_scenario(text);
  EXPECT_TRUE(scenario.ok()) << scenario.status();
  return scenario.ok() ? *scenario : Scenario{};
}

/// Calls `check(piece)` for devices, steps and actions, the update (-1) included.
template <class Check>
void for_pieces(int32_t steps, int32_t actions, Check check) {
  for (int32_t device = 0; device < kDevices; ++device) {
    for (int32_t step = 0; step < steps; ++step) {
      for (int32_t index = -1; index < actions; ++index) {
        check(WorkPiece{device, step, index, 64});
      }
    }
  }
}

TEST(Slowdown, H0ChangesNothing) {
  for_pieces(3, 3, [](const WorkPiece& piece) { EXPECT_EQ(duration_us({}, piece), 64); });
}

TEST(Slowdown, H1SleepsBeforeAShareOfTheActionsAndNeverBeforeAnUpdate) {
  const Scenario scenario = parsed("H1 sleep=512 probability=0.25 seed=9");
  int sleeps = 0, pieces = 0;
  for_pieces(50, 20, [&](const WorkPiece& piece) {
    const double us = duration_us(scenario, piece);
    EXPECT_TRUE(us == 64 || us == 64 + 512);
    if (piece.index < 0) {
      EXPECT_EQ(us, 64);
    } else {
      sleeps += us > 64 ? 1 : 0;
      ++pieces;
    }
  });
  // 4000 draws: three standard deviations are 0.02.
  EXPECT_NEAR(static_cast<double>(sleeps) / pieces, 0.25, 0.03);
}

TEST(Slowdown, H2AndH5MultiplyTheWorkOfTheirDevices) {
  for (const char* text : {"H2 factor=4 devices=0,2", "H5 factor=4 devices=0,2"}) {
    const Scenario scenario = parsed(text);
    for_pieces(2, 2, [&](const WorkPiece& piece) {
      EXPECT_EQ(duration_us(scenario, piece), piece.device % 2 == 0 ? 256 : 64);
    });
  }
}

TEST(Slowdown, H3DelaysOneDevicePerStepInTurn) {
  const Scenario scenario = parsed("H3 sleep=512");
  for_pieces(9, 3, [&](const WorkPiece& piece) {
    const bool is_struck = piece.index == 0 && piece.device == piece.step % kDevices;
    EXPECT_EQ(duration_us(scenario, piece), is_struck ? 64 + 512 : 64);
  });
}

TEST(Slowdown, H4SleepsOnlyBeforeTheFirstActionOfAStep) {
  const Scenario scenario = parsed("H4 sleep=512 probability=0.25 seed=9");
  int sleeps = 0;
  for_pieces(1000, 2, [&](const WorkPiece& piece) {
    const double us = duration_us(scenario, piece);
    EXPECT_TRUE(us == 64 || piece.index == 0);
    sleeps += us > 64 ? 1 : 0;
  });
  EXPECT_NEAR(sleeps / 4000.0, 0.25, 0.03);
}

TEST(Slowdown, H6FollowsTheTraceWithinAPiece) {
  const Scenario scenario = parsed("H6 trace=100:1:0.5,120:2:0.25,200:1:2");
  EXPECT_EQ(duration_us(scenario, {0, 0, 0, 64}, 100), 64);       // Not in the trace.
  EXPECT_EQ(duration_us(scenario, {1, 0, 0, 64}, 0), 64);         // Ends before the first point.
  EXPECT_EQ(duration_us(scenario, {1, 0, 0, 64}, 68), 32 + 64);   // Half at 1, half at 0.5.
  EXPECT_EQ(duration_us(scenario, {1, 0, 0, 64}, 136), 64 + 16);  // 32 at 0.5, 32 at 2.
  EXPECT_EQ(duration_us(scenario, {1, 0, 0, 150}, 50), 50 + 100 + 25);
  EXPECT_EQ(duration_us(scenario, {1, 0, 0, 64}, 200), 32);
  EXPECT_EQ(duration_us(scenario, {2, 0, 0, 64}, 1e6), 256);
}

TEST(Slowdown, ThePieceDecidesAndNotTheTimeOfItsStart) {
  for (const char* text : {"H1 sleep=512 probability=0.5", "H4 sleep=512 probability=0.5"}) {
    const Scenario scenario = parsed(text);
    for_pieces(8, 8, [&](const WorkPiece& piece) {
      EXPECT_EQ(duration_us(scenario, piece, 0), duration_us(scenario, piece, 4096));
    });
  }
}

TEST(Slowdown, AnotherSeedStrikesOthers) {
  const Scenario one = parsed("H1 sleep=512 probability=0.5 seed=1");
  const Scenario two = parsed("H1 sleep=512 probability=0.5 seed=2");
  int unlike = 0;
  for_pieces(20, 20, [&](const WorkPiece& piece) {
    unlike += duration_us(one, piece) != duration_us(two, piece) ? 1 : 0;
  });
  EXPECT_GT(unlike, 400);  // There are 1600; half are expected.
}

TEST(Slowdown, LaterStartsNeverEndEarlier) {
  const Scenario scenario = parsed("H6 trace=100:1:0.5,150:1:4,200:1:0.1");
  double before = 0;
  for (int start = 0; start < 300; ++start) {
    const double end = end_of_work(scenario, {1, 0, 0, 37}, kDevices, start);
    EXPECT_GE(end, before);
    before = end;
  }
}

TEST(Scenario, TextFormsRoundTrip) {
  for (const char* text :
       {"H0", "H1 sleep=5000 probability=0.1 seed=3", "H2 factor=4 devices=0,2", "H3 sleep=0.5",
        "H4 sleep=6000000 probability=0.0125 seed=18446744073709551615", "H5 factor=3 devices=1",
        "H6 trace=0:0:0.5,0:1:0.3333333333333333,1e+18:0:1"}) {
    const Scenario scenario = parsed(text);
    EXPECT_EQ(parsed(to_text(scenario)), scenario) << text;
  }
  EXPECT_EQ(to_text(parsed("H1  seed=3 sleep=5000")), "H1 sleep=5000 probability=0.1 seed=3");
  EXPECT_EQ(to_text(parsed("H2 factor=4 devices=0,2")), "H2 factor=4 devices=0,2");
}

TEST(Scenario, NamesWhatIsNotUnderstood) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"", "H0, H1"},
      {"H7", "H7"},
      {"h1 sleep=3", "h1"},
      {"H0 sleep=3", "takes nothing"},
      {"H1", "lacks sleep="},
      {"H2 factor=2", "lacks devices="},
      {"H6", "lacks trace="},
      {"H1 sleep=3 factor=2", "factor=2"},
      {"H1 sleep=3 sleep=3", "twice"},
      {"H1 sleep", "sleep"},
      {"H1 sleep=", "sleep="},
      {"H1 sleep=3x", "3x"},
      {"H1 sleep=-3", "sleep = -3"},
      {"H1 sleep=inf", "sleep"},
      {"H1 sleep=3 probability=1.5", "probability = 1.5"},
      {"H1 sleep=3 seed=-1", "seed=-1"},
      {"H2 factor=0 devices=1", "factor = 0"},
      {"H2 factor=2 devices=1,", "devices=1,"},
      {"H2 factor=2 devices=-1", "devices = -1"},
      {"H6 trace=0:1", "trace=0:1"},
      {"H6 trace=0:1:0", "trace[0].speed"},
      {"H6 trace=5:1:1,4:1:1", "trace[1].from_us"},
  };
  for (const auto& [text, expected] : cases) {
    const absl::Status status = parse_scenario(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(expected)) << text;
  }
}

TEST(Scenario, RefusesDevicesThatTheClusterLacks) {
  EXPECT_TRUE(validate(parsed("H2 factor=2 devices=3"), 4).ok());
  EXPECT_FALSE(validate(parsed("H2 factor=2 devices=4"), 4).ok());
  EXPECT_FALSE(validate(parsed("H6 trace=0:4:1"), 4).ok());
  Scenario scenario;
  scenario.sleep_us = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(validate(scenario, 4).ok());
}

}  // namespace
}  // namespace skein::plans
