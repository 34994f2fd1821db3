#include "cli/pictures/terminal_grid.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace skein::cli {
namespace {

constexpr int kColumnsMin = 40;
constexpr int kBubbleColumns = 8;  // "  12.5%"
/// A unit of time gets no more columns than three digits and a gap need.
constexpr int kUnitColumnsMax = 4;
/// A slot is a whole number of units if it is off by less.
constexpr double kUnitTolerance = 1e-3;

/// Without colours the kinds are told apart by these.
const char* shade_of(SlotKind kind) {
  switch (kind) {
    case SlotKind::kForward:
      return "░";
    case SlotKind::kBackward:
      return "▓";
    case SlotKind::kBackwardInput:
      return "▒";
    case SlotKind::kBackwardWeight:
      return "█";
    case SlotKind::kUpdate:
      return "■";
    case SlotKind::kReduction:
      return "─";
  }
  return "?";
}

struct Colour {
  int red = 0;
  int green = 0;
  int blue = 0;
};

/// Neighbours of one kind are told apart by every other one being darker.
Colour colour_for(SlotKind kind, bool darker) {
  const auto value = static_cast<int>(std::strtol(colour_of(kind) + 1, nullptr, 16));
  const double factor = darker ? 0.8 : 1.0;
  return {static_cast<int>(factor * (value >> 16)), static_cast<int>(factor * (value >> 8 & 255)),
          static_cast<int>(factor * (value & 255))};
}

/// Black on the slot's colour.
std::string escape(SlotKind kind, bool darker, GridColours colours) {
  const Colour colour = colour_for(kind, darker);
  if (colours == GridColours::kTrue) {
    return absl::StrFormat("\033[38;2;0;0;0;48;2;%d;%d;%dm", colour.red, colour.green, colour.blue);
  }
  const auto level = [](int value) { return (value * 5 + 127) / 255; };
  return absl::StrFormat("\033[38;5;16;48;5;%dm", 16 + 36 * level(colour.red) +
                                                      6 * level(colour.green) + level(colour.blue));
}

/// Columns per microsecond: whole columns per unit where every slot lasts whole units.
double scale_for(const Picture& picture, int columns) {
  if (!(picture.end_us > 0)) return 1;
  double unit = picture.end_us;
  for (const PictureRow& row : picture.rows) {
    for (const PictureSlot& slot : row.slots) {
      const double length = slot.end_us - slot.start_us;
      if (length > 0 && slot.kind != SlotKind::kReduction) unit = std::min(unit, length);
    }
  }
  const auto is_whole = [unit](double time) {
    return std::abs(time / unit - std::round(time / unit)) < kUnitTolerance;
  };
  bool whole = true;
  for (const PictureRow& row : picture.rows) {
    for (const PictureSlot& slot : row.slots) {
      whole = whole && is_whole(slot.start_us) && is_whole(slot.end_us);
    }
  }
  const double per_unit = columns * unit / picture.end_us;
  if (whole && per_unit >= 1) return std::min<double>(kUnitColumnsMax, std::floor(per_unit)) / unit;
  return columns / picture.end_us;
}

/// The slot that holds most of each column, or -1 where most of the column is idle.
std::vector<int> slots_of_columns(const PictureRow& row, double scale, int columns) {
  std::vector<int> best(static_cast<size_t>(columns), -1);
  std::vector<double> share(static_cast<size_t>(columns), 0);
  std::vector<double> covered(static_cast<size_t>(columns), 0);
  for (size_t i = 0; i < row.slots.size(); ++i) {
    const PictureSlot& slot = row.slots[i];
    if (slot.kind == SlotKind::kReduction) continue;
    const double begin = slot.start_us * scale;
    const double end = slot.end_us * scale;
    for (auto c = static_cast<int>(begin); c < std::min<double>(columns, std::ceil(end)); ++c) {
      const double part = std::min(end, c + 1.0) - std::max<double>(begin, c);
      const auto column = static_cast<size_t>(c);
      covered[column] += part;
      if (part > share[column] + 1e-9) {
        share[column] = part;
        best[column] = static_cast<int>(i);
      }
    }
  }
  for (size_t c = 0; c < best.size(); ++c) {
    if (covered[c] < 0.5 - 1e-9) best[c] = -1;
  }
  return best;
}

/// Without colours a label needs some of its shade beside it, or it would run into the next one.
std::string label_of(const Picture& picture, const PictureSlot& slot, int columns,
                     GridColours colours) {
  const std::string full = picture.many_stages && slot.microbatch >= 0
                               ? absl::StrCat(slot.stage, name_of(slot.kind), slot.microbatch)
                               : slot.label;
  if (static_cast<int>(full.size()) < columns || (columns == 1 && full.size() == 1)) return full;
  const int gap = colours == GridColours::kNone && slot.label.size() > 1 ? 1 : 0;
  return static_cast<int>(slot.label.size()) + gap <= columns ? slot.label : "";
}

/// `columns` columns of one slot: its label, and its shade around it.
std::string cell(const Picture& picture, const PictureSlot& slot, int columns,
                 GridColours colours) {
  const std::string label = label_of(picture, slot, columns, colours);
  const int room = columns - static_cast<int>(label.size());
  const int left = label.empty() ? 0 : std::min(room, 1) * (room > 1 || columns > 2 ? 1 : 0);
  const std::string fill = colours == GridColours::kNone ? shade_of(slot.kind) : " ";
  std::string text;
  for (int i = 0; i < left; ++i) text += fill;
  text += label;
  for (int i = left; i < room; ++i) text += fill;
  if (colours == GridColours::kNone) return text;
  return absl::StrCat(escape(slot.kind, slot.microbatch % 2 == 1, colours), text, "\033[0m");
}

std::string row_text(const Picture& picture, const PictureRow& row, double scale, int columns,
                     GridColours colours) {
  const std::vector<int> slots = slots_of_columns(row, scale, columns);
  std::string text;
  for (size_t c = 0; c < slots.size();) {
    size_t end = c;
    while (end < slots.size() && slots[end] == slots[c]) ++end;
    const auto width = static_cast<int>(end - c);
    if (slots[c] < 0) {
      text += std::string(end - c, ' ');
    } else {
      text += cell(picture, row.slots[static_cast<size_t>(slots[c])], width, colours);
    }
    c = end;
  }
  return text;
}

/// Labels at their columns, each behind the one before it.
std::string axis_text(const Picture& picture, double scale, int columns) {
  const std::vector<double> ticks = axis_ticks(picture.end_us, std::max(2, columns / 10));
  const std::vector<std::string> labels = axis_labels(ticks, picture.has_units);
  std::string text;
  for (size_t i = 0; i < ticks.size(); ++i) {
    const auto column = static_cast<size_t>(std::lround(ticks[i] * scale));
    if (column < text.size() + (text.empty() ? 0 : 1)) continue;
    text.resize(column, ' ');
    absl::StrAppend(&text, "|", labels[i]);
  }
  return text;
}

std::string legend_text(const Picture& picture, GridColours colours) {
  std::string text;
  for (const SlotKind kind : kinds_of(picture)) {
    if (kind == SlotKind::kReduction) continue;
    const std::string sample = colours == GridColours::kNone
                                   ? absl::StrCat(shade_of(kind), shade_of(kind))
                                   : absl::StrCat(escape(kind, false, colours), "  \033[0m");
    absl::StrAppend(&text, text.empty() ? "" : "   ", sample, " ", name_of(kind));
  }
  return text;
}

}  // namespace

std::string terminal_grid(const Picture& picture, const GridOptions& options) {
  size_t name_columns = 0;
  for (const PictureRow& row : picture.rows) {
    name_columns = std::max(name_columns, row.name.size());
  }
  const int width = std::max(kColumnsMin, options.columns);
  name_columns = std::min(name_columns, static_cast<size_t>(width) / 3);
  const int columns = std::max(10, width - static_cast<int>(name_columns) - 1 - kBubbleColumns);
  const double scale = scale_for(picture, columns);
  const int used =
      std::clamp(static_cast<int>(std::ceil(picture.end_us * scale - 1e-6)), 1, columns);
  std::string text;
  if (!picture.title.empty()) absl::StrAppend(&text, picture.title, "\n");
  const std::string indent(name_columns + 1, ' ');
  absl::StrAppend(&text, indent, std::string(static_cast<size_t>(used), ' '), "  bubble\n");
  for (const PictureRow& row : picture.rows) {
    std::string name = row.name.substr(0, name_columns);
    name.resize(name_columns, ' ');
    absl::StrAppend(&text, name, " ", row_text(picture, row, scale, used, options.colours),
                    absl::StrFormat(" %6.1f%%\n", bubble_of(picture, row) * 100));
  }
  absl::StrAppend(&text, indent, axis_text(picture, scale, used), "\n");
  absl::StrAppend(&text, indent, legend_text(picture, options.colours),
                  absl::StrFormat("   bubble %.1f%%\n", bubble_of(picture) * 100));
  return text;
}

GridOptions grid_options_of(int fd) {
  GridOptions options;
  int columns = 0;
  winsize size{};
  const char* given = std::getenv("COLUMNS");
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    options.columns = size.ws_col;
  } else if (given != nullptr && absl::SimpleAtoi(given, &columns) && columns > 0) {
    options.columns = columns;
  }
  const char* no_colour = std::getenv("NO_COLOR");
  const bool refuses = no_colour != nullptr && no_colour[0] != '\0';
  if (isatty(fd) != 1 || refuses) return options;
  const char* depth = std::getenv("COLORTERM");
  const std::string text = depth == nullptr ? "" : depth;
  options.colours = text == "truecolor" || text == "24bit" ? GridColours::kTrue : GridColours::k256;
  return options;
}

}  // namespace skein::cli
