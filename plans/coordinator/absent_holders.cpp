#include "plans/coordinator/absent_holders.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace skein::plans {
namespace {

constexpr size_t kDescribedMax = 8;

}  // namespace

void AbsentHolders::await(WorkerId worker, const std::string& why, uint64_t until_us,
                          uint64_t longest_us, const std::string& address) {
  const uint64_t first_us = first_until_us_.try_emplace(worker, until_us).first->second;
  absent_[worker] = {why, std::min(until_us, first_us + longest_us), address};
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
