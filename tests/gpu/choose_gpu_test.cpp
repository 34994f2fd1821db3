#include "gpu/cuda/choose_gpu.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace skein::gpu {
namespace {

CudaOptions of_rank(int32_t local_rank) {
  CudaOptions options;
  options.local_rank = local_rank;
  return options;
}

TEST(ChooseGpu, DealsTheWorkersOfAMachineEvenly) {
  for (int32_t gpus = 1; gpus <= 5; ++gpus) {
    for (int32_t workers = 1; workers <= 11; ++workers) {
      std::map<int32_t, int> users;
      for (int32_t rank = 0; rank < workers; ++rank)
        ++users[choose_gpu(of_rank(rank), gpus).value()];
      for (int32_t gpu = 0; gpu < gpus; ++gpu) {
        EXPECT_GE(users[gpu], workers / gpus);
        EXPECT_LE(users[gpu], (workers + gpus - 1) / gpus);
      }
      EXPECT_EQ(users.size(), static_cast<size_t>(gpus)) << "none that is not there";
    }
  }
}

TEST(ChooseGpu, TakesTheOneThatIsNamedWhateverTheRank) {
  for (int32_t gpu = 0; gpu < 4; ++gpu) {
    CudaOptions options = of_rank(3);
    options.ordinal = gpu;
    EXPECT_EQ(choose_gpu(options, 4).value(), gpu);
  }
}

TEST(ChooseGpu, SaysThatThereAreNotSoMany) {
  CudaOptions options;
  options.ordinal = 2;
  const absl::Status status = choose_gpu(options, 2).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(std::string(status.message()).find("no GPU 2: the driver shows 2"), std::string::npos)
      << status;
  EXPECT_TRUE(absl::IsUnavailable(choose_gpu(of_rank(0), 0).status()));
}

}  // namespace
}  // namespace skein::gpu
