#include "cli/demo/demo_screen.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/support/golden.hpp"

namespace skein::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

/// After a loss and a join: everything is there to be shown.
DemoView full_view() {
  DemoView view;
  view.seconds = 63;
  view.seconds_planned = 90;
  view.phase = "training";
  view.step = 240;
  view.tokens_per_second = 15432;
  view.generation = 3;
  view.model = "14 layers = embedding, 12 blocks, head";
  view.schedule = "ZBH1";
  view.gain = 1.42;
  view.workers = {{1, 1.0, {0}, 5, false},
                  {2, 1.01, {1}, 4, false},
                  {4, 0.5, {2}, 2, false},
                  {5, 0.99, {3}, 3, false}};
  for (int s = 0; s < 4; ++s) {
    PictureRow row;
    row.name = absl::StrCat("w", s + 1, " s", s);
    for (int m = 0; m < 4; ++m) {
      const double at = 1e3 * (s + 3 * m);
      row.slots.push_back({SlotKind::kForward, s, m, absl::StrCat(m), at, at + 1e3});
      row.slots.push_back({SlotKind::kBackward, s, m, absl::StrCat(m), at + 1e3, at + 3e3});
    }
    view.timeline.rows.push_back(row);
  }
  view.timeline.end_us = 15e3;
  view.timeline_step = 230;
  for (int i = 0; i < 240; ++i) view.losses.push_back(2.2 + 3.3 * std::exp(-i / 40.0));
  view.marks = {{110, "w3 lost"}, {180, "w5 joined"}};
  for (int i = 0; i < 12; ++i) {
    view.events.push_back({5.0 * i, absl::StrCat("event number ", i), i == 9, i == 10});
  }
  return view;
}

/// Columns that a line takes: characters, without escape codes.
int width(const std::string& line) {
  int columns = 0;
  bool in_escape = false;
  for (const char byte : line) {
    if (byte == '\033') in_escape = true;
    if (!in_escape && (static_cast<unsigned char>(byte) & 0xC0) != 0x80) ++columns;
    if (byte == 'm') in_escape = false;
  }
  return columns;
}

TEST(DemoScreen, LooksAsItDid) {
  tests::expect_golden("cli/demo_80x24.txt",
                       absl::StrJoin(demo_screen(full_view(), {80, 24}), "\n") + "\n");
  tests::expect_golden("cli/demo_120x40.txt",
                       absl::StrJoin(demo_screen(full_view(), {120, 40}), "\n") + "\n");
}

TEST(DemoScreen, KeepsToEveryTerminal) {
  for (const GridColours colours : {GridColours::kNone, GridColours::k256, GridColours::kTrue}) {
    for (int columns : {40, 57, 80, 120, 250}) {
      for (int rows : {12, 24, 33, 34, 60}) {
        DemoScreenOptions options{columns, rows, colours, "a hint that is long"};
        for (const DemoView& view : {full_view(), DemoView{}}) {
          const auto lines = demo_screen(view, options);
          EXPECT_LE(lines.size(), static_cast<size_t>(rows));
          for (const std::string& line : lines) EXPECT_LE(width(line), columns) << line;
        }
      }
    }
  }
}

TEST(DemoScreen, HasColoursOnlyWhereTheyAreWanted) {
  const auto without = absl::StrJoin(demo_screen(full_view(), {80, 24}), "\n");
  EXPECT_THAT(without, Not(HasSubstr("\033")));
  const auto with = absl::StrJoin(demo_screen(full_view(), {80, 24, GridColours::k256, ""}), "\n");
  EXPECT_THAT(with, HasSubstr("\033[1;31mevent number 9\033[0m"));
}

TEST(DemoScreen, AlwaysShowsTheNewestEvents) {
  for (int rows : {12, 24, 40}) {
    const auto lines = demo_screen(full_view(), {80, rows});
    EXPECT_THAT(lines.back(), HasSubstr("event number 11")) << rows;
  }
}

TEST(DemoScreen, SaysWhoWasLostEvenInTheLastStep) {
  DemoView view = full_view();
  view.marks = {{240, "w3 lost"}};
  EXPECT_THAT(absl::StrJoin(demo_screen(view, {80, 24}), "\n"), HasSubstr(" w3 lost^\n"));
}

TEST(DemoScreen, NamesLostAndIdleWorkers) {
  DemoView view = full_view();
  view.workers[1].is_lost = true;
  view.workers[3].layers = 0;
  const auto lines = pipeline_lines(view, {80, 24});
  EXPECT_THAT(lines[1], HasSubstr("lost"));
  EXPECT_THAT(lines[3], HasSubstr("no work yet"));
  EXPECT_THAT(plan_line(view), HasSubstr("5 + 2 layers on w1 w4"));
}

}  // namespace
}  // namespace skein::cli
