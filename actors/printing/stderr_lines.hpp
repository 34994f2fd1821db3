#pragma once

#include <string>

#include "actors/printing/line_printer.hpp"

namespace skein::actors {

/// Prints a line on standard error, by the process's one `LinePrinter` for it: nobody waits for its
/// reader. Any thread.
void print_error_line(const std::string& line);
/// Until all is printed, or nothing was taken for so long. Others may print meanwhile. Any thread.
void finish_error_lines(double patience_seconds);

}  // namespace skein::actors
