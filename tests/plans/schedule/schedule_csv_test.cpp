#include "plans/schedule/schedule_csv.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plans/schedule/schedule.hpp"

namespace skein::plans {
namespace {

TEST(ScheduleCsv, EveryKindRoundTrips) {
  for (ScheduleKind kind : schedule_kinds()) {
    const auto schedule = make_schedule(kind, straight_shape(4, 6));
    if (!schedule.ok()) continue;  // Custom.
    const auto parsed = parse_csv(to_csv(*schedule));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, *schedule);
  }
}

TEST(ScheduleCsv, WritesPyTorchsNotation) {
  const Schedule schedule = *make_schedule(ScheduleKind::k1F1B, straight_shape(2, 3));
  EXPECT_EQ(to_csv(schedule), "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
}

TEST(ScheduleCsv, SkipsIdleSlotsAndCommunication) {
  const auto parsed = parse_csv(
      ",0UNSHARD,0F0,0SEND_F0,, ,0RECV_B0,0I0 ,0W0,0REDUCE_GRAD,0RESHARD\r\n"
      ", 1RECV_F0,1F0,1B0,1SEND_B0,,\r\n");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(to_csv(*parsed), "0F0,0I0,0W0\n1F0,1B0\n");
}

TEST(ScheduleCsv, WritesOverlapGroupsOut) {
  EXPECT_EQ(to_csv(*parse_csv("0F0,(0F1;0B0)OVERLAP_F_B,( 0F2 ; 0I1 )OVERLAP_F_B,0W1\n")),
            "0F0,0F1,0B0,0F2,0I1,0W1\n");
}

TEST(ScheduleCsv, KeepsRanksWithoutActions) {
  EXPECT_EQ(parse_csv("0F0,0B0\n\n1F0,1B0")->size(), 3);
  EXPECT_TRUE(parse_csv("")->empty());
}

TEST(ScheduleCsv, NamesLineAndCellOfWhatItCannotRead) {
  auto message = [](const char* csv) { return std::string(parse_csv(csv).status().message()); };
  EXPECT_EQ(message("0F0,0B0\n1F0,,1X0\n"),
            "line 2, cell 3: \"1X0\" is no action; expected for example 0F3 or 1B0");
  EXPECT_THAT(message("0F0,(0F1;0B0)OVERLAP_B_F"), testing::HasSubstr("line 1, cell 2: \"(0F1;"));
  EXPECT_THAT(message("(0F1;0B0"), testing::HasSubstr("expected for example (0F3;1B0)OVERLAP_F_B"));
  EXPECT_THAT(message("(0F1;0Q0)OVERLAP_F_B"), testing::HasSubstr("line 1, cell 1: \"0Q0\""));
  for (const char* text : {"0SEND_F", "SEND_F0", "0UNSHARD1", "0F", "F0", "0SEND_X1", "0 F0",
                           "\"0F0\"", "((0F0)OVERLAP_F_B)OVERLAP_F_B"}) {
    EXPECT_THAT(message(text), testing::HasSubstr("line 1, cell 1")) << text;
  }
}

TEST(Action, RefusesTextThatIsNone) {
  for (const char* text : {"", "F", "0X1", "0F", "F1", "0F1x", "-1F0", "0F-1", "99999999999F0"}) {
    EXPECT_FALSE(parse_action(text).ok()) << text;
  }
}

}  // namespace
}  // namespace skein::plans
