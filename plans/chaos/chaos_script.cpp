#include "plans/chaos/chaos_script.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "plans/base/status_macros.hpp"

namespace skein::plans {
namespace {

using Kind = ChaosAction::Kind;

/// A script is written by hand, or by a generator of faults for a long run.
constexpr size_t kEntriesMax = 10'000;
/// A month: a longer time is a slip of the pen.
constexpr double kSecondsMax = 31 * 86'400.0;
/// A device that is slower than this does not end its piece of work within a run.
constexpr double kFactorMax = 1e6;
constexpr const char* kGrammar =
    "expected target:what@when, for example w2:kill@30s, w1:slow=4x@step=12, w3:pause=5s@500ms or "
    "link(w1,w2):drop=2s@50s";

absl::Status wrong(const std::string& what) { return absl::InvalidArgumentError(what); }

/// Splits "12.5ms" into 12.5 and "ms". False if there is no finite number >= 0.
bool split_number(const std::string& text, double& number, std::string& unit) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  unit.assign(stop, end);
  return error == std::errc() && std::isfinite(number) && number >= 0 && !std::signbit(number);
}

template <class Whole>
bool parse_whole(const std::string& text, Whole& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

absl::StatusOr<double> parse_seconds(const std::string& text) {
  double number = 0;
  std::string unit;
  const bool is_number = split_number(text, number, unit);
  double seconds = number;
  if (unit == "ms") seconds = number / 1000;
  if (unit == "m") seconds = number * 60;
  if (!is_number || (unit != "ms" && unit != "s" && unit != "m")) {
    return wrong(absl::StrCat("\"", text, "\" is not a time; write for example 5s, 500ms or 2m"));
  }
  if (seconds > kSecondsMax) {
    return wrong(absl::StrCat("\"", text, "\" is more than 31 days; write for example 5s"));
  }
  return seconds;
}

absl::StatusOr<double> parse_duration(const std::string& text) {
  SKEIN_ASSIGN_OR_RETURN(const double seconds, parse_seconds(text));
  if (seconds > 0) return seconds;
  return wrong(absl::StrCat("\"", text, "\" lasts no time; write for example 5s"));
}

absl::StatusOr<WorkerId> parse_worker(const std::string& text) {
  WorkerId worker;
  if (text.starts_with("w") && parse_whole(text.substr(1), worker.value) && worker.value > 0) {
    return worker;
  }
  return wrong(absl::StrCat("\"", text,
                            "\" is not a worker; they are w1, w2, ... in the order in which they "
                            "join"));
}

absl::Status parse_link(const std::string& text, ChaosAction& action) {
  const std::string inside = text.substr(5, text.size() - 6);  // What stands in "link(...)".
  const std::vector<std::string> ends = absl::StrSplit(inside, ',');
  if (ends.size() != 2) {
    return wrong(absl::StrCat("\"", text, "\" does not name two workers; write link(w1,w2)"));
  }
  SKEIN_ASSIGN_OR_RETURN(action.worker, parse_worker(ends[0]));
  SKEIN_ASSIGN_OR_RETURN(action.other, parse_worker(ends[1]));
  if (action.worker != action.other) return absl::OkStatus();
  return wrong(absl::StrCat("\"", text, "\" joins a worker to itself; write link(w1,w2)"));
}

absl::Status parse_trigger(const std::string& text, ChaosAction::Trigger& when) {
  if (!text.starts_with("step=")) {
    SKEIN_ASSIGN_OR_RETURN(when.at_s, parse_seconds(text));
    return absl::OkStatus();
  }
  uint64_t step = 0;
  if (!parse_whole(text.substr(5), step)) {
    return wrong(absl::StrCat("\"", text, "\" is not a step; write for example step=12"));
  }
  when.at_step = step;
  return absl::OkStatus();
}

/// "4x" or "4x,20s".
absl::Status parse_slow(const std::string& value, ChaosAction& action) {
  const std::vector<std::string> parts = absl::StrSplit(value, absl::MaxSplits(',', 1));
  std::string unit;
  if (!split_number(parts[0], action.factor, unit) || unit != "x" || action.factor < 1 ||
      action.factor > kFactorMax) {
    return wrong(absl::StrCat("\"", parts[0],
                              "\" is not how many times slower, 1x to 1e6x; write for example "
                              "slow=4x, or slow=4x,20s to recover after 20 s"));
  }
  if (parts.size() == 1) return absl::OkStatus();
  SKEIN_ASSIGN_OR_RETURN(action.duration_s, parse_duration(parts[1]));
  return absl::OkStatus();
}

absl::Status no_value(const std::string& name, const std::optional<std::string>& value) {
  if (!value) return absl::OkStatus();
  return wrong(absl::StrCat(name, " takes no value, and has \"", *value,
                            "\"; write for example w2:", name, "@30s"));
}

absl::Status parse_worker_fault(const std::string& name, const std::optional<std::string>& value,
                                ChaosAction& action) {
  if (name == "kill" || name == "term") {
    action.kind = name == "kill" ? Kind::kKill : Kind::kTerm;
    return no_value(name, value);
  }
  if (name == "slow") {
    action.kind = Kind::kSlow;
    return parse_slow(value.value_or(""), action);
  }
  if (name == "pause") {
    action.kind = Kind::kPause;
    SKEIN_ASSIGN_OR_RETURN(action.duration_s, parse_duration(value.value_or("")));
    return absl::OkStatus();
  }
  return wrong(absl::StrCat("\"", name,
                            "\" cannot be done to a worker; kill, term, pause=5s and slow=4x can"));
}

absl::Status parse_link_fault(const std::string& name, const std::optional<std::string>& value,
                              ChaosAction& action) {
  if (name != "drop") {
    return wrong(
        absl::StrCat("\"", name, "\" cannot be done to a link; drop can, or drop=2s for a while"));
  }
  action.kind = Kind::kDropLink;
  if (!value) return absl::OkStatus();
  SKEIN_ASSIGN_OR_RETURN(action.duration_s, parse_duration(*value));
  return absl::OkStatus();
}

absl::StatusOr<ChaosAction> parse_entry(const std::string& entry) {
  const size_t colon = entry.find(':');
  const size_t at = entry.find('@');
  if (colon == std::string::npos || at == std::string::npos || at < colon) return wrong(kGrammar);
  const std::string target = entry.substr(0, colon);
  const std::string what = entry.substr(colon + 1, at - colon - 1);
  const size_t equals = what.find('=');
  const std::string name = what.substr(0, equals);
  std::optional<std::string> value;
  if (equals != std::string::npos) value = what.substr(equals + 1);

  ChaosAction action;
  SKEIN_RETURN_IF_ERROR(parse_trigger(entry.substr(at + 1), action.when));
  if (target == "coordinator") {
    if (name != "kill") return wrong("a coordinator can only be killed: coordinator:kill@30s");
    SKEIN_RETURN_IF_ERROR(no_value(name, value));
  } else if (target == "another") {
    if (name != "join") return wrong("another worker can only join: another:join@30s");
    action.kind = Kind::kJoin;
    SKEIN_RETURN_IF_ERROR(no_value(name, value));
  } else if (target.starts_with("link(") && target.ends_with(")")) {
    SKEIN_RETURN_IF_ERROR(parse_link(target, action));
    SKEIN_RETURN_IF_ERROR(parse_link_fault(name, value, action));
  } else {
    SKEIN_ASSIGN_OR_RETURN(action.worker, parse_worker(target));
    SKEIN_RETURN_IF_ERROR(parse_worker_fault(name, value, action));
  }
  return action;
}

/// The shortest text that reads back as the same number.
std::string number_text(double value) {
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), end};
}

std::string what_text(const ChaosAction& action) {
  const std::string duration = absl::StrCat(number_text(action.duration_s), "s");
  const bool lasts = action.duration_s > 0;
  switch (action.kind) {
    case Kind::kSlow:
      return absl::StrCat("slow=", number_text(action.factor), "x", lasts ? "," : "",
                          lasts ? duration : "");
    case Kind::kJoin:
      return "join";
    case Kind::kKill:
      return "kill";
    case Kind::kTerm:
      return "term";
    case Kind::kPause:
      return absl::StrCat("pause=", duration);
    case Kind::kDropLink:
      break;
  }
  return lasts ? absl::StrCat("drop=", duration) : "drop";
}

std::string target_text(const ChaosAction& action) {
  if (action.kind == Kind::kJoin) return "another";
  if (action.worker.value == 0) return "coordinator";
  if (action.kind != Kind::kDropLink) return absl::StrCat("w", action.worker.value);
  return absl::StrCat("link(w", action.worker.value, ",w", action.other.value, ")");
}

bool comes_first(const ChaosAction& a, const ChaosAction& b) {
  const auto key = [](const ChaosAction::Trigger& when) {
    return std::tuple(when.at_step.has_value(), when.at_s, when.at_step.value_or(0));
  };
  return key(a.when) < key(b.when);
}

}  // namespace

absl::StatusOr<ChaosScript> parse_chaos(std::string_view text) {
  const std::string whole(text);
  ChaosScript script;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(whole, ';'))) {
    const std::string entry(absl::StripAsciiWhitespace(part));
    if (entry.empty()) continue;
    if (script.size() == kEntriesMax) {
      return wrong(absl::StrCat("chaos: more than ", kEntriesMax, " entries; write fewer"));
    }
    const auto action = parse_entry(entry);
    if (!action.ok()) {
      return wrong(absl::StrCat("chaos: entry ", script.size() + 1, ", \"", entry,
                                "\": ", std::string(action.status().message())));
    }
    script.push_back(*action);
  }
  if (script.empty()) return wrong(absl::StrCat("chaos: there is no entry; ", kGrammar));
  std::stable_sort(script.begin(), script.end(), comes_first);
  return script;
}

std::string to_text(const ChaosAction& action) {
  const std::string when = action.when.at_step ? absl::StrCat("step=", *action.when.at_step)
                                               : absl::StrCat(number_text(action.when.at_s), "s");
  return absl::StrCat(target_text(action), ":", what_text(action), "@", when);
}

std::string to_text(const ChaosScript& script) {
  return absl::StrJoin(script, ";", [](std::string* out, const ChaosAction& action) {
    absl::StrAppend(out, to_text(action));
  });
}

}  // namespace skein::plans
