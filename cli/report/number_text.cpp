#include "cli/report/number_text.hpp"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace skein::cli {
namespace {

/// Four digits, and never an exponent for what people see.
std::string short_text(double value) {
  return value >= 1000 ? absl::StrFormat("%.0f", value) : absl::StrFormat("%.4g", value);
}

}  // namespace

std::string with_commas(uint64_t value) {
  std::string digits = absl::StrCat(value);
  for (int64_t i = static_cast<int64_t>(digits.size()) - 3; i > 0; i -= 3) {
    digits.insert(static_cast<size_t>(i), ",");
  }
  return digits;
}

std::string rate_text(double per_second) {
  if (!(per_second > 0)) return "-";
  return per_second < 100 ? absl::StrFormat("%.3g", per_second)
                          : with_commas(static_cast<uint64_t>(per_second));
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  if (seconds < 10) return absl::StrFormat("%.1fs", seconds);
  if (whole < 60) return absl::StrFormat("%ds", whole);
  if (whole < 3600) return absl::StrFormat("%dm%02ds", whole / 60, whole % 60);
  return absl::StrFormat("%dh%02dm", whole / 3600, whole / 60 % 60);
}

double time_unit(double us, std::string& unit) {
  if (us >= 2e6) return unit = "s", 1e-6;
  if (us >= 2e3) return unit = "ms", 1e-3;
  return unit = "us", 1.0;
}

std::string time_text(double us, bool has_units) {
  if (!has_units) return short_text(us);
  std::string unit;
  const double factor = time_unit(us, unit);
  return absl::StrCat(short_text(us * factor), " ", unit);
}

std::string bytes_text(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value >= 1e9) return absl::StrCat(short_text(value * 1e-9), " GB");
  if (value >= 1e6) return absl::StrCat(short_text(value * 1e-6), " MB");
  if (value >= 1e3) return absl::StrCat(short_text(value * 1e-3), " kB");
  return absl::StrCat(bytes, " B");
}

std::string range_text(int64_t begin, int64_t end) {
  return end - begin == 1 ? absl::StrCat(begin) : absl::StrCat(begin, "-", end - 1);
}

std::string with_ranges(const std::string& text) {
  std::vector<std::string> words = absl::StrSplit(text, ' ');
  for (std::string& word : words) {
    const size_t dots = word.find("..");
    int64_t begin = 0;
    int64_t end = 0;
    if (dots != std::string::npos && absl::SimpleAtoi(word.substr(0, dots), &begin) &&
        absl::SimpleAtoi(word.substr(dots + 2), &end) && begin < end) {
      word = range_text(begin, end);
    }
  }
  return absl::StrJoin(words, " ");
}

}  // namespace skein::cli
