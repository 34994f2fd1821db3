#include "plans/stragglers/straggler_detector.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "plans/base/rng.hpp"
#include "plans/simulator/slowdown.hpp"
#include "tests/support/cases.hpp"

namespace skein::plans {
namespace {

using Samples = std::map<WorkerId, WorkSample>;

WorkerId worker(size_t index) { return WorkerId{static_cast<uint32_t>(index) + 1}; }

/// Workers with noise, whose work differs from step to step.
struct Crew {
  size_t count = 4;
  double noise = 0.05;  // Standard deviation, relative.
  uint64_t seed = 1;
  std::map<WorkerId, double> slowdown;  // What they really are; others 1.
  std::map<WorkerId, double> expected;  // What the plan knows of it; others 1.

  static double factor(const std::map<WorkerId, double>& of, WorkerId id) {
    const auto found = of.find(id);
    return found == of.end() ? 1 : found->second;
  }

  Samples step(uint64_t step) const {
    Samples samples;
    const double work_us = 1e4 * (1 + 3 * random_uniform(seed, 1000, step));
    for (size_t w = 0; w < count; ++w) {
      const double drawn = std::max(0.3, 1 + noise * random_normal(seed, w, step));
      const double share_us = work_us * static_cast<double>(w + 1);  // Plans are uneven.
      samples[worker(w)] = {share_us * drawn * factor(slowdown, worker(w)),
                            share_us * factor(expected, worker(w))};
    }
    return samples;
  }
};

/// The first change in steps [from, from + count), and the number of steps it took.
struct Found {
  SpeedChange change;
  uint64_t steps = 0;
};
std::optional<Found> first_change(StragglerDetector& detector, const Crew& crew, uint64_t from,
                                  uint64_t count) {
  for (uint64_t step = from; step < from + count; ++step) {
    const std::vector<SpeedChange> changes = detector.on_step(step, crew.step(step));
    if (!changes.empty()) return Found{changes.front(), step - from + 1};
  }
  return std::nullopt;
}

/// What devices with equal work take for a step of `microbatches` under a scenario.
Samples disturbed(const Scenario& scenario, int32_t devices, int32_t step, int32_t microbatches) {
  Samples samples;
  for (int32_t device = 0; device < devices; ++device) {
    double now_us = 0;
    for (int32_t i = 0; i < 2 * microbatches; ++i) {
      const WorkPiece piece{device, step, i, i % 2 == 0 ? 100.0 : 200.0};
      now_us = end_of_work(scenario, piece, devices, now_us);
    }
    samples[worker(static_cast<size_t>(device))] = {now_us, 300.0 * microbatches};
  }
  return samples;
}

size_t reports_under(const Scenario& scenario, int32_t devices, int32_t microbatches) {
  StragglerDetector detector;
  size_t reports = 0;
  for (int32_t step = 0; step < 500; ++step) {
    const auto number = static_cast<uint64_t>(step);
    const size_t now =
        detector.on_step(number, disturbed(scenario, devices, step, microbatches)).size();
    reports += now;
    if (now > 0) detector.reset();  // A new plan was made.
  }
  return reports;
}

TEST(StragglerDetector, FindsAFourfoldStragglerWithinSixStepsAndItsRecoveryLikewise) {
  for (const size_t count : {2, 3, 4, 8}) {
    for (uint64_t seed = 1; seed <= tests::cases(100); ++seed) {
      SCOPED_TRACE(testing::Message() << count << " workers, seed " << seed);
      StragglerDetector detector;
      Crew crew{.count = count, .seed = seed};
      const WorkerId slow = worker(seed % count);
      const uint64_t quiet = seed % 50;  // Also right at the start.
      ASSERT_FALSE(first_change(detector, crew, 0, quiet));
      crew.slowdown[slow] = 4;
      const auto found = first_change(detector, crew, quiet, 20);
      ASSERT_TRUE(found);
      EXPECT_EQ(found->change.worker, slow);
      EXPECT_LE(found->steps, 6);
      EXPECT_NEAR(found->change.slowdown, 4, 4 * 0.15);
      EXPECT_FALSE(found->change.reason.empty());
      crew.expected[slow] = found->change.slowdown;  // The new plan knows.
      detector.reset();
      ASSERT_FALSE(first_change(detector, crew, 100, 100));
      crew.slowdown.clear();
      const auto back = first_change(detector, crew, 200, 20);
      ASSERT_TRUE(back);
      EXPECT_EQ(back->change.worker, slow);
      EXPECT_LE(back->steps, 6);
      EXPECT_NEAR(back->change.slowdown, 1 / found->change.slowdown, 0.15 / found->change.slowdown);
    }
  }
}

TEST(StragglerDetector, ReportsAChangeOnceIfNoPlanFollowsAndThenTheWayBack) {
  StragglerDetector detector;
  Crew crew;
  ASSERT_FALSE(first_change(detector, crew, 0, 50));
  crew.slowdown[worker(2)] = 4;
  ASSERT_TRUE(first_change(detector, crew, 50, 6));
  ASSERT_FALSE(first_change(detector, crew, 56, 500));
  crew.slowdown.clear();
  const auto back = first_change(detector, crew, 556, 6);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->change.worker, worker(2));
  EXPECT_NEAR(back->change.slowdown, 1, 0.15);
}

TEST(StragglerDetector, FindsSeveralStragglersAtOnce) {
  StragglerDetector detector;
  Crew crew{.count = 8};
  ASSERT_FALSE(first_change(detector, crew, 0, 20));
  crew.slowdown = {{worker(1), 2}, {worker(5), 3}, {worker(6), 0.5}};
  std::map<WorkerId, double> found;
  for (uint64_t step = 20; step < 40; ++step) {
    for (const SpeedChange& change : detector.on_step(step, crew.step(step))) {
      EXPECT_TRUE(found.emplace(change.worker, change.slowdown).second);
    }
  }
  ASSERT_EQ(found.size(), 3);
  for (const auto& [id, slowdown] : crew.slowdown) {
    EXPECT_NEAR(found[id], slowdown, 0.15 * slowdown);
  }
}

TEST(StragglerDetector, BlamesNobodyWhenAllAreSlowerAlike) {
  for (const size_t count : {2, 3, 4, 8}) {
    StragglerDetector detector;
    Crew crew{.count = count};
    for (uint64_t phase = 0; phase < 20; ++phase) {  // The machine is busy for a while, and again.
      for (size_t w = 0; w < count; ++w) crew.slowdown[worker(w)] = phase % 2 == 0 ? 1 : 3;
      ASSERT_FALSE(first_change(detector, crew, phase * 17, 17)) << count << " in " << phase;
    }
  }
}

TEST(StragglerDetector, RaisesNoFalseAlarmInTenThousandNoisySteps) {
  for (const size_t count : {2, 4, 8}) {
    StragglerDetector detector;
    const Crew crew{.count = count, .noise = 0.1, .seed = count};
    EXPECT_FALSE(first_change(detector, crew, 0, 10'000)) << count;
  }
}

TEST(StragglerDetector, ReportsTwiceAtMostUnderRandomSleeps) {
  // Sleeps of h / (F + B) = 0.5 and 2 per action, by one in ten (H1).
  for (const double sleep_us : {150.0, 600.0}) {
    for (const int32_t devices : {2, 4}) {
      size_t worst = 0;
      for (uint64_t seed = 1; seed <= tests::cases(100); ++seed) {
        const Scenario scenario{.kind = Scenario::Kind::kH1, .sleep_us = sleep_us, .seed = seed};
        worst = std::max(worst, reports_under(scenario, devices, /*microbatches=*/4));
      }
      EXPECT_LE(worst, 2) << devices << " devices, sleeps of " << sleep_us;
    }
  }
}

TEST(StragglerDetector, LeavesStragglersOfSingleStepsAlone) {
  for (const int32_t devices : {2, 4, 8}) {
    const Scenario rotating{.kind = Scenario::Kind::kH3, .sleep_us = 2400};
    const Scenario random{.kind = Scenario::Kind::kH4, .probability = 0.1, .sleep_us = 2400};
    EXPECT_EQ(reports_under(rotating, devices, 4), 0) << devices;
    EXPECT_LE(reports_under(random, devices, 4), 1) << devices;
  }
}

TEST(StragglerDetector, FindsAModerateStragglerUnderRandomSleepsInTheEnd) {
  for (uint64_t seed = 1; seed <= tests::cases(50); ++seed) {
    StragglerDetector detector;
    bool found = false;
    for (int32_t step = 0; step < 100 && !found; ++step) {
      const Scenario scenario{.kind = Scenario::Kind::kH1, .sleep_us = 300, .seed = seed};
      Samples samples = disturbed(scenario, 4, step, 4);
      if (step >= 40) samples[worker(3)].busy_us += 0.8 * 1200;
      for (const SpeedChange& change : detector.on_step(static_cast<uint64_t>(step), samples)) {
        found = change.worker == worker(3) && change.slowdown > 1.3;
      }
    }
    EXPECT_TRUE(found) << seed;
  }
}

TEST(StragglerDetector, ReportsNothingBelowTheThreshold) {
  StragglerDetector detector;
  Crew crew{.noise = 0.01};
  crew.slowdown[worker(0)] = 1.25;
  EXPECT_FALSE(first_change(detector, crew, 0, 1000));
}

TEST(StragglerDetector, GetsTiredOfAWorkerThatChangesAgainAndAgain) {
  StragglerDetector detector;
  Crew crew{.noise = 0.02};
  size_t reports = 0;
  for (uint64_t step = 0; step < 2000; ++step) {
    crew.slowdown[worker(1)] = step / 25 % 2 == 0 ? 1 : 4;
    reports += detector.on_step(step, crew.step(step)).size();
  }
  EXPECT_GE(reports, 2);
  EXPECT_LE(reports, 9);  // Of 79 changes; pauses of 20, 40, .. 640 steps lie between reports.
}

TEST(StragglerDetector, SaysNothingOfWhatIsOver) {
  StragglerDetector detector;
  Crew crew{.noise = 0.02};
  uint64_t step = 0;
  std::vector<SpeedChange> changes;
  const auto run = [&](double slowdown, int steps) {
    crew.slowdown[worker(1)] = slowdown;
    for (int i = 0; i < steps; ++i, ++step) {
      for (const SpeedChange& each : detector.on_step(step, crew.step(step))) {
        changes.push_back(each);
      }
    }
  };
  run(1, 40);
  run(4, 10);  // Told, and the way back: then it is left alone for a while.
  run(1, 30);
  for (int again = 0; again < 8; ++again) {
    run(4, 20);
    run(1, 20);
  }
  double before = 1;
  for (const SpeedChange& each : changes) {
    EXPECT_GT(std::abs(std::log(each.slowdown / before)), std::log(1.3)) << each.reason;
    before = each.slowdown;
  }
  EXPECT_GE(changes.size(), 2u);
}

TEST(StragglerDetector, TakesTheFasterOfTwoForUnchangedWhereNothingWasMeasured) {
  StragglerDetector::Options options;
  options.knows_unit = false;
  StragglerDetector detector(options);
  std::vector<SpeedChange> changes;
  for (uint64_t step = 0; step < 50; ++step) {
    const Samples samples = {{worker(0), {100, 1e7}}, {worker(1), {290, 1e7}}};
    for (const SpeedChange& each : detector.on_step(step, samples)) changes.push_back(each);
  }
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].worker, worker(1));
  EXPECT_NEAR(changes[0].slowdown, 2.9, 0.01);
}

TEST(StragglerDetector, HasNobodyToCompareASingleWorkerWith) {
  StragglerDetector detector;
  Crew crew{.count = 1};
  ASSERT_FALSE(first_change(detector, crew, 0, 50));
  crew.slowdown[worker(0)] = 4;
  EXPECT_FALSE(first_change(detector, crew, 50, 200));
}

TEST(StragglerDetector, DropsSamplesThatAreNoTimes) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinite = std::numeric_limits<double>::infinity();
  StragglerDetector detector;
  const Crew crew;
  for (uint64_t step = 0; step < 100; ++step) {
    Samples samples = crew.step(step);
    samples[worker(3)].busy_us = step % 2 == 0 ? nan : 0;
    samples[worker(4)] = {-5, 100};
    samples[worker(5)] = {100, infinite};
    ASSERT_TRUE(detector.on_step(step, samples).empty());
  }
  EXPECT_TRUE(detector.on_step(100, {}).empty());
}

}  // namespace
}  // namespace skein::plans
