#include "actors/coordinator/journal.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_folder.hpp"

namespace skein::actors {
namespace {

TEST(Journal, KeepsCommitsAcrossLivesWithGrowingTerms) {
  tests::TemporaryFolder folder;
  uint64_t term = 0;
  for (uint64_t step = 0; step < 5; ++step) {
    auto journal = Journal::open(folder.file("journal"));
    ASSERT_TRUE(journal.ok()) << journal.status();
    EXPECT_GT((*journal)->term(), term);
    term = (*journal)->term();
    ASSERT_TRUE((*journal)->append({step, 1, term, 8 * step, 8, 2.5, 0.5}).ok());
    const auto records = (*journal)->read();
    ASSERT_TRUE(records.ok());
    ASSERT_EQ(records->size(), step + 1);
    EXPECT_EQ(records->back().first_sample, 8 * step);
    EXPECT_EQ(records->back().loss, 2.5);
  }
}

TEST(Journal, ANewOneHasALargerTermThanOneThatWasLost) {
  tests::TemporaryFolder folder;
  const uint64_t term = Journal::open(folder.file("journal")).value()->term();
  EXPECT_GE(Journal::open(folder.file("other")).value()->term(), term);
}

TEST(Journal, RefusesToCommitAStepTwice) {
  tests::TemporaryFolder folder;
  auto journal = Journal::open(folder.file("journal")).value();
  ASSERT_TRUE(journal->append({7}).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(journal->append({7})));
  ASSERT_TRUE(journal->rewind(7).ok());
  EXPECT_TRUE(journal->append({7}).ok());
}

TEST(Journal, SaysWhichFileIsNoJournal) {
  tests::TemporaryFolder folder;
  std::ofstream(folder.file("journal")) << std::string(5000, 'x');
  const auto journal = Journal::open(folder.file("journal"));
  EXPECT_TRUE(absl::IsDataLoss(journal.status()));
  EXPECT_NE(std::string(journal.status().message()).find("journal"), std::string::npos);
  EXPECT_FALSE(Journal::open(folder.file("no/such/folder")).ok());
}

}  // namespace
}  // namespace skein::actors
