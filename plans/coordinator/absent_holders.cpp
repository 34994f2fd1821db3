#include "plans/coordinator/absent_holders.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace skein::plans {
namespace {

constexpr size_t kDescribedMax = 8;

}  // namespace

void AbsentHolders::await(WorkerId worker, const std::string& why, const Patience& patience,
                          const std::string& address, uint64_t now_us) {
  const uint64_t all_us = patience.wait_us + patience.more_us;
  const uint64_t left_us = left_us_.try_emplace(worker, all_us).first->second;
  absent_[worker] = {why, now_us, now_us + std::min(patience.wait_us, left_us), address};
}

void AbsentHolders::on_back(WorkerId worker, uint64_t now_us) {
  const auto absence = absent_.find(worker);
  if (absence == absent_.end()) return;
  if (absence->second.until_us != 0) {
    uint64_t& left_us = left_us_.at(worker);
    left_us -= std::min(left_us, std::max(kAbsenceUsMin, now_us - absence->second.since_us));
  }
  absent_.erase(absence);
}

void AbsentHolders::give_up(WorkerId worker, const std::string& why) {
  Absence& absence = absent_[worker];
  if (absence.until_us == 0) absence.why = why;
}

bool AbsentHolders::on_gone(const std::string& address) {
  for (auto& [worker, absence] : absent_) {
    if (absence.until_us == 0 || absence.address != address) continue;
    absence.until_us = 0;
    absl::StrAppend(&absence.why, ", and nobody listens at ", address, " any more");
    return true;
  }
  return false;
}

std::vector<WorkerId> AbsentHolders::awaited(uint64_t now_us) const {
  std::vector<WorkerId> awaited;
  for (const auto& [worker, absence] : absent_) {
    if (absence.until_us > now_us) awaited.push_back(worker);
  }
  return awaited;
}

uint64_t AbsentHolders::last_until_us() const {
  uint64_t last = 0;
  for (const auto& [worker, absence] : absent_) last = std::max(last, absence.until_us);
  return last;
}

std::string AbsentHolders::describe() const {
  std::vector<std::string> stories;
  for (const auto& [worker, absence] : absent_) {
    if (stories.size() == kDescribedMax) break;
    stories.push_back(absl::StrCat("w", worker.value, ": ", absence.why,
                                   absence.until_us != 0 ? ", and it has not come back" : ""));
  }
  if (absent_.size() > stories.size()) {
    stories.push_back(absl::StrCat("and ", absent_.size() - stories.size(), " more"));
  }
  return absl::StrJoin(stories, "; ");
}

}  // namespace skein::plans
