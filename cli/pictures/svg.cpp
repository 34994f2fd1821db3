#include "cli/pictures/svg.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/pictures/markup.hpp"
#include "cli/report/number_text.hpp"

namespace skein::cli {
namespace {

// Sizes in pixels.
constexpr double kAxisPixelsMin = 720;
constexpr double kAxisPixelsMax = 4200;
constexpr double kSlotPixels = 14;  // The width of a usual forward: room for two digits.
constexpr double kNameCharPixels = 6.6;
constexpr double kDigitPixels = 5.6;
constexpr double kBubblePixels = 58;
constexpr double kMargin = 10;
constexpr double kReductionHeight = 5;
constexpr double kTickPixels = 80;
/// Lines between two rows that are closer together than this would only make them grey.
constexpr double kArrowPixelsMin = 9;

/// Where things are on the page.
struct Page {
  double left = 0;
  double top = 0;
  double axis_pixels = 0;
  double axis_end_us = 0;
  double row_height = 0;  // The height of a slot.
  double row_pitch = 0;
  bool has_reductions = false;
  bool has_arrows = false;

  double x(double us) const {
    return left + (axis_end_us > 0 ? us / axis_end_us * axis_pixels : 0);
  }
  double y(size_t row) const { return top + static_cast<double>(row) * row_pitch; }
};

bool draws_arrows(const Picture& picture, double axis_pixels) {
  if (picture.arrows.empty()) return false;
  std::map<std::pair<size_t, size_t>, size_t> counts;
  size_t most = 0;
  for (const PictureArrow& arrow : picture.arrows) {
    most = std::max(most, ++counts[std::minmax(arrow.from_row, arrow.to_row)]);
  }
  return axis_pixels / static_cast<double>(most) >= kArrowPixelsMin;
}

Page page_of(const Picture& picture, const SvgOptions& options) {
  Page page;
  size_t chars = options.name_chars;
  for (const PictureRow& row : picture.rows) {
    chars = std::max(chars, row.name.size());
    for (const PictureSlot& slot : row.slots) {
      page.has_reductions = page.has_reductions || slot.kind == SlotKind::kReduction;
    }
  }
  page.axis_end_us = std::max(options.axis_end_us, picture.end_us);
  page.axis_pixels =
      options.axis_pixels > 0 ? options.axis_pixels : axis_pixels_for(picture, page.axis_end_us);
  page.left = kMargin + static_cast<double>(chars) * kNameCharPixels + 8;
  page.top = (picture.title.empty() ? 8 : 30);
  page.has_arrows = draws_arrows(picture, page.axis_pixels);
  page.row_height = picture.rows.size() <= 8 ? 22 : picture.rows.size() <= 16 ? 18 : 15;
  page.row_pitch = page.row_height + (page.has_reductions ? kReductionHeight + 1 : 0) +
                   (page.has_arrows ? 8 : 3);
  return page;
}

/// The stages that a row computes, ascending.
std::vector<int32_t> stages_of(const PictureRow& row) {
  std::set<int32_t> stages;
  for (const PictureSlot& slot : row.slots) {
    if (slot.microbatch >= 0) stages.insert(slot.stage);
  }
  return {stages.begin(), stages.end()};
}

/// "#rrggbb" as if painted on white with less paint.
std::string paler(const std::string& colour, double opacity) {
  const auto value = static_cast<int>(std::strtol(colour.c_str() + 1, nullptr, 16));
  const auto mix = [opacity](int part) {
    return static_cast<int>(std::lround(255 - opacity * (255 - (part & 255))));
  };
  return absl::StrFormat("#%02x%02x%02x", mix(value >> 16), mix(value >> 8), mix(value));
}

/// Later stages of one row are paler.
double opacity_of(const std::vector<int32_t>& stages, const PictureSlot& slot) {
  if (slot.microbatch < 0 || stages.size() < 2) return 1;
  const auto place = std::lower_bound(stages.begin(), stages.end(), slot.stage) - stages.begin();
  return 1 - 0.6 * static_cast<double>(place) / static_cast<double>(stages.size() - 1);
}

std::string tip_of(const Picture& picture, const PictureSlot& slot) {
  std::string name = name_of(slot.kind);
  if (slot.microbatch >= 0) name = absl::StrCat(slot.stage, name, slot.microbatch);
  return absl::StrCat(name, ": ", time_text(slot.start_us, picture.has_units), " to ",
                      time_text(slot.end_us, picture.has_units));
}

std::string slot_text(const Picture& picture, const PictureSlot& slot, double opacity,
                      const Page& page, double y) {
  const bool reduces = slot.kind == SlotKind::kReduction;
  const double x = page.x(slot.start_us);
  const double width = std::max(0.5, page.x(slot.end_us) - x);
  const double height = reduces ? kReductionHeight : page.row_height;
  const double top = reduces ? y + page.row_height + 1 : y;
  std::string text =
      absl::StrCat("<rect x=\"", pixels(x), "\" y=\"", pixels(top), "\" width=\"", pixels(width),
                   "\" height=\"", pixels(height), "\" fill=\"",
                   paler(colour_of(slot.kind), opacity), "\"", reduces ? "" : " class=\"s\"");
  absl::StrAppend(&text, "><title>", escaped(tip_of(picture, slot)), "</title></rect>\n");
  const double room = static_cast<double>(slot.label.size()) * kDigitPixels + 1.5;
  if (!reduces && !slot.label.empty() && width >= room) {
    absl::StrAppend(&text, "<text class=\"n\" x=\"", pixels(x + width / 2), "\" y=\"",
                    pixels(y + page.row_height / 2 + 3.5), "\">", escaped(slot.label), "</text>\n");
  }
  return text;
}

std::string idle_text(size_t index, const Page& page) {
  return absl::StrCat("<rect class=\"idle\" x=\"", pixels(page.left), "\" y=\"",
                      pixels(page.y(index)), "\" width=\"", pixels(page.axis_pixels),
                      "\" height=\"", pixels(page.row_height), "\"/>\n");
}

std::string row_text(const Picture& picture, size_t index, const Page& page) {
  const PictureRow& row = picture.rows[index];
  const double y = page.y(index);
  const std::string middle = pixels(y + page.row_height / 2 + 4);
  std::string text = absl::StrCat("<text x=\"", pixels(kMargin), "\" y=\"", middle, "\">",
                                  escaped(row.name), "</text>\n");
  const std::vector<int32_t> stages = stages_of(row);
  for (const PictureSlot& slot : row.slots) {
    absl::StrAppend(&text, slot_text(picture, slot, opacity_of(stages, slot), page, y));
  }
  absl::StrAppend(&text, "<text x=\"", pixels(page.left + page.axis_pixels + 8), "\" y=\"", middle,
                  "\">", absl::StrFormat("%.1f%%", bubble_of(picture, row) * 100), "</text>\n");
  return text;
}

/// From the edge of the sending row to the facing edge of the receiving one.
std::string arrow_text(const PictureArrow& arrow, const Page& page) {
  const bool down = arrow.to_row > arrow.from_row;
  const double from = page.y(arrow.from_row) + (down ? page.row_height : 0);
  const double to = page.y(arrow.to_row) + (down ? 0 : page.row_height);
  return absl::StrCat("<line class=\"", arrow.backward ? "back" : "fore", "\" x1=\"",
                      pixels(page.x(arrow.start_us)), "\" y1=\"", pixels(from), "\" x2=\"",
                      pixels(page.x(arrow.end_us)), "\" y2=\"", pixels(to), "\" marker-end=\"url(#",
                      arrow.backward ? "tip-back" : "tip-fore", ")\"/>\n");
}

/// Arrows that pass over other rows are drawn before the slots, which hide them there.
std::string arrows_text(const Picture& picture, const Page& page, bool far) {
  std::string text;
  for (const PictureArrow& arrow : picture.arrows) {
    const auto [low, high] = std::minmax(arrow.from_row, arrow.to_row);
    if (page.has_arrows && (high - low > 1) == far) text += arrow_text(arrow, page);
  }
  return text;
}

std::string axis_text(const Page& page, double bottom, bool has_units) {
  const int count = std::max(2, static_cast<int>(page.axis_pixels / kTickPixels));
  const std::vector<double> ticks = axis_ticks(page.axis_end_us, count);
  const std::vector<std::string> labels = axis_labels(ticks, has_units);
  std::string text;
  for (size_t i = 0; i < ticks.size(); ++i) {
    const std::string x = pixels(page.x(ticks[i]));
    absl::StrAppend(&text, "<line class=\"tick\" x1=\"", x, "\" y1=\"", pixels(page.top - 3),
                    "\" x2=\"", x, "\" y2=\"", pixels(bottom), "\"/>\n<text class=\"a\" x=\"", x,
                    "\" y=\"", pixels(bottom + 13), "\">", labels[i], "</text>\n");
  }
  return text;
}

std::string legend_text(const Picture& picture, const Page& page, double y) {
  std::string text;
  double x = page.left;
  for (const SlotKind kind : kinds_of(picture)) {
    const std::string name = name_of(kind);
    absl::StrAppend(&text, "<rect x=\"", pixels(x), "\" y=\"", pixels(y - 9),
                    "\" width=\"14\" height=\"11\" fill=\"", colour_of(kind), "\"/>\n<text x=\"",
                    pixels(x + 18), "\" y=\"", pixels(y), "\">", name, "</text>\n");
    x += 34 + static_cast<double>(name.size()) * kNameCharPixels;
  }
  std::string note = absl::StrFormat("bubble %.1f%%", bubble_of(picture) * 100);
  if (picture.many_stages) note += "; paler: later stages of a row";
  if (!picture.arrows.empty() && !page.has_arrows) note += "; transfers are too many to draw";
  absl::StrAppend(&text, "<text x=\"", pixels(x + 4), "\" y=\"", pixels(y), "\">", note,
                  "</text>\n");
  return text;
}

constexpr const char* kStyle = R"(<style>
text{font:11px "DejaVu Sans",Verdana,sans-serif;fill:#222}
.n{font-size:9px;text-anchor:middle}.a{font-size:10px;text-anchor:middle;fill:#555}
.h{font-size:13px;font-weight:bold}.idle{fill:#f1f1f1}.tick{stroke:#ccc;stroke-width:.6}
.fore{stroke:#2d6ca8;stroke-width:.7}.back{stroke:#b8640f;stroke-width:.7}
.s{stroke:#fff;stroke-width:.5}
.cap{stroke:#c33;stroke-width:1;stroke-dasharray:4 3}
.mem{fill:#6fa8dc;stroke:#2d6ca8;stroke-width:.8}
</style>
<defs>
<marker id="tip-fore" markerWidth="4" markerHeight="4" refX="3.5" refY="2" orient="auto">
<path d="M0,0L4,2L0,4Z" fill="#2d6ca8"/></marker>
<marker id="tip-back" markerWidth="4" markerHeight="4" refX="3.5" refY="2" orient="auto">
<path d="M0,0L4,2L0,4Z" fill="#b8640f"/></marker>
</defs>
)";

std::string opening(double width, double height) {
  return absl::StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", pixels(width),
                      "\" height=\"", pixels(height), "\" viewBox=\"0 0 ", pixels(width), " ",
                      pixels(height), "\">\n", kStyle,
                      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
}

/// A filled step line from the points of one row.
std::string memory_row(const PictureRow& row, const Page& page, double y, double top_bytes) {
  const auto height = [&page, top_bytes](int64_t bytes) {
    return page.row_height * static_cast<double>(bytes) / top_bytes;
  };
  const double floor = y + page.row_height;
  std::string path = absl::StrCat("M", pixels(page.left), ",", pixels(floor));
  double last = floor;
  for (const PictureMemory& point : row.memory) {
    const std::string x = pixels(page.x(point.time_us));
    const double level = floor - height(point.bytes);
    absl::StrAppend(&path, "L", x, ",", pixels(last), "L", x, ",", pixels(level));
    last = level;
  }
  const std::string end = pixels(page.left + page.axis_pixels);
  absl::StrAppend(&path, "L", end, ",", pixels(last), "L", end, ",", pixels(floor), "Z");
  std::string text = absl::StrCat("<path class=\"mem\" d=\"", path, "\"/>\n");
  const double limit = height(row.memory_capacity_bytes);
  if (row.memory_capacity_bytes > 0 && limit <= page.row_height) {
    absl::StrAppend(&text, "<line class=\"cap\" x1=\"", pixels(page.left), "\" y1=\"",
                    pixels(floor - limit), "\" x2=\"", end, "\" y2=\"", pixels(floor - limit),
                    "\"/>\n");
  }
  return text;
}

}  // namespace

double axis_pixels_for(const Picture& picture, double axis_end_us) {
  std::vector<double> lengths;
  for (const PictureRow& row : picture.rows) {
    for (const PictureSlot& slot : row.slots) {
      if (slot.microbatch >= 0) lengths.push_back(slot.end_us - slot.start_us);
    }
  }
  if (lengths.empty()) return kAxisPixelsMin;
  // The shortest fifth may stay without labels, and so may what is far shorter than usual.
  std::sort(lengths.begin(), lengths.end());
  const double usual = std::max(lengths[lengths.size() / 5], lengths[lengths.size() / 2] / 4);
  if (!(usual > 0)) return kAxisPixelsMax;
  return std::clamp(axis_end_us / usual * kSlotPixels, kAxisPixelsMin, kAxisPixelsMax);
}

std::string svg(const Picture& picture, const SvgOptions& options) {
  const Page page = page_of(picture, options);
  const double bottom = page.y(picture.rows.size());
  const double width = page.left + page.axis_pixels + kBubblePixels;
  std::string text = opening(width, bottom + 44);
  if (!picture.title.empty()) {
    absl::StrAppend(&text, "<text class=\"h\" x=\"", pixels(kMargin), "\" y=\"18\">",
                    escaped(picture.title), "</text>\n");
  }
  absl::StrAppend(&text, axis_text(page, bottom, picture.has_units));
  for (size_t row = 0; row < picture.rows.size(); ++row) {
    absl::StrAppend(&text, idle_text(row, page));
  }
  absl::StrAppend(&text, arrows_text(picture, page, /*far=*/true));
  for (size_t row = 0; row < picture.rows.size(); ++row) {
    absl::StrAppend(&text, row_text(picture, row, page));
  }
  absl::StrAppend(&text, arrows_text(picture, page, /*far=*/false));
  absl::StrAppend(&text, legend_text(picture, page, bottom + 34));
  return text + "</svg>\n";
}

std::string memory_svg(const Picture& picture, const SvgOptions& options) {
  Page page = page_of(picture, options);
  page.top = 8;
  page.row_height = picture.rows.size() <= 8 ? 34 : 22;
  page.row_pitch = page.row_height + 6;
  int64_t top_bytes = 0;
  for (const PictureRow& row : picture.rows) {
    for (const PictureMemory& point : row.memory) top_bytes = std::max(top_bytes, point.bytes);
  }
  if (top_bytes == 0) return "";
  const double bottom = page.y(picture.rows.size());
  std::string text = opening(page.left + page.axis_pixels + kBubblePixels, bottom + 20);
  absl::StrAppend(&text, axis_text(page, bottom, picture.has_units));
  for (size_t r = 0; r < picture.rows.size(); ++r) {
    const PictureRow& row = picture.rows[r];
    const std::string middle = pixels(page.y(r) + page.row_height / 2 + 4);
    absl::StrAppend(&text, memory_row(row, page, page.y(r), 1.1 * static_cast<double>(top_bytes)),
                    "<text x=\"", pixels(kMargin), "\" y=\"", middle, "\">", escaped(row.name),
                    "</text>\n<text x=\"", pixels(page.left + page.axis_pixels + 6), "\" y=\"",
                    middle, "\">", memory_text(picture, row.memory_peak_bytes), "</text>\n");
  }
  return text + "</svg>\n";
}

}  // namespace skein::cli
