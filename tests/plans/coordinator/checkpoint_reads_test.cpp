#include "plans/coordinator/checkpoint_reads.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace skein::plans {
namespace {

const std::string kStillWriting = "a worker is still writing it";
const std::string kNoSpace = "no space";

/// Who waits first for a worker that writes, and then for space, has something to put right.
TEST(CheckpointReads, EachReasonWhyLeftStateIsNotToBeHadIsToldOnce) {
  CheckpointReads reads(/*is_verifying=*/false);
  for (int search = 0; search < 2; ++search) {  // The next one tells anew.
    reads.seek();
    for (const std::string& reason : {kStillWriting, kNoSpace}) {
      const auto event = reads.on_seeking_delayed(reason);
      ASSERT_TRUE(event.has_value());
      EXPECT_EQ(event->name, "checkpoint.waiting");
      EXPECT_THAT(event->text, ::testing::HasSubstr(reason));
    }
    EXPECT_EQ(reads.on_seeking_delayed(kStillWriting), std::nullopt);
    EXPECT_EQ(reads.on_seeking_delayed(kNoSpace), std::nullopt);
    reads.on_sought();
  }
}

TEST(CheckpointReads, ReasonsThatAreNeverTheSameAreNotToldForEver) {
  CheckpointReads reads(/*is_verifying=*/false);
  reads.seek();
  int told = 0;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    told += reads.on_seeking_delayed(absl::StrCat("fault ", attempt)) ? 1 : 0;
  }
  EXPECT_EQ(told, 16);
}

}  // namespace
}  // namespace skein::plans
