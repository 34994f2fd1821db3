#include "actors/replica/device_work.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "gpu/host/host_ops.hpp"
#include "gpu/host/thread_pool.hpp"

namespace skein::actors {
namespace {

TEST(DeviceWork, NothingRunsBehindWhatHasFailed) {
  std::vector<gpu::Work> given;
  DeviceWork::Options options;
  options.now_us = [] { return uint64_t{0}; };
  options.submit = [&](uint64_t, gpu::Work work, Outgoing) { given.push_back(std::move(work)); };
  DeviceWork device(std::move(options));
  int runs = 0;
  const auto submit = [&](absl::Status status) {
    gpu::Work work;
    work.run = [&runs, status](gpu::Ops&) {
      ++runs;
      return status;
    };
    device.submit(plans::RunUpdate(), std::move(work));
  };
  submit(absl::OkStatus());
  submit(absl::DataLossError("token 300 is none"));
  submit(absl::OkStatus());
  gpu::ThreadPool pool(1);
  gpu::HostOps ops(pool);
  EXPECT_TRUE(given[0].run(ops).ok());
  EXPECT_TRUE(absl::IsDataLoss(given[1].run(ops)));
  EXPECT_TRUE(absl::IsCancelled(given[2].run(ops))) << "an update of half a step";
  EXPECT_EQ(runs, 2);
}

}  // namespace
}  // namespace skein::actors
