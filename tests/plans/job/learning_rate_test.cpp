#include "plans/job/learning_rate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace skein::plans {
namespace {

TEST(ClipShare, OfAllStagesHasTheNormOfTheJobAtMost) {
  JobSpec job;
  job.model.layers = 4;
  job.model.tied_head = false;
  EXPECT_EQ(clip_share(job, {0, 3}), 1) << "each stage by itself";
  job.sync.clip_by = "share";
  double squares = 0;
  for (const LayerRange& layers : {LayerRange{0, 2}, {2, 3}, {3, 6}}) {
    const double share = clip_share(job, layers);
    EXPECT_GT(share, 0);
    EXPECT_LT(share, 1);
    squares += share * share;
  }
  EXPECT_NEAR(squares, 1, 1e-12);
  EXPECT_LT(clip_share(job, {2, 3}), clip_share(job, {1, 3})) << "by parameters";
}

JobSpec scheduled(const std::string& type, double ratio) {
  JobSpec job;
  job.training.steps = 100;
  job.optimizer.lr = 2;
  job.lr_scheduler.warmup_steps = 10;
  job.lr_scheduler.decay_type = type;
  job.lr_scheduler.decay_ratio = ratio;
  job.lr_scheduler.min_lr_factor = 0.1;
  return job;
}

TEST(LearningRate, WarmsUpStaysAndDecaysInTheLastShareOfTheSteps) {
  for (const char* type : {"cosine", "linear", "sqrt", "polynomial"}) {
    const JobSpec job = scheduled(type, 0.2);
    EXPECT_DOUBLE_EQ(learning_rate(job, 0), 0.2) << type;
    for (int64_t step = 9; step <= 80; ++step)
      EXPECT_DOUBLE_EQ(learning_rate(job, step), 2) << type;
    for (int64_t step = 80; step < 100; ++step) {
      EXPECT_LT(learning_rate(job, step + 1), learning_rate(job, step)) << type << step;
    }
    EXPECT_NEAR(learning_rate(job, 100), 0.2, 1e-12) << type;
    EXPECT_NEAR(learning_rate(job, 1000), 0.2, 1e-12) << type;
  }
}

TEST(LearningRate, DecaysInTheShapeThatIsAskedFor) {
  // A quarter of the way, from 2 to 0.2.
  const int64_t step = 85;
  EXPECT_DOUBLE_EQ(learning_rate(scheduled("linear", 0.2), step), 0.2 + 1.8 * 0.75);
  EXPECT_DOUBLE_EQ(learning_rate(scheduled("sqrt", 0.2), step), 0.2 + 1.8 * 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(scheduled("polynomial", 0.2), step), 0.2 + 1.8 * 0.5625);
  EXPECT_NEAR(learning_rate(scheduled("cosine", 0.2), step), 0.2 + 1.8 * 0.5 * (1 + std::sqrt(0.5)),
              1e-12);
  JobSpec job = scheduled("polynomial", 0.2);
  job.lr_scheduler.decay_power = 1;
  EXPECT_DOUBLE_EQ(learning_rate(job, step), learning_rate(scheduled("linear", 0.2), step));
  EXPECT_DOUBLE_EQ(learning_rate(scheduled("none", 0.2), 99), 2);
}

TEST(LearningRate, NeverDecaysDuringTheWarmUp) {
  EXPECT_DOUBLE_EQ(learning_rate(scheduled("linear", 1), 9), 2);
  EXPECT_DOUBLE_EQ(learning_rate(scheduled("linear", 1), 55), 0.2 + 1.8 * 0.5);
}

}  // namespace
}  // namespace skein::plans
