#include "actors/coordinator/journal.hpp"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <utility>
#include <vector>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/send.hpp>

#include "actors/actor_system.hpp"
#include "actors/coordinator/journal_io.hpp"
#include "plans/plan/layout_plan.hpp"
#include "tests/actors/small_job.hpp"
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

TEST(Journal, NoLifeBeginsWithGenerationsThatAnEarlierOneMayHaveAssigned) {
  tests::TemporaryFolder folder;
  const plans::JobSpec job = small_job(1, 1);
  std::vector<uint64_t> floors;
  for (const uint64_t newest : {3, 0, 360, 0}) {  // 0: the life writes no plan.
    const auto journal = Journal::open(folder.file("journal"));
    ASSERT_TRUE(journal.ok()) << journal.status();
    floors.push_back((*journal)->generation_floor());
    if (newest == 0) continue;
    const plans::Plan plan = plans::make_layout_plan(job, {{1}}, newest).value();
    ASSERT_TRUE((*journal)->append_plan(plan).ok());
  }
  EXPECT_EQ(floors, (std::vector<uint64_t>{0, 100, 200, 500}));
}

TEST(Journal, ALifeThatKnowsThatOneWasLostTellsTheNextOnes) {
  tests::TemporaryFolder folder;
  ASSERT_TRUE(Journal::open(folder.file("journal")).value()->raise_floor(12'345).ok());
  EXPECT_EQ(Journal::open(folder.file("journal")).value()->generation_floor(), 12'400u);
}

TEST(Journal, ANewOneHasALargerTermThanOneThatWasLost) {
  tests::TemporaryFolder folder;
  const uint64_t term = Journal::open(folder.file("journal")).value()->term();
  EXPECT_GE(Journal::open(folder.file("other")).value()->term(), term);
}

TEST(Journal, TakesNothingOfAnEarlierLifeOnceALaterOneHasBegun) {
  tests::TemporaryFolder folder;
  const auto first = Journal::open(folder.file("journal")).value();
  ASSERT_TRUE(first->append({0, 1, first->term(), 0, 8, 2.5, 0.5}).ok());
  const auto check = first->later_life_check();
  EXPECT_TRUE(check().ok());
  const auto later = Journal::open(folder.file("journal")).value();
  EXPECT_TRUE(absl::IsFailedPrecondition(check()));
  EXPECT_TRUE(later->later_life_check()().ok());
  const plans::Plan plan = plans::make_layout_plan(small_job(1, 1), {{1}}, 2).value();
  EXPECT_TRUE(absl::IsFailedPrecondition(first->append({1, 1, first->term(), 8, 8, 2.5, 0.5})));
  EXPECT_TRUE(absl::IsFailedPrecondition(first->append_plan(plan)));
  EXPECT_TRUE(absl::IsFailedPrecondition(first->rewind(0)));
  EXPECT_TRUE(later->last_plans(1)->empty());
  EXPECT_TRUE(later->append({1, 1, later->term(), 8, 8, 2.5, 0.5}).ok());
  EXPECT_EQ(later->read()->size(), 2u);
  std::filesystem::remove(folder.file("journal"));
  EXPECT_TRUE(check().ok()) << "what cannot be asked is no sign of a later life";
}

/// Counts what SQLite syncs, while it lives.
class SyncCount {
 public:
  SyncCount() {
    vfs_ = *sqlite3_vfs_find(nullptr);
    base_ = sqlite3_vfs_find(nullptr);
    vfs_.zName = "counts-syncs";
    vfs_.xOpen = [](sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out) {
      const int code = base_->xOpen(base_, name, file, flags, out);
      if (code != SQLITE_OK || file->pMethods == nullptr) return code;
      sync_ = file->pMethods->xSync;  // The same for all files.
      auto& counting = methods_[file->pMethods];
      counting = *file->pMethods;
      counting.xSync = [](sqlite3_file* synced, int how) {
        ++count_;
        return sync_(synced, how);
      };
      file->pMethods = &counting;
      return code;
    };
    count_ = 0;
    sqlite3_vfs_register(&vfs_, /*makeDflt=*/1);
  }
  ~SyncCount() {
    sqlite3_vfs_unregister(&vfs_);
    sqlite3_vfs_register(base_, /*makeDflt=*/1);
  }
  SyncCount(const SyncCount&) = delete;
  SyncCount& operator=(const SyncCount&) = delete;

  static int take() { return std::exchange(count_, 0); }

 private:
  static inline sqlite3_vfs* base_ = nullptr;
  static inline int (*sync_)(sqlite3_file*, int) = nullptr;
  static inline int count_ = 0;
  static inline std::map<const sqlite3_io_methods*, sqlite3_io_methods> methods_;
  sqlite3_vfs vfs_;
};

TEST(Journal, APowerCutBringsBackNoStepsThatWereTakenBack) {
  tests::TemporaryFolder folder;
  const SyncCount syncs;
  const auto journal = Journal::open(folder.file("journal"));
  ASSERT_TRUE(journal.ok()) << journal.status();
  const uint64_t term = (*journal)->term();
  for (uint64_t step = 0; step < 3; ++step) {
    ASSERT_TRUE((*journal)->append({step, 1, term, 8 * step, 8, 2.5, 0.5}).ok());
  }
  SyncCount::take();
  ASSERT_TRUE((*journal)->append({3, 1, term, 24, 8, 2.5, 0.5}).ok());
  EXPECT_EQ(SyncCount::take(), 0) << "a commit may be lost, which takes no time then";
  ASSERT_TRUE((*journal)->rewind(2).ok());
  EXPECT_GT(SyncCount::take(), 0);
  ASSERT_TRUE((*journal)->append({2, 2, term, 16, 8, 2.5, 0.5}).ok());
  EXPECT_EQ(SyncCount::take(), 0);
  EXPECT_EQ((*journal)->read()->size(), 3u);
}

TEST(Journal, RefusesToCommitAStepTwice) {
  tests::TemporaryFolder folder;
  auto journal = Journal::open(folder.file("journal")).value();
  ASSERT_TRUE(journal->append({7}).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(journal->append({7})));
  ASSERT_TRUE(journal->rewind(7).ok());
  EXPECT_TRUE(journal->append({7}).ok());
}

TEST(Journal, WritesNothingIntoAFileThatWasRemoved) {
  tests::TemporaryFolder folder;
  const std::string path = folder.file("journal");
  auto journal = Journal::open(path).value();
  ASSERT_TRUE(journal->append({7}).ok());
  std::filesystem::rename(path, path + ".away");
  EXPECT_TRUE(absl::IsUnavailable(journal->append_plan({})));
  const absl::Status gone = journal->append({8});
  EXPECT_TRUE(absl::IsUnavailable(gone)) << gone;
  EXPECT_NE(gone.message().find("was removed"), std::string::npos) << gone;
  std::filesystem::rename(path + ".away", path);
  EXPECT_TRUE(journal->append({8}).ok()) << "it is back";
}

TEST(Journal, SaysWhichFileIsNoJournal) {
  tests::TemporaryFolder folder;
  std::ofstream(folder.file("journal")) << std::string(5000, 'x');
  const auto journal = Journal::open(folder.file("journal"));
  EXPECT_TRUE(absl::IsDataLoss(journal.status()));
  EXPECT_NE(std::string(journal.status().message()).find("journal"), std::string::npos);
  EXPECT_FALSE(Journal::open(folder.file("no/such/folder")).ok());
}

/// On a disk that is full for the first few writes.
class FullJournal : public Journal {
 public:
  explicit FullJournal(int failures) : failures_(failures) {}
  uint64_t term() const override { return 1; }
  uint64_t generation_floor() const override { return 0; }
  absl::Status raise_floor(uint64_t) override { return write("floor"); }
  absl::StatusOr<std::vector<plans::Plan>> last_plans(size_t) override {
    return std::vector<plans::Plan>();
  }
  absl::Status append_plan(const plans::Plan&) override { return write("plan"); }
  absl::Status rewind(uint64_t) override { return write("rewind"); }
  absl::Status append(const plans::CommitRecord&) override { return write("commit"); }
  std::function<absl::Status()> later_life_check() const override {
    return [] { return absl::OkStatus(); };
  }
  absl::StatusOr<std::vector<plans::CommitRecord>> read() override {
    return std::vector<plans::CommitRecord>{};
  }
  const std::vector<std::string>& written() const { return written_; }

 private:
  absl::Status write(const std::string& what) {
    if (failures_-- > 0) return absl::UnavailableError("the disk is full");
    written_.push_back(what);
    return absl::OkStatus();
  }
  int failures_;
  std::vector<std::string> written_;
};

TEST(JournalIo, WhatADiskHasNoSpaceForIsTriedAgainInOrder) {
  caf::actor_system_config config;
  config.set("scheduler.policy", caf::atom("testing"));
  caf::actor_system system(config);
  auto& scheduler = dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
  auto journal = std::make_shared<FullJournal>(3);
  JournalIo io = system.spawn(journal_io, std::shared_ptr<Journal>(journal));
  std::vector<CommitJournaled> heard;
  JournalListener listener = system.spawn([&]() -> JournalListener::behavior_type {
    return {[&](const CommitJournaled& done) { heard.push_back(done); }};
  });
  caf::anon_send(io, plans::Plan());
  caf::anon_send(io, JournalRequest{{7}}, listener);
  scheduler.run();
  EXPECT_TRUE(journal->written().empty());
  for (int tries = 0; tries < 4; ++tries) {
    scheduler.advance_time(std::chrono::milliseconds(500));
    scheduler.run();
  }
  EXPECT_EQ(journal->written(), (std::vector<std::string>{"plan", "commit"}));
  ASSERT_EQ(heard.size(), 3u) << "it waits, it waits, and is written";
  EXPECT_TRUE(heard[0].is_retried);
  EXPECT_TRUE(absl::IsUnavailable(heard[0].status));
  EXPECT_FALSE(heard[2].is_retried);
  EXPECT_TRUE(heard[2].status.ok());
  EXPECT_EQ(heard[2].step, 7u);
  caf::anon_send_exit(io, caf::exit_reason::kill);
  caf::anon_send_exit(listener, caf::exit_reason::kill);
  scheduler.run();
}

/// On a disk that takes no write before somebody else has been heard.
class SlowJournal final : public FullJournal {
 public:
  explicit SlowJournal(std::future<void> heard) : FullJournal(0), heard_(std::move(heard)) {}
  absl::Status append(const plans::CommitRecord&) override {
    return heard_.wait_for(std::chrono::seconds(20)) == std::future_status::ready
               ? absl::OkStatus()
               : absl::DeadlineExceededError("no thread is left for others");
  }

 private:
  std::future<void> heard_;
};

TEST(JournalIo, AWriteThatTakesLongLeavesOthersAThread) {
  std::promise<void> heard;
  std::promise<absl::Status> written;
  caf::actor_system_config config = make_system_config();
  caf::actor_system system(config);
  JournalIo io =
      system.spawn(journal_io, std::shared_ptr<Journal>(new SlowJournal(heard.get_future())));
  JournalListener listener = system.spawn([&]() -> JournalListener::behavior_type {
    return {[&](const CommitJournaled& done) {
      if (done.step == 7) written.set_value(done.status);
      if (done.step == 8) heard.set_value();
    }};
  });
  caf::anon_send(io, JournalRequest{{7}}, listener);
  caf::anon_send(listener, CommitJournaled{8, absl::OkStatus(), false});
  EXPECT_EQ(written.get_future().get(), absl::OkStatus());
  caf::anon_send_exit(io, caf::exit_reason::kill);
  caf::anon_send_exit(listener, caf::exit_reason::kill);
}

}  // namespace
}  // namespace skein::actors
