#include "plans/schedule/schedule.hpp"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/schedule/early_backward.hpp"
#include "plans/schedule/greedy_schedule.hpp"
#include "plans/schedule/interleaved_1f1b.hpp"
#include "plans/schedule/zero_bubble.hpp"

namespace skein::plans {
namespace {

struct NamedKind {
  ScheduleKind kind;
  const char* name;
};

constexpr NamedKind kNames[] = {
    {ScheduleKind::kGPipe, "GPipe"},    {ScheduleKind::k1F1B, "1F1B"},
    {ScheduleKind::k1F1BPB, "1F1B-PB"}, {ScheduleKind::kInterleaved1F1B, "Interleaved1F1B"},
    {ScheduleKind::kZBH1, "ZBH1"},      {ScheduleKind::kZBH2, "ZBH2"},
    {ScheduleKind::kGreedy, "Greedy"},  {ScheduleKind::kCustom, "Custom"},
};

absl::Status check_shape(ScheduleKind kind, const ScheduleShape& shape) {
  const bool has_own_check = kind == ScheduleKind::kGreedy || kind == ScheduleKind::kCustom ||
                             kind == ScheduleKind::kInterleaved1F1B;
  if (has_own_check || shape.rank_count() == shape.stage_count()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      std::string(to_text(kind)), " needs one stage per rank, there are ", shape.stage_count(),
      " stages on ", shape.rank_count(), " ranks; use \"Interleaved1F1B\" or \"Greedy\""));
}

absl::StatusOr<Schedule> list_actions(ScheduleKind kind, const ScheduleShape& shape,
                                      const ScheduleCosts& costs) {
  switch (kind) {
    case ScheduleKind::kGPipe:
      return early_backward(WarmUp::kAll, shape, costs);
    case ScheduleKind::k1F1B:
      return early_backward(WarmUp::kPA, shape, costs);
    case ScheduleKind::k1F1BPB:
      return early_backward(WarmUp::kPB, shape, costs);
    case ScheduleKind::kInterleaved1F1B:
      return interleaved_1f1b(shape);
    case ScheduleKind::kZBH1:
      return zero_bubble(ZeroBubble::kH1, shape, costs);
    case ScheduleKind::kZBH2:
      return zero_bubble(ZeroBubble::kH2, shape, costs);
    case ScheduleKind::kGreedy: {
      SKEIN_ASSIGN_OR_RETURN(TimedSchedule timed, greedy_schedule(shape, costs));
      return std::move(timed.schedule);
    }
    case ScheduleKind::kCustom:
      break;
  }
  return absl::InvalidArgumentError(
      "a \"Custom\" schedule is not made but given, for example as a CSV file");
}

}  // namespace

const std::vector<ScheduleKind>& schedule_kinds() {
  static const std::vector<ScheduleKind> kinds = [] {
    std::vector<ScheduleKind> all;
    for (const NamedKind& named : kNames) all.push_back(named.kind);
    return all;
  }();
  return kinds;
}

absl::StatusOr<ScheduleKind> parse_schedule_kind(std::string_view name) {
  std::string list;
  for (const NamedKind& named : kNames) {
    if (name == named.name) return named.kind;
    absl::StrAppend(&list, list.empty() ? "\"" : ", \"", named.name, "\"");
  }
  return absl::InvalidArgumentError(absl::StrCat("parallelism.pipeline_parallel_schedule = \"",
                                                 std::string(name), "\": must be one of ", list));
}

std::string_view to_text(ScheduleKind kind) {
  const auto* found = std::find_if(std::begin(kNames), std::end(kNames),
                                   [&](const NamedKind& named) { return named.kind == kind; });
  SKEIN_CHECK(found != std::end(kNames)) << static_cast<int>(kind);
  return found->name;
}

absl::StatusOr<Schedule> make_schedule(ScheduleKind kind, const ScheduleShape& shape,
                                       const ScheduleCosts& costs) {
  SKEIN_RETURN_IF_ERROR(check_shape(kind, shape));
  SKEIN_ASSIGN_OR_RETURN(const ScheduleCosts full, written_out(shape, costs));
  SKEIN_ASSIGN_OR_RETURN(Schedule schedule, list_actions(kind, shape, full));
  SKEIN_RETURN_IF_ERROR(check_peaks(to_text(kind), schedule, full));
  return schedule;
}

}  // namespace skein::plans
