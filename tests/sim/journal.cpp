#include "tests/sim/journal.hpp"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace skein::sim {
namespace {

absl::Status superseded() {
  return absl::FailedPreconditionError("a coordinator that was started later has the journal");
}

absl::Status disk_full() { return absl::UnavailableError("the disk of the journal is full"); }

class MemoryJournal final : public actors::Journal {
 public:
  explicit MemoryJournal(JournalStore& store) : store_(store), term_(store.term += kTermStep) {
    ++store.lives;
    const bool is_new = store.plans.empty() && !store.floor;
    const uint64_t newest = store.plans.empty() ? 0 : store.plans.rbegin()->first;
    floor_ = is_new ? 0 : actors::next_generation_floor(std::max(newest, store.floor.value_or(0)));
    store.floor = floor_;
  }

  uint64_t term() const override { return term_; }
  uint64_t generation_floor() const override { return floor_; }
  absl::Status raise_floor(uint64_t generation) override {
    store_.floor = floor_ = generation;
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<plans::Plan>> last_plans(size_t most) override {
    std::vector<plans::Plan> plans;
    for (auto each = store_.plans.rbegin(); each != store_.plans.rend(); ++each) {
      if (plans.size() == most) break;
      plans.push_back(each->second);
    }
    return plans;
  }
  absl::Status append_plan(const plans::Plan& plan) override {
    if (store_.is_full) return disk_full();
    if (is_superseded()) return superseded();
    store_.on_plan(plan);
    store_.plans[plan.generation] = plan;
    return absl::OkStatus();
  }
  absl::Status rewind(uint64_t first_step) override {
    if (store_.is_full) return disk_full();
    if (is_superseded()) return superseded();
    store_.on_rewind(first_step);
    store_.commits.erase(store_.commits.lower_bound(first_step), store_.commits.end());
    return absl::OkStatus();
  }
  absl::Status append(const plans::CommitRecord& record) override {
    if (store_.is_full) return disk_full();
    store_.pending = 0;
    if (is_superseded()) return superseded();
    store_.on_append(record);
    if (store_.commits.emplace(record.step, record).second) return absl::OkStatus();
    return absl::AlreadyExistsError(absl::StrCat("step ", record.step, " was committed before"));
  }
  std::function<absl::Status()> later_life_check() const override {
    return [store = &store_, term = term_] {
      return is_superseded(*store, term) ? superseded() : absl::OkStatus();
    };
  }
  absl::StatusOr<std::vector<plans::CommitRecord>> read() override {
    std::vector<plans::CommitRecord> records;
    for (const auto& [step, record] : store_.commits) records.push_back(record);
    return records;
  }

 private:
  bool is_superseded() const { return is_superseded(store_, term_); }
  static bool is_superseded(const JournalStore& store, uint64_t term) {
    return store.has_fence && store.term != term;
  }

  JournalStore& store_;
  const uint64_t term_;
  uint64_t floor_ = 0;
};

}  // namespace

void forget_newest(JournalStore& store, size_t count) {
  for (; count > 0 && !store.plans.empty(); --count) {
    const auto plan = std::prev(store.plans.end());
    const bool has_commit =
        !store.commits.empty() && store.commits.rbegin()->second.generation == plan->first;
    if (has_commit) {
      store.commits.erase(std::prev(store.commits.end()));
    } else {
      store.plans.erase(plan);
    }
  }
  if (!store.plans.empty()) return;
  store.commits.clear();
  store.floor.reset();
}

void set_clock_back(JournalStore& store) { store.term -= kTermStep + kTermStep / 2; }

std::shared_ptr<actors::Journal> open_journal(JournalStore& store) {
  return std::make_shared<MemoryJournal>(store);
}

}  // namespace skein::sim
