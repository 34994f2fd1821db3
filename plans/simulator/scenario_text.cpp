#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "plans/base/status_macros.hpp"
#include "plans/simulator/slowdown.hpp"

namespace skein::plans {
namespace {

using Kind = Scenario::Kind;

/// Which keys a kind has, and of those which it cannot do without.
struct KindKeys {
  const char* name;
  std::vector<std::string> needed;
  std::vector<std::string> optional;
};

const std::array<KindKeys, 7>& kind_keys() {
  static const std::array<KindKeys, 7> keys = {{
      {"H0", {}, {}},
      {"H1", {"sleep"}, {"probability", "seed"}},
      {"H2", {"factor", "devices"}, {}},
      {"H3", {"sleep"}, {}},
      {"H4", {"sleep"}, {"probability", "seed"}},
      {"H5", {"factor", "devices"}, {}},
      {"H6", {"trace"}, {}},
  }};
  return keys;
}

absl::Status not_understood(const std::string& what, const std::string& advice) {
  return absl::InvalidArgumentError(absl::StrCat("scenario: \"", what, "\": ", advice));
}

template <class Number>
bool parse_number(const std::string& text, Number& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

/// The shortest text that reads back as the same number.
std::string number_text(double value) {
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), end};
}

bool parse_devices(const std::string& text, std::vector<int32_t>& devices) {
  for (const std::string& item : std::vector<std::string>(absl::StrSplit(text, ','))) {
    if (!parse_number(item, devices.emplace_back())) return false;
  }
  return true;
}

bool parse_trace(const std::string& text, std::vector<Scenario::TracePoint>& trace) {
  for (const std::string& item : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const std::vector<std::string> parts = absl::StrSplit(item, ':');
    Scenario::TracePoint& point = trace.emplace_back();
    if (parts.size() != 3 || !parse_number(parts[0], point.from_us) ||
        !parse_number(parts[1], point.device) || !parse_number(parts[2], point.speed)) {
      return false;
    }
  }
  return true;
}

bool set_key(const std::string& key, const std::string& value, Scenario& scenario) {
  if (key == "sleep") return parse_number(value, scenario.sleep_us);
  if (key == "probability") return parse_number(value, scenario.probability);
  if (key == "factor") return parse_number(value, scenario.factor);
  if (key == "seed") return parse_number(value, scenario.seed);
  if (key == "devices") return parse_devices(value, scenario.devices);
  return parse_trace(value, scenario.trace);
}

bool has(const std::vector<std::string>& keys, const std::string& key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

absl::Status parse_word(const KindKeys& keys, const std::string& word,
                        std::vector<std::string>& seen, Scenario& scenario) {
  const std::vector<std::string> parts = absl::StrSplit(word, absl::MaxSplits('=', 1));
  if (!has(keys.needed, parts[0]) && !has(keys.optional, parts[0])) {
    std::vector<std::string> known = keys.needed;
    known.insert(known.end(), keys.optional.begin(), keys.optional.end());
    return not_understood(
        word, known.empty() ? absl::StrCat(keys.name, " takes nothing")
                            : absl::StrCat(keys.name, " takes ", absl::StrJoin(known, "=, "), "="));
  }
  if (has(seen, parts[0])) return not_understood(word, "this key appears twice");
  seen.push_back(parts[0]);
  if (parts.size() == 2 && set_key(parts[0], parts[1], scenario)) return absl::OkStatus();
  return not_understood(word,
                        "expected for example sleep=5000, probability=0.1, seed=3, "
                        "factor=4, devices=0,2 or trace=0:1:0.5,1000000:1:1 "
                        "(from_us:device:speed)");
}

}  // namespace

absl::StatusOr<Scenario> parse_scenario(std::string_view text) {
  const std::string whole(text);
  const std::vector<std::string> words = absl::StrSplit(whole, ' ', absl::SkipEmpty());
  Scenario scenario;
  const KindKeys* keys = nullptr;
  for (size_t kind = 0; kind < kind_keys().size() && !words.empty(); ++kind) {
    if (words.front() != kind_keys()[kind].name) continue;
    keys = &kind_keys()[kind];
    scenario.kind = static_cast<Kind>(kind);
  }
  if (keys == nullptr) {
    return not_understood(whole, "expected H0, H1, H2, H3, H4, H5 or H6, then key=value");
  }
  std::vector<std::string> seen;
  for (size_t i = 1; i < words.size(); ++i) {
    SKEIN_RETURN_IF_ERROR(parse_word(*keys, words[i], seen, scenario));
  }
  for (const std::string& key : keys->needed) {
    if (!has(seen, key)) return not_understood(whole, absl::StrCat("lacks ", key, "="));
  }
  SKEIN_RETURN_IF_ERROR(validate(scenario, std::numeric_limits<int32_t>::max()));
  return scenario;
}

std::string to_text(const Scenario& scenario) {
  switch (scenario.kind) {
    case Kind::kH0:
      return "H0";
    case Kind::kH1:
    case Kind::kH4:
      return absl::StrCat(
          scenario.kind == Kind::kH1 ? "H1" : "H4", " sleep=", number_text(scenario.sleep_us),
          " probability=", number_text(scenario.probability), " seed=", scenario.seed);
    case Kind::kH3:
      return absl::StrCat("H3 sleep=", number_text(scenario.sleep_us));
    case Kind::kH2:
    case Kind::kH5:
      return absl::StrCat(scenario.kind == Kind::kH2 ? "H2" : "H5",
                          " factor=", number_text(scenario.factor),
                          " devices=", absl::StrJoin(scenario.devices, ","));
    case Kind::kH6:
      break;
  }
  auto append = [](std::string* out, const Scenario::TracePoint& point) {
    absl::StrAppend(out, number_text(point.from_us), ":", point.device, ":",
                    number_text(point.speed));
  };
  return absl::StrCat("H6 trace=", absl::StrJoin(scenario.trace, ",", append));
}

}  // namespace skein::plans
