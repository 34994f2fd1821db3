#include "net/codec/bounds.hpp"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "plans/base/readable_text.hpp"

namespace skein::net {

using plans::character_bytes;
using plans::is_readable;

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
    if (!is_readable(value.substr(i, length), may_have_lines)) {
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
    const bool is_wrong = !is_readable(text.substr(i, length), false);
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
