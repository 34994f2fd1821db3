#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "plans/base/status_macros.hpp"
#include "plans/plan/plan.hpp"
#include "plans/schedule/schedule_csv.hpp"

namespace skein::plans {
namespace {

// plan generation=1 schedule=1F1B microbatches=8 rows=4 recompute=0 stage layers=0..3 rank=0
// replicas=r0@w1[0+4] stage layers=3..8 rank=1 replicas=r1@w2[0+2],r2@w3[2+2] group stage=0
// members=r0 group tied members=r0,r1,r2 rank 0F0,0F1,0B0,0B1
//
// A replica of another rank than the first one of its stage has it behind its rows: r1@w4[2+2]^2

/// Stages, replicas and groups that a text may hold: ten times the largest cluster in mind.
constexpr size_t kEntriesMax = 100000;

/// Takes the pieces of one line apart; remembers whether all were as expected.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  Scanner& expect(std::string_view literal) {
    if (!take(literal)) ok_ = false;
    return *this;
  }
  template <class Number>
  Scanner& number(Number& value) {
    const char* begin = rest_.data();
    const auto [stop, error] = std::from_chars(begin, begin + rest_.size(), value);
    if (error != std::errc()) {
      ok_ = false;
    } else {
      rest_.remove_prefix(static_cast<size_t>(stop - begin));
    }
    return *this;
  }
  std::string_view word() {
    const std::string_view taken = rest_.substr(0, rest_.find(' '));
    rest_.remove_prefix(taken.size());
    return taken;
  }
  /// If it comes next.
  bool take(std::string_view literal) {
    if (rest_.substr(0, literal.size()) != literal) return false;
    rest_.remove_prefix(literal.size());
    return true;
  }
  bool at(char next) const { return !rest_.empty() && rest_.front() == next; }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

bool scan_header(std::string_view line, Plan& plan) {
  Scanner scan(line);
  scan.expect("plan generation=").number(plan.generation).expect(" schedule=");
  const absl::StatusOr<ScheduleKind> kind = parse_schedule_kind(scan.word());
  if (!kind.ok()) return false;
  plan.schedule = *kind;
  scan.expect(" microbatches=").number(plan.microbatch_count);
  int recompute = 0, is_local = 0;
  scan.expect(" rows=").number(plan.microbatch_rows).expect(" recompute=").number(recompute);
  plan.recompute = recompute == 1;
  if (scan.take(" mode=")) {
    plan.mode = std::string(scan.word());
  } else if (scan.take(" columns=")) {  // Old word: as plans were written before modes had names.
    scan.number(is_local);
    if (is_local == 1) plan.mode = kLocalMode;
  }
  const auto is_flag = [](int value) { return value == 0 || value == 1; };
  return scan.done() && is_flag(recompute) && is_flag(is_local) && !plan.mode.empty();
}

bool scan_stage(std::string_view line, Plan& plan) {
  StagePlan& stage = plan.stages.emplace_back();
  Scanner scan(line);
  scan.expect("stage layers=").number(stage.layers.begin).expect("..").number(stage.layers.end);
  int32_t rank = 0;
  scan.expect(" rank=").number(rank).expect(" replicas=");
  do {
    if (!stage.replicas.empty()) scan.expect(",");
    ReplicaPlan& replica = stage.replicas.emplace_back();
    scan.expect("r").number(replica.id.value).expect("@w").number(replica.worker.value);
    scan.expect("[").number(replica.rows.begin).expect("+").number(replica.rows.count).expect("]");
    replica.rank = rank;
    if (scan.take("^")) scan.number(replica.rank);  // Another one than its stage.
  } while (scan.ok() && scan.at(',') && stage.replicas.size() < kEntriesMax);
  return scan.done();
}

bool scan_group(std::string_view line, Plan& plan) {
  ReductionGroup group;
  group.id.value = static_cast<uint32_t>(plan.groups.size());
  Scanner scan(line);
  scan.expect("group ");
  if (scan.at('t')) {
    group.scope = GroupScope::kTied;
    scan.expect("tied");
  } else {
    scan.expect("stage=").number(group.stage);
  }
  scan.expect(" members=");
  do {
    if (!group.members.empty()) scan.expect(",");
    scan.expect("r").number(group.members.emplace_back().value);
  } while (scan.ok() && scan.at(',') && group.members.size() < kEntriesMax);
  plan.groups.push_back(std::move(group));
  return scan.done();
}

/// Only the first line of the piece: the caller has split the text.
bool scan_rank(std::string_view line, Plan& plan) {
  line.remove_prefix(std::string_view("rank ").size());
  absl::StatusOr<Schedule> parsed = parse_csv(line);
  if (!parsed.ok() || parsed->size() != 1) return false;
  plan.actions.push_back(std::move(parsed->front()));
  return true;
}

}  // namespace

std::string to_text(const Plan& plan) {
  std::string text = absl::StrCat(
      "plan generation=", plan.generation, " schedule=", std::string(to_text(plan.schedule)),
      " microbatches=", plan.microbatch_count, " rows=", plan.microbatch_rows,
      " recompute=", plan.recompute ? 1 : 0,
      plan.mode == kSynchronousMode ? "" : absl::StrCat(" mode=", plan.mode), "\n");
  for (const StagePlan& stage : plan.stages) {
    absl::StrAppend(&text, "stage layers=", stage.layers.begin, "..", stage.layers.end,
                    " rank=", stage.rank(), " replicas=");
    for (const ReplicaPlan& replica : stage.replicas) {
      absl::StrAppend(&text, &replica == &stage.replicas.front() ? "r" : ",r", replica.id.value,
                      "@w", replica.worker.value);
      absl::StrAppend(&text, "[", replica.rows.begin, "+", replica.rows.count, "]");
      if (replica.rank != stage.rank()) absl::StrAppend(&text, "^", replica.rank);
    }
    text += "\n";
  }
  for (const ReductionGroup& group : plan.groups) {
    const bool tied = group.scope == GroupScope::kTied;
    absl::StrAppend(&text, "group ", tied ? "tied" : absl::StrCat("stage=", group.stage),
                    " members=");
    for (size_t i = 0; i < group.members.size(); ++i) {
      absl::StrAppend(&text, i == 0 ? "r" : ",r", group.members[i].value);
    }
    text += "\n";
  }
  for (const ActionList& actions : plan.actions) absl::StrAppend(&text, "rank ", to_csv({actions}));
  return text;
}

absl::StatusOr<Plan> parse_plan(const std::string& text) {
  Plan plan;
  size_t number = 0;
  for (absl::string_view piece : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::string_view line(piece.data(), piece.size());
    const bool ok = number == 0                  ? scan_header(line, plan)
                    : line.starts_with("stage ") ? scan_stage(line, plan)
                    : line.starts_with("rank ")  ? scan_rank(line, plan)
                                                 : scan_group(line, plan);
    if (!ok || number > kEntriesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number + 1, " of the plan is not understood: ", piece));
    }
    ++number;
  }
  if (number == 0) return absl::InvalidArgumentError("the plan is empty");
  return plan;
}

}  // namespace skein::plans
