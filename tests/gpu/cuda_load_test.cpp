#include "gpu/cuda/load_cuda.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace skein::gpu {
namespace {

std::string refusal() {
  absl::StatusOr<std::unique_ptr<Device>> device = load_cuda_device({});
  EXPECT_FALSE(device.ok());
  EXPECT_TRUE(absl::IsUnavailable(device.status())) << device.status();
  const std::string message(device.status().message());
  EXPECT_EQ(message.find('\n'), std::string::npos) << "one line: " << message;
  return message;
}

TEST(CudaLoad, SaysThatThePluginIsMissingAndWhereItLooked) {
  setenv("SKEIN_CUDA_PLUGIN", "/nowhere/libskein_cuda.so", 1);
  EXPECT_NE(refusal().find("no plugin at /nowhere/libskein_cuda.so"), std::string::npos);
}

TEST(CudaLoad, SaysWhyAPluginCannotBeLoaded) {
  const std::string path = testing::TempDir() + "/skein_no_plugin.so";
  std::ofstream(path) << "text";
  setenv("SKEIN_CUDA_PLUGIN", path.c_str(), 1);
  EXPECT_NE(refusal().find("cannot load the plugin"), std::string::npos);
}

TEST(CudaLoad, RefusesALibraryThatIsNoPlugin) {
  setenv("SKEIN_CUDA_PLUGIN", "/lib/x86_64-linux-gnu/libm.so.6", 1);
  EXPECT_NE(refusal().find("another version"), std::string::npos);
}

TEST(CudaLoad, DeclinesOrComputesWithTheProductsPlugin) {
  const char* plugin = std::getenv("SKEIN_TEST_CUDA_PLUGIN");
  if (plugin == nullptr) GTEST_SKIP() << "built without the CUDA plugin";
  setenv("SKEIN_CUDA_PLUGIN", plugin, 1);
  absl::StatusOr<std::unique_ptr<Device>> device = load_cuda_device({});
  if (device.ok()) {
    EXPECT_FALSE((*device)->info().is_host_memory);
    EXPECT_EQ((*device)->info().name.find("cuda:0 "), 0u);
    EXPECT_TRUE(absl::IsInvalidArgument(load_cuda_device({0, 0, "float8", 0}).status()));
    EXPECT_TRUE(absl::IsUnavailable(load_cuda_device({1000, 0, "float32", 0}).status()));
  } else {
    // Its symbols were all found, or it would not have been loaded; there is no driver or no GPU.
    EXPECT_NE(refusal().find("no GPU can be asked for"), std::string::npos) << device.status();
  }
}

}  // namespace
}  // namespace skein::gpu
