#include "plans/schedule/action.hpp"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"

namespace skein::plans {
namespace {

constexpr char kLetters[] = {'F', 'B', 'I', 'W'};

absl::Status bad_action(std::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", std::string(text), "\" is no action; expected for example 0F3 or 1B0"));
}

/// Reads a non-negative number from the front of `text` and removes it.
bool take_number(std::string_view& text, int32_t& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || value < 0 || stop == text.data()) return false;
  text.remove_prefix(static_cast<size_t>(stop - text.data()));
  return true;
}

}  // namespace

std::string to_text(const Action& action) {
  return absl::StrCat(action.stage, std::string(1, kLetters[static_cast<int>(action.type)]),
                      action.microbatch);
}

absl::StatusOr<Action> parse_action(std::string_view text) {
  std::string_view rest = text;
  Action action;
  if (!take_number(rest, action.stage) || rest.empty()) return bad_action(text);
  const char* letter = std::find(std::begin(kLetters), std::end(kLetters), rest.front());
  if (letter == std::end(kLetters)) return bad_action(text);
  action.type = static_cast<ActionType>(letter - std::begin(kLetters));
  rest.remove_prefix(1);
  if (!take_number(rest, action.microbatch) || !rest.empty()) return bad_action(text);
  return action;
}

int32_t stash_peak(const ActionList& actions, int32_t stage) {
  int32_t held = 0;
  int32_t peak = 0;
  for (const Action& action : actions) {
    if (action.stage != stage) continue;
    if (action.type == ActionType::kForward) peak = std::max(peak, ++held);
    if (action.type == ActionType::kBackward || action.type == ActionType::kBackwardWeight) --held;
  }
  return peak;
}

int64_t stash_peak_bytes(const ActionList& actions, const std::vector<int64_t>& stash_bytes) {
  int64_t held = 0;
  int64_t peak = 0;
  for (const Action& action : actions) {
    const int64_t bytes = stash_bytes[static_cast<size_t>(action.stage)];
    if (action.type == ActionType::kForward) peak = std::max(peak, held += bytes);
    if (action.type == ActionType::kBackward || action.type == ActionType::kBackwardWeight) {
      held -= bytes;
    }
  }
  return peak;
}

}  // namespace skein::plans
