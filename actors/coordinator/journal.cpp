#include "actors/coordinator/journal.hpp"

#include <sqlite3.h>
#include <sys/stat.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net/codec/bounds.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::actors {
namespace {

constexpr const char* kSchema =
    "CREATE TABLE IF NOT EXISTS terms (term INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  started TEXT DEFAULT CURRENT_TIMESTAMP);"
    "CREATE TABLE IF NOT EXISTS commits (step INTEGER PRIMARY KEY, generation INTEGER NOT NULL,"
    "  term INTEGER NOT NULL, first_sample INTEGER NOT NULL, sample_count INTEGER NOT NULL,"
    "  loss REAL, gradient_norm REAL);"
    "CREATE TABLE IF NOT EXISTS plans (generation INTEGER PRIMARY KEY, term INTEGER NOT NULL,"
    "  plan TEXT NOT NULL);"
    "CREATE TABLE IF NOT EXISTS floors (generation INTEGER NOT NULL);";
/// A journal that was lost begins anew, and workers may be left that have served it: its terms are
/// not to be smaller, so they are no less than the time in milliseconds.
constexpr const char* kNextTerm =
    "INSERT INTO terms (term) SELECT MAX(COALESCE(MAX(term), 0) + 1,"
    "  CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) FROM terms;";
/// Plans are synced when they are written, so that few of a life can be unknown to the next one;
/// and so is its floor, if all of them are.
constexpr const char* kNewestGeneration =
    "SELECT COUNT(*), MAX(generation)"
    "  FROM (SELECT generation FROM floors UNION ALL SELECT generation FROM plans);";
/// A commit writes a page or two whole, which is a fifth of its time with pages of 4 KiB.
constexpr const char* kPageSize = "PRAGMA page_size=512;";
/// What is written is on disk before the call returns, with all before it; or not.
constexpr const char* kEager = "PRAGMA synchronous=FULL;";
constexpr const char* kLazy = "PRAGMA synchronous=NORMAL;";
/// Between looks whether the file is still there, when steps are short.
constexpr auto kLookInterval = std::chrono::milliseconds(500);
/// Another process that holds the file is waited for this long.
constexpr int kBusyTimeoutMs = 2000;

using Clock = std::chrono::steady_clock;

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close(database); }
};
struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;
using Statement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

/// 0: there is no such file.
uint64_t inode_of(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

class SqliteJournal final : public Journal {
 public:
  SqliteJournal(std::string path, Database database)
      : path_(std::move(path)), database_(std::move(database)) {}

  absl::Status prepare() {
    // The write-ahead log without a sync per step survives the process, not the machine: after a
    // power cut the last steps may be missing, and the workers' own state is then ahead.
    SKEIN_RETURN_IF_ERROR(execute(kPageSize));
    SKEIN_RETURN_IF_ERROR(execute("PRAGMA journal_mode=WAL;"));
    SKEIN_RETURN_IF_ERROR(execute(kEager));
    SKEIN_RETURN_IF_ERROR(execute(kSchema));
    SKEIN_RETURN_IF_ERROR(execute(kNextTerm));
    term_ = static_cast<uint64_t>(sqlite3_last_insert_rowid(database_.get()));
    SKEIN_ASSIGN_OR_RETURN(Statement newest, statement(kNewestGeneration));
    if (sqlite3_step(newest.get()) != SQLITE_ROW) return error("read");
    const bool is_new = sqlite3_column_int64(newest.get(), 0) == 0;
    const auto generation = static_cast<uint64_t>(sqlite3_column_int64(newest.get(), 1));
    newest.reset();
    if (generation > net::kGenerationsMax) return damaged(absl::StrCat("plan ", generation));
    SKEIN_RETURN_IF_ERROR(raise_floor(is_new ? 0 : next_generation_floor(generation)));
    SKEIN_ASSIGN_OR_RETURN(
        insert_, statement(absl::StrCat("INSERT INTO commits SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 ",
                                        "WHERE ", is_newest(), ";")
                               .c_str()));
    inode_ = inode_of(path_);
    return absl::OkStatus();
  }

  uint64_t term() const override { return term_; }
  uint64_t generation_floor() const override { return generation_floor_; }
  absl::Status raise_floor(uint64_t generation) override {
    SKEIN_RETURN_IF_ERROR(execute(kEager));
    absl::Status status =
        execute(absl::StrCat("INSERT INTO floors VALUES (", generation, ");").c_str());
    SKEIN_RETURN_IF_ERROR(execute(kLazy));
    if (status.ok()) generation_floor_ = generation;
    return status;
  }

  absl::Status rewind(uint64_t first_step) override {
    SKEIN_RETURN_IF_ERROR(find_file());
    // Synced, or a power cut would bring back steps that were taken back, and those that came in
    // their place would be none of the run's.
    SKEIN_RETURN_IF_ERROR(execute(kEager));
    absl::Status deleted = execute(
        absl::StrCat("DELETE FROM commits WHERE step >= ", first_step, " AND ", is_newest(), ";")
            .c_str());
    deleted.Update(execute(kLazy));
    SKEIN_RETURN_IF_ERROR(deleted);
    SKEIN_ASSIGN_OR_RETURN(Statement asked,
                           statement(absl::StrCat("SELECT ", is_newest(), ";").c_str()));
    if (sqlite3_step(asked.get()) != SQLITE_ROW) return error("read");
    return sqlite3_column_int(asked.get(), 0) != 0 ? absl::OkStatus() : superseded();
  }

  absl::Status append(const plans::CommitRecord& record) override {
    if (Clock::now() >= next_look_) SKEIN_RETURN_IF_ERROR(find_file());
    sqlite3_stmt* insert = insert_.get();
    sqlite3_reset(insert);
    sqlite3_bind_int64(insert, 1, static_cast<sqlite3_int64>(record.step));
    sqlite3_bind_int64(insert, 2, static_cast<sqlite3_int64>(record.generation));
    sqlite3_bind_int64(insert, 3, static_cast<sqlite3_int64>(record.term));
    sqlite3_bind_int64(insert, 4, static_cast<sqlite3_int64>(record.first_sample));
    sqlite3_bind_int64(insert, 5, static_cast<sqlite3_int64>(record.sample_count));
    sqlite3_bind_double(insert, 6, record.loss);
    sqlite3_bind_double(insert, 7, record.gradient_norm);
    const int code = sqlite3_step(insert);
    if (code == SQLITE_CONSTRAINT) {
      return absl::AlreadyExistsError(
          absl::StrCat("step ", record.step, " was committed before, says ", path_));
    }
    if (code == SQLITE_DONE && sqlite3_changes(database_.get()) == 0) return superseded();
    if (code == SQLITE_DONE) return absl::OkStatus();
    absl::Status failed = error("write a commit to");
    sqlite3_reset(insert);  // Or its transaction would stay open.
    return failed;
  }

  std::function<absl::Status()> later_life_check() const override {
    return [path = path_, term = term_] {
      sqlite3* raw = nullptr;
      const int code = sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READONLY, nullptr);
      const Database database(raw);
      if (code != SQLITE_OK) return absl::OkStatus();
      sqlite3_busy_timeout(raw, kBusyTimeoutMs);
      sqlite3_stmt* asked = nullptr;
      sqlite3_prepare_v2(raw, "SELECT MAX(term) FROM terms;", -1, &asked, nullptr);
      const Statement statement(asked);
      const bool is_later = asked != nullptr && sqlite3_step(asked) == SQLITE_ROW &&
                            static_cast<uint64_t>(sqlite3_column_int64(asked, 0)) > term;
      return is_later ? superseded(path) : absl::OkStatus();
    };
  }

  absl::StatusOr<std::vector<plans::Plan>> last_plans(size_t most) override {
    SKEIN_ASSIGN_OR_RETURN(Statement select,
                           statement("SELECT plan FROM plans ORDER BY generation DESC;"));
    std::vector<plans::Plan> plans;
    while (plans.size() < most) {
      const int code = sqlite3_step(select.get());
      if (code == SQLITE_DONE) break;
      if (code != SQLITE_ROW) return error("read");
      const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(select.get(), 0));
      absl::StatusOr<plans::Plan> plan = plans::parse_plan(text == nullptr ? "" : text);
      if (!plan.ok() && !plans.empty()) continue;  // It is only asked whose plan it was.
      if (!plan.ok()) return damaged(std::string(plan.status().message()));
      plans.push_back(*std::move(plan));
    }
    return plans;
  }

  absl::Status append_plan(const plans::Plan& plan) override {
    SKEIN_RETURN_IF_ERROR(find_file());
    SKEIN_ASSIGN_OR_RETURN(
        Statement insert,
        statement(
            absl::StrCat("INSERT OR REPLACE INTO plans SELECT ?1, ?2, ?3 WHERE ", is_newest(), ";")
                .c_str()));
    const std::string text = plans::to_text(plan);
    sqlite3_bind_int64(insert.get(), 1, static_cast<sqlite3_int64>(plan.generation));
    sqlite3_bind_int64(insert.get(), 2, static_cast<sqlite3_int64>(term_));
    sqlite3_bind_text(insert.get(), 3, text.c_str(), static_cast<int>(text.size()), nullptr);
    // Synced, with all before it: of plans a power cut takes none but those under way.
    SKEIN_RETURN_IF_ERROR(execute(kEager));
    const bool is_written = sqlite3_step(insert.get()) == SQLITE_DONE;
    absl::Status status = is_written ? absl::OkStatus() : error("write a plan to");
    if (is_written && sqlite3_changes(database_.get()) == 0) status = superseded();
    insert.reset();
    status.Update(execute(kLazy));
    return status;
  }

  absl::StatusOr<std::vector<plans::CommitRecord>> read() override {
    SKEIN_ASSIGN_OR_RETURN(Statement select, statement("SELECT * FROM commits ORDER BY step;"));
    std::vector<plans::CommitRecord> records;
    int code = SQLITE_ROW;
    while ((code = sqlite3_step(select.get())) == SQLITE_ROW) {
      auto integer = [&](int column) {
        return static_cast<uint64_t>(sqlite3_column_int64(select.get(), column));
      };
      records.push_back({integer(0), integer(1), integer(2), integer(3), integer(4),
                         sqlite3_column_double(select.get(), 5),
                         sqlite3_column_double(select.get(), 6)});
      const plans::CommitRecord& record = records.back();
      const bool is_sound =
          record.step <= net::kStepsMax && record.generation <= net::kGenerationsMax &&
          record.first_sample <= net::kSamplesMax && record.sample_count <= net::kSamplesMax;
      if (!is_sound) {
        return damaged(
            absl::StrCat("a commit of step ", record.step, " in plan ", record.generation));
      }
    }
    if (code != SQLITE_DONE) return error("read");
    return records;
  }

 private:
  /// The lock of the run folder is to keep a later life from beginning. Where it does not, as on a
  /// network's file system that has given up on us, that one's journal stays as it is.
  std::string is_newest() const { return absl::StrCat(term_, " = (SELECT MAX(term) FROM terms)"); }
  absl::Status superseded() const { return superseded(path_); }
  static absl::Status superseded(const std::string& path) {
    return absl::FailedPreconditionError(absl::StrCat("a coordinator that was started later has ",
                                                      path, "; this one writes no more"));
  }

  /// Whether the file that is written is still the one at its path.
  absl::Status find_file() {
    next_look_ = Clock::time_point();
    if (inode_of(path_) != inode_) {
      return absl::UnavailableError(absl::StrCat(
          "the journal ", path_, " was removed or replaced; put its folder back, or stop the run"));
    }
    next_look_ = Clock::now() + kLookInterval;
    return absl::OkStatus();
  }

  absl::Status execute(const char* sql) {
    const int code = sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr);
    return code == SQLITE_OK ? absl::OkStatus() : error("use");
  }

  absl::StatusOr<Statement> statement(const char* sql) {
    sqlite3_stmt* raw = nullptr;
    if (sqlite3_prepare_v2(database_.get(), sql, -1, &raw, nullptr) != SQLITE_OK) {
      return error("use");
    }
    return Statement(raw);
  }

  static constexpr char kAdvice[] =
      "; put it back from a copy, or move it away to go on from the newest checkpoint";
  /// SQLite reads it, and we have not written it.
  absl::Status damaged(const std::string& what) const {
    return absl::DataLossError(
        absl::StrCat("the journal ", path_, " is damaged, it has ", what, kAdvice));
  }

  absl::Status error(const char* verb) {
    const std::string text = absl::StrCat("cannot ", verb, " the journal ", path_, ": ",
                                          sqlite3_errmsg(database_.get()));
    const int code = sqlite3_errcode(database_.get());
    const bool is_damaged = code == SQLITE_CORRUPT || code == SQLITE_NOTADB;
    return is_damaged ? absl::DataLossError(absl::StrCat(text, kAdvice))
                      : absl::UnavailableError(text);
  }

  std::string path_;
  Database database_;
  Statement insert_;
  uint64_t term_ = 0;
  uint64_t generation_floor_ = 0;
  uint64_t inode_ = 0;
  Clock::time_point next_look_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> Journal::open(const std::string& path) {
  sqlite3* raw = nullptr;
  const int code = sqlite3_open(path.c_str(), &raw);
  Database database(raw);
  if (code != SQLITE_OK) {
    return absl::UnavailableError(
        absl::StrCat("cannot open the journal ", path, ": ", sqlite3_errstr(code)));
  }
  sqlite3_busy_timeout(raw, kBusyTimeoutMs);
  auto journal = std::make_unique<SqliteJournal>(path, std::move(database));
  SKEIN_RETURN_IF_ERROR(journal->prepare());
  return std::unique_ptr<Journal>(std::move(journal));
}

}  // namespace skein::actors
