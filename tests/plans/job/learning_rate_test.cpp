#include "plans/job/learning_rate.hpp"

#include <gtest/gtest.h>

#include <cmath>

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

}  // namespace
}  // namespace skein::plans
