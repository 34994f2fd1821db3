#include "plans/coordinator/input_blame.hpp"

#include <gtest/gtest.h>

namespace skein::plans {
namespace {

const absl::Status kUnread = absl::InvalidArgumentError("the data are not text");
constexpr InputBlame::Accuser kNewcomer;
constexpr InputBlame::Accuser kParticipant = {.worker = WorkerId{1}, .takes_part = true};
constexpr InputBlame::Accuser kAnother = {.worker = WorkerId{2}, .takes_part = true};

TEST(InputBlame, OnlyWhatIsSaidOfTheInputCounts) {
  InputBlame blame;
  EXPECT_FALSE(
      blame.accuse(absl::UnavailableError("link closed"), kParticipant, {.is_deserted = true}));
  EXPECT_TRUE(blame.why().ok());
}

TEST(InputBlame, TwoWithAPartAgree) {
  InputBlame blame;
  EXPECT_FALSE(blame.accuse(kUnread, kParticipant, {}));
  EXPECT_TRUE(blame.is_of_participant());
  EXPECT_FALSE(blame.accuse(kUnread, kParticipant, {})) << "one that is back is no second one";
  EXPECT_TRUE(blame.accuse(kUnread, kAnother, {}));
}

TEST(InputBlame, TheOnlyOneThereIsIsBelieved) {
  EXPECT_TRUE(InputBlame().accuse(kUnread, kNewcomer, {.is_deserted = true}));
  EXPECT_FALSE(InputBlame().accuse(kUnread, kNewcomer, {.has_past = true, .is_deserted = true}))
      << "others have trained";
}

TEST(InputBlame, WhoHasComeNoFurtherThanOthersKnowsNoBetter) {
  InputBlame blame;
  blame.on_started();
  const InputBlame::Run deserted = {.has_past = true, .is_deserted = true};
  EXPECT_FALSE(blame.accuse(kUnread, kParticipant, deserted));
  EXPECT_FALSE(blame.is_of_participant());
  const InputBlame::Run committed = {.has_past = true, .has_committed = true, .is_deserted = true};
  const InputBlame::Accuser started = {.worker = {1}, .takes_part = true, .has_started = true};
  EXPECT_FALSE(blame.accuse(kUnread, started, committed)) << "others have committed";
  EXPECT_TRUE(blame.accuse(kUnread, {{1}, true, true, true}, committed));
}

TEST(InputBlame, AfterACommitTheInputIsGood) {
  InputBlame blame;
  blame.accuse(kUnread, kParticipant, {});
  blame.on_commit();
  EXPECT_TRUE(blame.why().ok());
  EXPECT_FALSE(blame.accuse(kUnread, kParticipant, {}));
}

}  // namespace
}  // namespace skein::plans
