#include "cli/verbs/verify_verb.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "gpu/checkpoint/text_files.hpp"
#include "tests/gpu/small_checkpoints.hpp"
#include "tests/support/temporary_folder.hpp"

namespace skein::cli {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

TEST(VerifyVerb, ACheckpointThatCannotBeLookedAtIsAFault) {
  tests::TemporaryFolder run;
  for (const uint64_t steps : {2, 1}) {  // The newer one first: none deletes the other.
    const auto saved = gpu::save_small_checkpoint(run.path(), steps, 0.5F);
    ASSERT_TRUE(saved.ok()) << saved.status();
  }
  const std::string complete = run.file("checkpoint/step-00000002/COMPLETE");
  fs::remove(complete);
  fs::create_symlink(complete, complete);  // Nobody finds its end.
  std::ostringstream said;
  const absl::Status status = verify_checkpoints(run.path(), said);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(said.str(),
              AllOf(HasSubstr(complete), HasSubstr("step-00000001: all digests agree")));
}

TEST(VerifyVerb, SaysWithWhichWeightsARunBegan) {
  for (const std::string digest : {"", "0a1b"}) {
    tests::TemporaryFolder run;
    gpu::TrainerState state;
    state.from_digest = digest;
    ASSERT_TRUE(gpu::save_small_checkpoint(run.path(), 1, 0.5F, state).ok());
    std::ostringstream said;
    EXPECT_TRUE(verify_checkpoints(run.path(), said).ok());
    EXPECT_EQ(said.str().find("begun with weights of SHA-256 0a1b") != std::string::npos,
              !digest.empty());
  }
}

/// Its digest is right: it was broken when it was written.
TEST(VerifyVerb, ATokenizerThatIsCutIsAFault) {
  tests::TemporaryFolder run;
  gpu::TextFile cut = {"tokenizer.json", R"({"model": {"voc)"};
  ASSERT_TRUE(gpu::keep_text_files({cut}, run.path()).ok());
  const auto saved = gpu::save_small_checkpoint(run.path(), 1, 0.5F);
  ASSERT_TRUE(saved.ok()) << saved.status();
  std::ostringstream said;
  EXPECT_TRUE(absl::IsDataLoss(verify_checkpoints(run.path(), said)));
  EXPECT_THAT(said.str(), HasSubstr("step-00000001/tokenizer.json"));
  for (const char* name : {"COMPLETE", "trainer_state.json", "optimizer.safetensors.index.json"}) {
    fs::remove(*saved + "/" + name);
  }
  const absl::Status status = verify_checkpoints(*saved, said);  // It is a model's folder.
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("step-00000001/tokenizer.json"));
}

}  // namespace
}  // namespace skein::cli
