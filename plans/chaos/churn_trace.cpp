#include "plans/chaos/churn_trace.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "plans/base/status_macros.hpp"

namespace skein::plans {
namespace {

constexpr size_t kEventsMax = 20'000;
constexpr size_t kNameMax = 64;
constexpr uint64_t kMillisecondsMax = 10ull * 366 * 86'400 * 1000;  // Ten years.
constexpr double kScaleMax = 1e6;
constexpr const char* kExample = "; write for example 480000,add,node1";

absl::Status wrong(const std::string& what) { return absl::InvalidArgumentError(what); }

bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= kNameMax &&
         std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isgraph(c); });
}

absl::StatusOr<ChurnEvent> parse_line(const std::string& line) {
  std::vector<std::string> cells = absl::StrSplit(line, ',');
  for (std::string& cell : cells) cell = std::string(absl::StripAsciiWhitespace(cell));
  if (cells.size() != 3) {
    return wrong(absl::StrCat("it has ", cells.size(), " cells and not 3", kExample));
  }
  uint64_t milliseconds = 0;
  const char* end = cells[0].data() + cells[0].size();
  const auto [stop, error] = std::from_chars(cells[0].data(), end, milliseconds);
  if (error != std::errc() || stop != end || milliseconds > kMillisecondsMax) {
    return wrong(absl::StrCat("its time is no whole number of milliseconds, 0 to ",
                              kMillisecondsMax, kExample));
  }
  if (cells[1] != "add" && cells[1] != "remove") {
    return wrong(absl::StrCat("its second cell is neither add nor remove", kExample));
  }
  if (!is_name(cells[2])) {
    return wrong(absl::StrCat("its machine has no name of 1 to ", kNameMax, " printable characters",
                              kExample));
  }
  return ChurnEvent{static_cast<double>(milliseconds) / 1000, cells[1] == "add", cells[2]};
}

/// Whether each may be what follows the events before it.
class Presence {
 public:
  absl::Status check(const ChurnEvent& event) {
    if (event.at_s < last_s_) return wrong("its time is before that of the line above");
    last_s_ = event.at_s;
    const bool changes =
        event.comes ? here_.insert(event.machine).second : here_.erase(event.machine) > 0;
    if (changes) return absl::OkStatus();
    return wrong(absl::StrCat(
        event.machine, event.comes ? " comes and is there already" : " goes and is not there"));
  }

 private:
  std::set<std::string> here_;
  double last_s_ = 0;
};

/// True if the machine that goes came at the same instant: then it was never there.
bool drop_visit_of_no_time(const ChurnEvent& gone, ChurnTrace& trace) {
  for (auto came = trace.rbegin(); came != trace.rend() && came->at_s == gone.at_s; ++came) {
    if (!came->comes || came->machine != gone.machine) continue;
    trace.erase(std::next(came).base());
    return true;
  }
  return false;
}

/// Each event's machine as a number, in the order in which they first come.
std::vector<int64_t> machine_numbers(const ChurnTrace& trace) {
  std::map<std::string, int64_t> numbers;
  std::vector<int64_t> of_events;
  for (const ChurnEvent& event : trace) {
    const auto next = static_cast<int64_t>(numbers.size());
    of_events.push_back(numbers.try_emplace(event.machine, next).first->second);
  }
  return of_events;
}

/// Most machines that are there at once, of every so many-th.
int64_t most_at_once(const ChurnTrace& trace, const std::vector<int64_t>& numbers, int64_t every) {
  int64_t here = 0;
  int64_t most = 0;
  for (size_t i = 0; i < trace.size(); ++i) {
    if (numbers[i] % every != 0) continue;
    here += trace[i].comes ? 1 : -1;
    most = std::max(most, here);
  }
  return most;
}

/// Hands out workers and devices.
class Members {
 public:
  explicit Members(int64_t devices) : devices_(devices) { free_devices(); }

  MemberChange come(const std::string& machine, double at_s) {
    const auto device = free_.begin();
    const MemberChange change{at_s, MemberChange::Kind::kJoins, WorkerId{++last_worker_}, *device};
    free_.erase(device);
    here_[machine] = change;
    return change;
  }

  /// How it came.
  MemberChange go(const std::string& machine) {
    const MemberChange came = here_.at(machine);
    here_.erase(machine);
    free_.insert(came.device);
    return came;
  }

  /// Those who are here become the first workers of a run, on the first devices.
  std::vector<MemberChange> begin_run() {
    std::vector<std::pair<WorkerId, std::string>> order;
    for (const auto& [machine, came] : here_) order.emplace_back(came.worker, machine);
    std::sort(order.begin(), order.end());
    last_worker_ = 0;
    free_devices();
    std::vector<MemberChange> changes;
    for (const auto& [worker, machine] : order) changes.push_back(come(machine, 0));
    return changes;
  }

 private:
  void free_devices() {
    for (int64_t device = 0; device < devices_; ++device)
      free_.insert(static_cast<int32_t>(device));
  }

  int64_t devices_;
  std::set<int32_t> free_;
  std::map<std::string, MemberChange> here_;  // By machine: how it came.
  uint32_t last_worker_ = 0;
};

/// What a machine's end is for a run: the notice, if the cloud gives one, and the loss.
void add_end(const MemberChange& came, double at_s, double notice_s, Churn& churn) {
  MemberChange change = came;
  if (notice_s > 0) {
    change.kind = MemberChange::Kind::kNotice;
    change.at_s = std::max(came.at_s, at_s - notice_s);
    churn.changes.push_back(change);
  }
  change.kind = MemberChange::Kind::kGoes;
  change.at_s = at_s;
  churn.changes.push_back(change);
}

absl::Status check(int64_t devices, const ChurnOptions& options) {
  if (devices < 1) return wrong("there is no device for a recorded machine");
  if (!(options.scale > 0 && options.scale <= kScaleMax)) {
    return wrong(absl::StrCat("a recording cannot run ", options.scale,
                              " times faster; expected above 0 to ", kScaleMax));
  }
  if (!(options.notice_s >= 0) || !(options.length_s >= 0) || std::isinf(options.notice_s) ||
      std::isinf(options.length_s) || !std::isfinite(options.from_s)) {
    return wrong("the notice, the start and the length of a recording are 0 s or more");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChurnTrace> parse_churn(std::string_view text) {
  ChurnTrace trace;
  Presence presence;
  size_t number = 0;
  for (const std::string& each :
       std::vector<std::string>(absl::StrSplit(std::string(text), '\n'))) {
    ++number;
    const std::string line(absl::StripAsciiWhitespace(each.substr(0, each.find('#'))));
    if (line.empty()) continue;
    if (trace.size() == kEventsMax) {
      return wrong(absl::StrCat("it has more than ", kEventsMax, " events; use a part of it"));
    }
    auto event = parse_line(line);
    absl::Status status = event.ok() ? presence.check(*event) : event.status();
    if (!status.ok()) {
      return wrong(absl::StrCat("line ", number, ": ", std::string(status.message())));
    }
    if (event->comes || !drop_visit_of_no_time(*event, trace)) trace.push_back(*std::move(event));
  }
  std::stable_sort(trace.begin(), trace.end(), [](const ChurnEvent& a, const ChurnEvent& b) {
    return std::pair(a.at_s, a.comes) < std::pair(b.at_s, b.comes);
  });
  if (!trace.empty()) return trace;
  return wrong(absl::StrCat("there is no machine that stays for any time", kExample));
}

absl::StatusOr<Churn> members_of(const ChurnTrace& trace, int64_t devices,
                                 const ChurnOptions& options) {
  SKEIN_RETURN_IF_ERROR(check(devices, options));
  if (trace.empty()) return wrong("the recording has no event");
  const std::vector<int64_t> numbers = machine_numbers(trace);
  Churn churn;
  while (most_at_once(trace, numbers, churn.every) > devices) ++churn.every;
  const double from_s = options.from_s < 0 ? trace.front().at_s : options.from_s;
  const double to_s = options.length_s > 0 ? from_s + options.length_s : trace.back().at_s;
  churn.length_s = (to_s - from_s) / options.scale;
  Members members(devices);
  bool has_begun = false;
  // Whoever goes behind the end may hear of it before.
  for (size_t i = 0; i < trace.size() && trace[i].at_s < to_s + options.notice_s; ++i) {
    const ChurnEvent& event = trace[i];
    if (numbers[i] % churn.every != 0) continue;
    if (event.at_s > from_s && !std::exchange(has_begun, true)) churn.begin = members.begin_run();
    const double at_s = (event.at_s - from_s) / options.scale;
    if (event.comes) {
      const MemberChange change = members.come(event.machine, at_s);
      if (has_begun) churn.changes.push_back(change);
    } else {
      const MemberChange came = members.go(event.machine);
      if (has_begun) add_end(came, at_s, options.notice_s / options.scale, churn);
    }
  }
  if (!has_begun) churn.begin = members.begin_run();
  std::erase_if(churn.changes,
                [&](const MemberChange& change) { return change.at_s >= churn.length_s; });
  if (churn.length_s <= 0 || (churn.begin.empty() && churn.changes.empty())) {
    return wrong(absl::StrCat("nobody is there from ", from_s, " s to ", to_s,
                              " s of the recording, which goes from ", trace.front().at_s, " s to ",
                              trace.back().at_s, " s"));
  }
  std::stable_sort(churn.changes.begin(), churn.changes.end(),
                   [](const MemberChange& a, const MemberChange& b) { return a.at_s < b.at_s; });
  return churn;
}

ChaosScript chaos_of(const Churn& churn) {
  ChaosScript script;
  for (const MemberChange& change : churn.changes) {
    ChaosAction action;
    action.when.at_s = change.at_s;
    action.kind = ChaosAction::Kind::kJoin;
    if (change.kind != MemberChange::Kind::kJoins) {
      const bool is_told = change.kind == MemberChange::Kind::kNotice;
      action.kind = is_told ? ChaosAction::Kind::kTerm : ChaosAction::Kind::kKill;
      action.worker = change.worker;
    }
    script.push_back(action);
  }
  return script;
}

}  // namespace skein::plans
