#include "cli/verbs/export_verb.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "gpu/checkpoint/weights_folder.hpp"
#include "tests/gpu/small_checkpoints.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::cli {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

class ExportTest : public testing::Test {
 protected:
  absl::Status export_with(float weight) {
    const auto saved = gpu::save_small_checkpoint(run_.path(), 1, weight);
    EXPECT_TRUE(saved.ok()) << saved.status();
    return export_model({run_.path(), out_.file("model")}, signals_, said_);
  }

  tests::TemporaryFolder run_, out_;
  Signals signals_;
  std::ostringstream said_;
};

TEST_F(ExportTest, WritesTheWeightsOfTheNewestCheckpoint) {
  const absl::Status status = export_with(0.5F);
  ASSERT_TRUE(status.ok()) << status;
  const auto weights = gpu::WeightsFolder::open(out_.file("model"));
  ASSERT_TRUE(weights.ok()) << weights.status();
  std::vector<float> read(10);
  ASSERT_TRUE((*weights)->read("transformer.wte.weight", read).ok());
  EXPECT_EQ(read, std::vector<float>(10, 0.5F));
}

/// `skein train` and `skein eval` would refuse what it wrote.
TEST_F(ExportTest, RefusesWeightsThatAreNoNumbersAndLeavesNothing) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    const absl::Status status = export_with(bad);
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("step-00000001: tensor transformer.wte.weight has "),
                      HasSubstr("earlier checkpoint")));
    EXPECT_THAT(std::vector<fs::path>(fs::directory_iterator(out_.path()), {}), IsEmpty());
    fs::remove_all(run_.file("checkpoint"));
  }
}

TEST_F(ExportTest, RefusesATokenizerThatIsCutAndLeavesNothing) {
  ASSERT_TRUE(export_with(0.5F).ok());
  const std::string model = out_.file("model");
  std::ofstream(model + "/tokenizer.json") << R"({"model": {"voc)";
  const absl::Status status = export_model({model, out_.file("again")}, signals_, said_);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("model/tokenizer.json"));
  EXPECT_FALSE(fs::exists(out_.file("again")));
}

}  // namespace
}  // namespace skein::cli
