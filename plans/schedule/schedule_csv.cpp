#include "plans/schedule/schedule_csv.hpp"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"

namespace skein::plans {
namespace {

constexpr std::string_view kMovesMicrobatch[] = {"SEND_F", "RECV_F", "SEND_B", "RECV_B"};
constexpr std::string_view kMovesWeights[] = {"UNSHARD", "RESHARD", "REDUCE_GRAD"};
constexpr std::string_view kOverlap = "OVERLAP_F_B";

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

/// Cuts the text in front of the first `mark` (or all of it) off `rest`.
std::string_view cut(std::string_view& rest, char mark) {
  const std::string_view piece = rest.substr(0, rest.find(mark));
  rest.remove_prefix(std::min(rest.size(), piece.size() + 1));
  return piece;
}

bool is_one_of(std::string_view text, const auto& list) {
  return std::find(std::begin(list), std::end(list), text) != std::end(list);
}

/// "0SEND_F3" or "2UNSHARD".
bool is_communication(std::string_view cell) {
  constexpr std::string_view kDigits = "0123456789";
  const size_t begin = cell.find_first_not_of(kDigits);
  if (begin == 0 || begin == std::string_view::npos) return false;
  const size_t end = cell.find_last_not_of(kDigits) + 1;
  const std::string_view name = cell.substr(begin, end - begin);
  return end == cell.size() ? is_one_of(name, kMovesWeights) : is_one_of(name, kMovesMicrobatch);
}

absl::Status add_cell(std::string_view cell, ActionList& actions) {
  if (cell.empty() || is_communication(cell)) return absl::OkStatus();
  SKEIN_ASSIGN_OR_RETURN(const Action action, parse_action(cell));
  actions.push_back(action);
  return absl::OkStatus();
}

/// "(0F3;1B0)OVERLAP_F_B".
absl::Status add_group(std::string_view cell, ActionList& actions) {
  const size_t end = cell.find(')');
  if (end == std::string_view::npos || cell.substr(end + 1) != kOverlap) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", std::string(cell), "\" is no group; expected for example (0F3;1B0)OVERLAP_F_B"));
  }
  std::string_view rest = cell.substr(1, end - 1);
  while (!rest.empty()) SKEIN_RETURN_IF_ERROR(add_cell(trim(cut(rest, ';')), actions));
  return absl::OkStatus();
}

absl::Status add_line(std::string_view line, ActionList& actions, size_t line_number) {
  for (size_t cell_number = 1; !line.empty(); ++cell_number) {
    const std::string_view cell = trim(cut(line, ','));
    const bool is_group = !cell.empty() && cell.front() == '(';
    const absl::Status added = is_group ? add_group(cell, actions) : add_cell(cell, actions);
    if (!added.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", line_number, ", cell ", cell_number,
                                                     ": ", std::string(added.message())));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string to_csv(const Schedule& ranks) {
  std::string csv;
  for (const ActionList& actions : ranks) {
    for (size_t i = 0; i < actions.size(); ++i) {
      absl::StrAppend(&csv, i == 0 ? "" : ",", to_text(actions[i]));
    }
    csv += "\n";
  }
  return csv;
}

absl::StatusOr<Schedule> parse_csv(std::string_view text) {
  Schedule ranks;
  while (!text.empty()) {
    const std::string_view line = cut(text, '\n');
    ActionList& actions = ranks.emplace_back();
    SKEIN_RETURN_IF_ERROR(add_line(line, actions, ranks.size()));
  }
  return ranks;
}

}  // namespace skein::plans
