#include "gpu/text/pre_tokenizer.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/files/json_file.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

using Json = nlohmann::json;

/// GPT-2's, which "ByteLevel" stands for unless it says otherwise.
constexpr const char* kWords =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kDigit = R"(\p{N})";
constexpr size_t kStepsMax = 16;

absl::Status unsupported(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": pre_tokenizer ", what,
                   " is not supported; these are ByteLevel, Split (isolated) and Digits (each)"));
}

/// Text that stands for itself in a regular expression.
std::string literally(const std::string& text) {
  std::string expression;
  for (const char each : text) {
    const auto byte = static_cast<unsigned char>(each);
    const bool is_plain = byte >= 0x80 || (byte >= '0' && byte <= '9') ||
                          (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z');
    absl::StrAppend(&expression, is_plain ? "" : "\\", std::string(1, each));
  }
  return expression;
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::read(const Json& json, const std::string& path) {
  PreTokenizer made;
  if (!json.is_object()) return unsupported(path, "that is missing");
  SKEIN_RETURN_IF_ERROR(made.add(json, path));
  if (!made.is_byte_level_) return unsupported(path, "without ByteLevel");
  return made;
}

absl::Status PreTokenizer::add(const Json& json, const std::string& path) {
  std::string type;
  SKEIN_RETURN_IF_ERROR(take_field(json, path, "type", type));
  if (is_byte_level_ || steps_.size() >= kStepsMax) {
    return unsupported(path, absl::StrCat(type, " behind ByteLevel, or one of many,"));
  }
  if (type == "ByteLevel") return add_byte_level(json, path);
  if (type == "Digits") {
    bool is_individual = false;
    SKEIN_RETURN_IF_ERROR(take_field(json, path, "individual_digits", is_individual));
    if (!is_individual) return unsupported(path, "Digits in groups");
    return add_pattern(kDigit, path);
  }
  if (type == "Split") {
    std::string behavior, expression;
    bool is_inverted = false;
    SKEIN_RETURN_IF_ERROR(take_field(json, path, "behavior", behavior));
    SKEIN_RETURN_IF_ERROR(take_optional(json, path, "invert", is_inverted));
    const auto pattern = json.find("pattern");
    if (behavior != "Isolated" || is_inverted) {
      return unsupported(path, absl::StrCat("Split that is ", is_inverted ? "inverted" : behavior));
    }
    if (pattern == json.end() || !pattern->is_object())
      return unsupported(path, "Split by nothing");
    if (pattern->contains("Regex")) {
      SKEIN_RETURN_IF_ERROR(take_field(*pattern, path, "Regex", expression));
      return add_pattern(expression, path);
    }
    SKEIN_RETURN_IF_ERROR(take_field(*pattern, path, "String", expression));
    return add_pattern(literally(expression), path);
  }
  const auto all = json.find("pretokenizers");
  if (type != "Sequence" || all == json.end() || !all->is_array()) return unsupported(path, type);
  for (const Json& each : *all) {
    if (!each.is_object() || each.contains("pretokenizers")) {
      return unsupported(path, "in a sequence within another one");
    }
    SKEIN_RETURN_IF_ERROR(add(each, path));
  }
  return absl::OkStatus();
}

absl::Status PreTokenizer::add_byte_level(const Json& json, const std::string& path) {
  bool uses_words = true;
  SKEIN_RETURN_IF_ERROR(take_optional(json, path, "add_prefix_space", adds_space_));
  SKEIN_RETURN_IF_ERROR(take_optional(json, path, "use_regex", uses_words));
  if (adds_space_ && !steps_.empty()) return unsupported(path, "with spaces added to pieces");
  is_byte_level_ = true;
  return uses_words ? add_pattern(kWords, path) : absl::OkStatus();
}

absl::Status PreTokenizer::add_pattern(const std::string& expression, const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(std::shared_ptr<const Pattern> pattern,
                         Pattern::compile(expression, absl::StrCat(path, ": pre_tokenizer")));
  steps_.push_back(std::move(pattern));
  return absl::OkStatus();
}

absl::Status PreTokenizer::cut(std::string_view text,
                               const std::function<absl::Status(std::string_view)>& take) const {
  if (text.empty()) return absl::OkStatus();
  MatchBudget budget(text.size());
  if (adds_space_ && text.front() != ' ') return cut_from(0, " " + std::string(text), budget, take);
  return cut_from(0, text, budget, take);
}

absl::Status PreTokenizer::cut_from(
    size_t step, std::string_view text, MatchBudget& budget,
    const std::function<absl::Status(std::string_view)>& take) const {
  if (step == steps_.size()) return take(text);
  return steps_[step]->cut(text, budget, [&](std::string_view piece) {
    return cut_from(step + 1, piece, budget, take);
  });
}

}  // namespace skein::gpu
