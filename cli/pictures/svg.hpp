#pragma once

#include <string>

#include "cli/pictures/timeline_rows.hpp"

namespace skein::cli {

struct SvgOptions {
  /// The axis is at least so long, so that two pictures can be compared; 0: as long as the picture.
  double axis_end_us = 0;
  /// Names take at least so many characters' room, for the same reason.
  size_t name_chars = 0;
  /// Pixels of the axis; 0: wide enough for the labels of most slots, from 720 to 2800.
  double axis_pixels = 0;
};

/// The picture as one standalone SVG document: a row per worker with its bubble, colours as in the
/// legend, numbers of micro-batches where they fit, transfers as thin lines unless they would cover
/// everything, and a time axis.
std::string svg(const Picture& picture, const SvgOptions& options);

/// The pixels that `svg` gives the axis of a picture that is `axis_end_us` long.
double axis_pixels_for(const Picture& picture, double axis_end_us);

/// Memory over time of every row that has some, a small step line each, as a standalone SVG; empty
/// if no row has any.
std::string memory_svg(const Picture& picture, const SvgOptions& options);

}  // namespace skein::cli
