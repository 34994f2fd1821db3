#pragma once

#include <string>

#include "cli/compare/results.hpp"

namespace skein::cli {

/// A page that shows which variant won where before any number is read: one sentence, a table of
/// colours, and for each scenario bars of the time to the target with their intervals, curves, and
/// the numbers. It refers to nothing outside and can be read in light and in dark.
std::string compare_html(const Results& results);

}  // namespace skein::cli
