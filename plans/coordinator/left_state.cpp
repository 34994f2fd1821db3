#include "plans/coordinator/left_state.hpp"

#include <algorithm>

#include "plans/coordinator/commit_log.hpp"

namespace skein::plans {
namespace {

/// 0: it is not known any more.
double loss_after(const std::vector<CommitRecord>& records, uint64_t steps) {
  const auto record =
      std::lower_bound(records.begin(), records.end(), steps,
                       [](const CommitRecord& each, uint64_t end) { return each.step + 1 < end; });
  return record == records.end() || record->step + 1 != steps ? 0 : record->loss;
}

}  // namespace

std::optional<double> loss_of_sought(const SeekLeftState& sought, const LeftState& left) {
  const bool is_of_run = left.steps_done <= sought.steps_done &&
                         generation_of(sought.generations, left.steps_done) == left.generation;
  if (!is_of_run) return std::nullopt;
  return left.steps_done == sought.steps_done ? sought.loss : 0;
}

std::optional<double> loss_of_resumed(const JournaledSteps& past, uint64_t steps,
                                      const LeftState& left) {
  if (left.steps_done >= steps) return std::nullopt;
  const bool is_later = left.steps_done > past.committed();
  const bool is_of_run = is_later
                             ? left.generation >= past.newest_plan
                             : generation_of(past.generations, left.steps_done) == left.generation;
  return is_of_run ? std::optional(loss_after(past.records, left.steps_done)) : std::nullopt;
}

}  // namespace skein::plans
