// What a profiler sees of a device's work. NVTX_INJECTION64_PATH names one that records
// (emulated_cuda/range_recorder.cpp); see cuda_ops_test.cpp for the plugin.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "gpu/cuda/load_cuda.hpp"
#include "gpu/device.hpp"

namespace skein::gpu {
namespace {

TEST(CudaRanges, EachWorkIsARangeWithItsNameUntilTheDeviceHasEnded) {
  const char* path = std::getenv("NVTX_INJECTION64_PATH");
  if (path == nullptr) GTEST_SKIP() << "no profiler is named";
  auto device = load_cuda_device({});
  if (!device.ok()) GTEST_SKIP() << device.status();
  void* recorder = dlopen(path, RTLD_NOW);
  ASSERT_NE(recorder, nullptr) << dlerror();
  auto* recorded = reinterpret_cast<const char* (*)()>(dlsym(recorder, "recorded_ranges"));
  ASSERT_NE(recorded, nullptr);
  std::string inside;
  for (const char* name : {"0F3", "", "update"}) {
    Work work;
    work.name = name;
    work.run = [&](Ops&) {
      inside = recorded();
      return std::string(name) == "update" ? absl::InternalError("fails") : absl::OkStatus();
    };
    (void)(*device)->run(std::move(work));
  }
  EXPECT_EQ(inside, "[0F3][work][update");
  device->reset();  // Its thread has left the last range.
  EXPECT_STREQ(recorded(), "[0F3][work][update]");
}

}  // namespace
}  // namespace skein::gpu
