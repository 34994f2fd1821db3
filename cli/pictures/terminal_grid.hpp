#pragma once

#include <string>

#include "cli/pictures/timeline_rows.hpp"

namespace skein::cli {

enum class GridColours { kNone, k256, kTrue };

struct GridOptions {
  int columns = 100;  // Width of the terminal, >= 40; less is treated as 40.
  GridColours colours = GridColours::kNone;
};

/// The picture for a terminal: a line per row with its bubble, a time axis and a legend. Where all
/// slots last multiples of the shortest one, a unit of time takes whole columns. Without colours
/// each kind has its own shade.
std::string terminal_grid(const Picture& picture, const GridOptions& options);

/// What the stream of `fd` can show: no colours unless it is a terminal and NO_COLOR is not set;
/// 24 bits where COLORTERM says so. Its width, or COLUMNS, or 100.
GridOptions grid_options_of(int fd);

}  // namespace skein::cli
