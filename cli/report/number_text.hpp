#pragma once

#include <cstdint>
#include <string>

namespace skein::cli {

/// "12,345"
std::string with_commas(uint64_t value);
/// "9.5s", "42s", "6m02s", "1h05m"
std::string duration_text(double seconds);
/// The unit in which a time of this order is written, "us", "ms" or "s", and what a microsecond is
/// in it.
double time_unit(double us, std::string& unit);
/// "1.25 ms"; without units "1.25".
std::string time_text(double us, bool has_units);
/// "3.2 GB", a GB being 10^9 bytes.
std::string bytes_text(int64_t bytes);

/// A rate per second: "7,166", "28.4"; a dash for one that is not known, which is 0.
std::string rate_text(double per_second);

/// "0-3" of 0 to 4, "3" of 3 to 4: the first and the last, where `end` is behind the last.
std::string range_text(int64_t begin, int64_t end);
/// The words of `text`, with each half-open "0..4" as `range_text` says it.
std::string with_ranges(const std::string& text);

}  // namespace skein::cli
