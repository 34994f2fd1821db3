#include <gtest/gtest.h>

#include "tests/bench/plan_change_world.hpp"

namespace skein::bench {
namespace {

void expect_linear(const PlanChangeCost& few, const PlanChangeCost& many) {
  ASSERT_TRUE(few.has_started && many.has_started);
  EXPECT_EQ(few.stages, many.stages);
  EXPECT_GT(few.rendezvous, 0u);
  EXPECT_LE(static_cast<double>(many.to_workers), 4.5 * static_cast<double>(few.to_workers));
  EXPECT_LE(static_cast<double>(many.to_coordinator),
            4.5 * static_cast<double>(few.to_coordinator));
  EXPECT_LE(static_cast<double>(many.rendezvous), 4.5 * static_cast<double>(few.rendezvous));
  EXPECT_LE(static_cast<double>(many.bytes), 4.5 * static_cast<double>(few.bytes));
  EXPECT_LE(static_cast<double>(many.assign_bytes), 4.5 * static_cast<double>(few.assign_bytes));
}

TEST(PlanChange, MessagesAndBytesGrowWithTheNumberOfWorkers) {
  const PlanChangeCost few = change_plan(100), many = change_plan(400);
  expect_linear(few, many);
  EXPECT_LE(static_cast<double>(many.longest_assign),
            1.5 * static_cast<double>(few.longest_assign));
}

/// The longest assignment is the leader's, which knows the members of all groups.
TEST(PlanChange, MessagesAndBytesGrowWithTheNumberOfWorkersWhoseDevicesAreGpus) {
  const PlanChangeCost few = change_plan(100, "cuda"), many = change_plan(400, "cuda");
  expect_linear(few, many);
  EXPECT_LE(static_cast<double>(many.longest_assign),
            4.5 * static_cast<double>(few.longest_assign));
}

}  // namespace
}  // namespace skein::bench
