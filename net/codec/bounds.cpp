#include "net/codec/bounds.hpp"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace skein::net {
namespace {

/// Bytes of the character that `text` begins with; 0 if it is not UTF-8. Overlong forms, halves of
/// surrogate pairs and what is beyond Unicode are none.
size_t character_bytes(std::string_view text) {
  const auto at = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = at(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned second = at(1);
  const bool is_wrong = (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
                        (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f);
  return is_wrong ? 0 : length;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

/// A character of several bytes by which a terminal or a reader may take a line for another one:
/// the upper control characters, breaks of lines, and what turns the direction of text.
bool is_deceptive(std::string_view character) {
  const auto at = [character](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 2) return at(0) == 0xc2 && at(1) < 0xa0;  // U+0080..9F
  if (character.size() != 3 || at(0) != 0xe2) return false;
  if (at(1) == 0x80) return at(2) >= 0xa8 && at(2) <= 0xae;  // U+2028..2E
  return at(1) == 0x81 && at(2) >= 0xa6 && at(2) <= 0xa9;    // U+2066..69
}
bool is_of_lines(char c) { return c == '\n' || c == '\t' || c == '\r'; }

}  // namespace

uint64_t Bounds::count(const char* field, uint64_t value, uint64_t max) {
  if (value <= max) return value;
  refuse(field, absl::StrCat("is ", value, ", at most ", max));
  return 0;
}

int64_t Bounds::signed_count(const char* field, uint64_t value, uint64_t max) {
  return static_cast<int64_t>(count(field, value, max));
}

uint64_t Bounds::index(const char* field, uint64_t value, uint64_t max) {
  if (value < max) return value;
  refuse(field, absl::StrCat("is ", value, ", less than ", max));
  return 0;
}

int32_t Bounds::stage(const char* field, uint32_t value) {
  return static_cast<int32_t>(index(field, value, kStagesMax));
}

plans::ReplicaId Bounds::replica(const char* field, uint32_t value) {
  return {static_cast<uint32_t>(index(field, value, kReplicasMax))};
}

plans::WorkerId Bounds::worker(const char* field, uint32_t value) {
  if (value == 0) refuse(field, "is 0, which is no worker");
  return worker_or_none(field, value);
}

plans::WorkerId Bounds::worker_or_none(const char* field, uint32_t value) {
  return {static_cast<uint32_t>(count(field, value, plans::kWorkerIdMax))};
}

plans::LayerRange Bounds::layers(const char* field, uint32_t begin, uint32_t end) {
  if (begin < end && end <= kLayersMax) return {begin, end};
  refuse(field, absl::StrCat("is ", begin, "..", end, ", which is no range of at most ", kLayersMax,
                             " layers"));
  return {};
}

double Bounds::finite(const char* field, double value, double min, double max) {
  if (value >= min && value <= max) return value;  // What is not a number is in no range.
  refuse(field, absl::StrCat("is ", value, ", between ", min, " and ", max));
  return 0;
}

double Bounds::norm(const char* field, double value) {
  if (std::isfinite(value) && value >= 0) return value;
  refuse(field, absl::StrCat("is ", value, ", a finite number of at least 0"));
  return 0;
}

double Bounds::norm_or_diverged(const char* field, double value) {
  return std::isfinite(value) ? norm(field, value) : value;
}

bool Bounds::fits_text(const char* field, std::string_view value, size_t max, bool may_have_lines) {
  if (value.size() > max) {
    refuse(field, absl::StrCat("has ", value.size(), " bytes, at most ", max));
    return false;
  }
  for (size_t i = 0; i < value.size();) {
    const size_t length = character_bytes(value.substr(i));
    const bool is_wrong = is_control(value[i]) && !(may_have_lines && is_of_lines(value[i]));
    if (length == 0 || is_wrong || is_deceptive(value.substr(i, length))) {
      refuse(field, absl::StrCat("is not printable at byte ", i));
      return false;
    }
    i += length;
  }
  return true;
}

std::string Bounds::text(const char* field, capnp::Text::Reader value, size_t max) {
  const std::string_view view(value.begin(), value.size());
  return fits_text(field, view, max, false) ? std::string(view) : std::string();
}

std::string Bounds::lines(const char* field, capnp::Text::Reader value, size_t max) {
  const std::string_view view(value.begin(), value.size());
  return fits_text(field, view, max, true) ? std::string(view) : std::string();
}

std::string Bounds::file_name(const char* field, capnp::Text::Reader value) {
  std::string path = name(field, value);
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(path, '/'))) {
    if (!part.empty() && part != "." && part != "..") continue;
    refuse(field, absl::StrCat("is \"", path, "\", which is no name of a file inside a folder"));
    return "";
  }
  return path;
}

std::vector<char> Bounds::bytes(const char* field, capnp::Data::Reader value, size_t max) {
  if (value.size() > max) {
    refuse(field, absl::StrCat("has ", value.size(), " bytes, at most ", max));
    return {};
  }
  const auto* begin = reinterpret_cast<const char*>(value.begin());
  return {begin, begin + value.size()};
}

unsigned Bounds::size(const char* field, size_t elements, size_t max) {
  if (elements <= max) return static_cast<unsigned>(elements);
  refuse(field, absl::StrCat("has ", elements, " elements, at most ", max));
  return 0;
}

void Bounds::refuse(const char* field, const std::string& what) {
  if (!status_.ok()) return;
  std::string where = message_;
  for (const auto& [name, index] : path_) {
    absl::StrAppend(&where, ".", name);
    if (index != kNoIndex) absl::StrAppend(&where, "[", index, "]");
  }
  if (*field != '\0') absl::StrAppend(&where, ".", field);
  status_ = absl::InvalidArgumentError(absl::StrCat(where, " ", what));
}

std::string fit_text(std::string_view text, size_t max) {
  std::string fitted;
  for (size_t i = 0; i < text.size();) {
    const size_t length = character_bytes(text.substr(i));
    const bool is_wrong =
        length == 0 || is_control(text[i]) || is_deceptive(text.substr(i, length));
    const size_t taken = length == 0 ? 1 : length;
    if (fitted.size() + (is_wrong ? 1 : taken) > max) break;
    if (is_wrong) {
      fitted += length == 0 ? '?' : ' ';
    } else {
      fitted += text.substr(i, taken);
    }
    i += taken;
  }
  return fitted;
}

}  // namespace skein::net
