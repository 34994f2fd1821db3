#include "cli/verbs/named_devices.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace skein::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// No plugin is found, as on a machine without CUDA.
class NamedDevices : public testing::Test {
 protected:
  NamedDevices() { setenv("SKEIN_CUDA_PLUGIN", "/nowhere/libskein_cuda.so", 1); }
  ~NamedDevices() override { unsetenv("SKEIN_CUDA_PLUGIN"); }

  static std::vector<std::string> opened(const std::string& names) {
    std::vector<std::string> found;
    const auto devices = open_devices({names, 3, "bfloat16"}).value();
    for (const auto& device : devices) {
      found.push_back(device->info().name);
    }
    return found;
  }
  static absl::Status refusal(const std::string& names) {
    return open_devices({names, 3, "bfloat16"}).status();
  }
};

TEST_F(NamedDevices, MayBeTheProcessorSeveralTimes) {
  EXPECT_THAT(opened("cpu"), ElementsAre("cpu x3"));
  EXPECT_THAT(opened("cpu,cpu"), ElementsAre("cpu x3", "cpu x3"));
}

TEST_F(NamedDevices, AreTheProcessorWhereAutoFindsNoGpu) {
  testing::internal::CaptureStderr();
  EXPECT_THAT(opened("auto"), ElementsAre("cpu x3"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("using 3 threads of the processor"));
}

TEST_F(NamedDevices, AreRefusedWithoutAPlugin) {
  for (const char* names : {"cuda", "cuda:0", "cpu,cuda:1"}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(refusal(names))) << names;
    EXPECT_THAT(std::string(refusal(names).message()), HasSubstr("no plugin at /nowhere"));
  }
}

TEST_F(NamedDevices, AreRefusedIfTheyAreNone) {
  for (const char* names :
       {"", "gpu", "cpu,", "cuda:", "cuda:x", "cuda:-1", "cuda:1.5", "CPU", " cpu"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(refusal(names))) << names;
    EXPECT_THAT(std::string(refusal(names).message()), HasSubstr("is no device; give \"auto\""));
  }
  for (const char* names : {"auto,cpu", "cpu,auto"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(refusal(names))) << names;
    EXPECT_THAT(std::string(refusal(names).message()), HasSubstr("give it alone"));
  }
  std::string many = "cpu";
  for (int32_t i = 0; i < kDevicesMax; ++i) many += ",cpu";
  EXPECT_THAT(std::string(refusal(many).message()), HasSubstr("more than 64"));
}

}  // namespace
}  // namespace skein::cli
