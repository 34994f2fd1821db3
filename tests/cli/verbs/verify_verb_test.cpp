#include "cli/verbs/verify_verb.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>

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

}  // namespace
}  // namespace skein::cli
