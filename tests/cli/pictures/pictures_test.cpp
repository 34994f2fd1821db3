#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "cli/pictures/markup.hpp"
#include "cli/pictures/report_html.hpp"
#include "cli/pictures/svg.hpp"
#include "cli/pictures/terminal_grid.hpp"
#include "cli/pictures/timeline_rows.hpp"
#include "plans/schedule/schedule.hpp"
#include "plans/schedule/walk_schedule.hpp"
#include "tests/support/golden.hpp"

namespace skein::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

/// S stages with F of 1 ms and B of 2 ms, as measured slices of a run that started at 5 ms.
std::vector<actors::TimingsReport> reports_of(int32_t stages, int32_t microbatches,
                                              plans::ScheduleKind kind) {
  const plans::ScheduleShape shape = plans::straight_shape(stages, microbatches);
  const auto schedule = plans::make_schedule(kind, shape);
  const auto stage_count = static_cast<size_t>(stages);
  std::vector<actors::TimingsReport> reports(stage_count);
  for (size_t s = 0; s < stage_count; ++s) {
    reports[s].worker = {static_cast<uint32_t>(s + 1)};
    reports[s].stage = static_cast<int32_t>(s);
    reports[s].step = 7;
  }
  std::vector<uint64_t> free_us(stage_count, 5000);
  std::map<std::pair<int32_t, int32_t>, uint64_t> forward_end;
  std::map<std::pair<int32_t, int32_t>, uint64_t> backward_end;
  plans::walk_schedule(
      *schedule, shape.rank_of_stage, microbatches, [&](size_t rank, const plans::Action& action) {
        const bool forward = action.type == plans::ActionType::kForward;
        auto& ends = forward ? forward_end : backward_end;
        const int32_t source = action.stage + (forward ? -1 : 1);
        const uint64_t start = std::max(free_us[rank], ends[{source, action.microbatch}]);
        const uint64_t length = forward ? 1000 : 2000;
        reports[rank].slices.push_back(
            {plans::to_text(action), 0, start, length, action.microbatch});
        free_us[rank] = ends[{action.stage, action.microbatch}] = start + length;
      });
  return reports;
}

Picture picture(int32_t stages, int32_t microbatches,
                plans::ScheduleKind kind = plans::ScheduleKind::k1F1B) {
  return picture_of(reports_of(stages, microbatches, kind));
}

/// One with everything in it: every kind, arrows, memory, names that need escaping.
Picture full_picture() {
  Picture picture;
  picture.title = "all <kinds> & \"more\"";
  picture.many_stages = true;
  for (size_t r = 0; r < 2; ++r) {
    PictureRow row;
    row.name = r == 0 ? "w1 a&b s0,2" : "w2 <c> s1,3";
    row.slots = {{SlotKind::kForward, 0, 0, "0", 0, 1e3},
                 {SlotKind::kForward, 2, 0, "0", 1e3, 2e3},
                 {SlotKind::kBackwardInput, 2, 0, "0", 2e3, 3e3},
                 {SlotKind::kBackwardWeight, 2, 0, "0", 3e3, 4e3},
                 {SlotKind::kBackward, 0, 0, "0", 5e3, 7e3},
                 {SlotKind::kUpdate, 0, -1, "u", 8e3, 9e3},
                 {SlotKind::kReduction, 0, -1, "", 7e3, 8e3}};
    row.memory = {{0, 1'000'000}, {1e3, 3'000'000}, {6e3, 2'000'000}};
    row.memory_peak_bytes = 3'000'000;
    row.memory_capacity_bytes = 3'200'000;
    picture.rows.push_back(row);
  }
  picture.arrows = {{0, 1, false, 1e3, 1.2e3}, {1, 0, true, 3e3, 3.2e3}};
  picture.end_us = 9e3;
  return picture;
}

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(Pictures, MeasuredSlicesAreCountedFromTheStepsStart) {
  const Picture four = picture(4, 8);
  ASSERT_EQ(four.rows.size(), 4);
  EXPECT_EQ(four.end_us, (8 + 3) * 3000);
  EXPECT_EQ(four.rows[0].slots[0].start_us, 0);
  EXPECT_EQ(four.rows[3].slots[0].start_us, 3000);
  EXPECT_NEAR(bubble_of(four), 3.0 / 11, 1e-9);
  EXPECT_TRUE(picture_of(std::vector<actors::TimingsReport>{}).rows.empty());
}

TEST(Pictures, OnlyTheLastMeasuredStepIsShown) {
  auto reports = reports_of(2, 2, plans::ScheduleKind::kGPipe);
  auto earlier = reports;
  for (auto& report : earlier) report.step = 6;
  reports.insert(reports.begin(), earlier.begin(), earlier.end());
  EXPECT_EQ(picture_of(reports).rows[0].slots.size(), 4);
}

TEST(Pictures, CutKeepsTheTimeInside) {
  const Picture whole = full_picture();
  for (double from = 0; from < 9e3; from += 500) {
    for (double to = from + 500; to <= 9e3; to += 500) {
      const Picture part = cut(whole, from, to);
      EXPECT_EQ(part.end_us, to - from);
      for (const PictureRow& row : part.rows) {
        for (const PictureSlot& slot : row.slots) {
          EXPECT_GE(slot.start_us, 0);
          EXPECT_LT(slot.start_us, slot.end_us);
          EXPECT_LE(slot.end_us, part.end_us);
        }
        ASSERT_FALSE(row.memory.empty());
        EXPECT_EQ(row.memory.front().time_us, 0);
      }
    }
  }
}

TEST(Pictures, AxesHaveRoundStepsWithinTheirEnd) {
  for (double end : {0.3, 1.0, 7.0, 999.0, 12345.0, 8.1e6}) {
    for (int most = 2; most < 30; ++most) {
      const std::vector<double> ticks = axis_ticks(end, most);
      EXPECT_LE(ticks.size(), static_cast<size_t>(most) + 1);
      EXPECT_LE(ticks.back(), end * 1.000001);
      EXPECT_EQ(ticks.front(), 0);
    }
  }
  EXPECT_EQ(axis_labels({0, 5000, 10000}, true), (std::vector<std::string>{"0", "5", "10 ms"}));
  EXPECT_EQ(axis_labels({0, 5}, false), (std::vector<std::string>{"0", "5"}));
  EXPECT_EQ(axis_ticks(0, 5), std::vector<double>{0});
}

TEST(TerminalGrid, LooksAsItDid) {
  tests::expect_golden("pictures/grid_1f1b_4x8.txt", terminal_grid(picture(4, 8), {100}));
  tests::expect_golden("pictures/grid_gpipe_4x8_narrow.txt",
                       terminal_grid(picture(4, 8, plans::ScheduleKind::kGPipe), {60}));
  tests::expect_golden("pictures/grid_full.txt", terminal_grid(full_picture(), {80}));
  tests::expect_golden("pictures/grid_full_true_colours.txt",
                       terminal_grid(full_picture(), {80, GridColours::kTrue}));
  tests::expect_golden("pictures/grid_full_256_colours.txt",
                       terminal_grid(full_picture(), {80, GridColours::k256}));
}

/// Columns that a line takes: code points outside of escape sequences.
size_t columns_of(const std::string& line) {
  const std::string plain = std::regex_replace(line, std::regex("\033\\[[0-9;]*m"), "");
  return static_cast<size_t>(
      std::count_if(plain.begin(), plain.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

TEST(TerminalGrid, StaysWithinTheTerminal) {
  for (int32_t stages : {1, 2, 4, 8, 32}) {
    for (int columns : {40, 61, 80, 100, 237}) {
      for (GridColours colours : {GridColours::kNone, GridColours::k256, GridColours::kTrue}) {
        const std::string text = terminal_grid(picture(stages, 16), {columns, colours});
        size_t begin = 0;
        for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
          EXPECT_LE(columns_of(text.substr(begin, end - begin)), static_cast<size_t>(columns));
          begin = end + 1;
        }
        EXPECT_EQ(count(text, "\033") > 0, colours != GridColours::kNone);
      }
    }
  }
}

TEST(TerminalGrid, EveryMicrobatchIsThereWhereThereIsRoom) {
  const std::string text = terminal_grid(picture(4, 8), {120});
  for (int m = 0; m < 8; ++m) EXPECT_GE(count(text, std::to_string(m)), 8) << text;
}

TEST(Svg, LooksAsItDid) {
  tests::expect_golden("pictures/1f1b_4x8.svg", svg(picture(4, 8), {}));
  tests::expect_golden("pictures/full.svg", svg(full_picture(), {}));
  tests::expect_golden("pictures/full_memory.svg", memory_svg(full_picture(), {}));
}

TEST(Svg, HasEverySlotAndEveryRow) {
  for (int32_t stages : {1, 4, 8, 32}) {
    const std::string text = svg(picture(stages, 16), {});
    EXPECT_EQ(count(text, "<title>"), static_cast<size_t>(stages) * 32);
    EXPECT_EQ(count(text, "class=\"idle\""), static_cast<size_t>(stages));
    EXPECT_EQ(count(text, "<rect"),
              count(text, "/>\n") - count(text, "<line") - 0 + count(text, "</rect>"))
        << "every rectangle is closed";
  }
}

TEST(Svg, ASlotThatIsFarTooShortDoesNotStretchTheAxis) {
  Picture odd = picture(2, 2);
  const double pixels = axis_pixels_for(odd, odd.end_us);
  for (PictureRow& row : odd.rows) row.slots.front().end_us = row.slots.front().start_us + 1;
  EXPECT_LE(axis_pixels_for(odd, odd.end_us), 4 * pixels);
}

TEST(Svg, EscapesNames) {
  const std::string text = svg(full_picture(), {});
  EXPECT_THAT(text, HasSubstr("all &lt;kinds&gt; &amp; &quot;more&quot;"));
  EXPECT_THAT(text, Not(HasSubstr("<c>")));
}

TEST(Svg, LeavesOutTransfersThatWouldCoverEverything) {
  Picture crowded = full_picture();
  EXPECT_THAT(svg(crowded, {}), HasSubstr("class=\"fore\""));
  for (int i = 0; i < 1000; ++i) crowded.arrows.push_back({0, 1, false, i * 9.0, i * 9.0 + 5});
  EXPECT_THAT(svg(crowded, {}), Not(HasSubstr("class=\"fore\"")));
  EXPECT_THAT(svg(crowded, {}), HasSubstr("too many to draw"));
}

TEST(Svg, AnEmptyPictureIsStillAPicture) {
  EXPECT_THAT(svg(Picture{}, {}), HasSubstr("</svg>"));
  EXPECT_EQ(memory_svg(Picture{}, {}), "");
  EXPECT_FALSE(terminal_grid(Picture{}, {}).empty());
}

TEST(ReportHtml, LooksAsItDid) {
  Report report;
  report.title = "job <one>";
  report.facts = {{"step", "9 ms"}};
  report.planned = full_picture();
  report.measured = cut(full_picture(), 0, 8.5e3);
  report.planners = {{"skein", "", "4x1 | 2x2", 9e3, 0.2, 1},
                     {"even", "device a&b lacks 3 GB", "", 0, 0, 1}};
  const std::string text = report_html(report);
  tests::expect_golden("pictures/report.html", text);
  EXPECT_THAT(text, HasSubstr("a&amp;b lacks 3 GB"));
  EXPECT_EQ(count(text, "<svg"), 3);
}

TEST(ReportHtml, NeedsNothingFromElsewhere) {
  Report report;
  report.planned = full_picture();
  std::string text = report_html(report);
  text = std::regex_replace(text, std::regex("http://www.w3.org/2000/svg"), "");
  for (const char* what : {"http:", "https:", "src=", "href=", "@import"}) {
    EXPECT_THAT(text, Not(HasSubstr(what)));
  }
}

TEST(Markup, PixelsAreShort) {
  EXPECT_EQ(pixels(12.5), "12.5");
  EXPECT_EQ(pixels(-0.0001), "0");
  EXPECT_EQ(pixels(100), "100");
  EXPECT_EQ(pixels(0.0 / 0.0), "0");
}

}  // namespace
}  // namespace skein::cli
