#include "plans/text/text_session.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace skein::plans {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kSecond = 1'000'000;
constexpr int64_t kLayers = 6;

template <class Decision>
std::vector<Decision> all_of(const TextSession::Answer& answer) {
  std::vector<Decision> found;
  for (const TextDecision& each : answer.decisions()) {
    if (const auto* decision = std::get_if<Decision>(&each)) found.push_back(*decision);
  }
  return found;
}

template <class Message>
std::vector<std::pair<WorkerId, Message>> sent(const TextSession::Answer& answer) {
  std::vector<std::pair<WorkerId, Message>> found;
  for (const SendText& each : all_of<SendText>(answer)) {
    if (const auto* message = std::get_if<Message>(&each.message)) {
      found.emplace_back(each.to, *message);
    }
  }
  return found;
}

std::string end_of(const TextSession::Answer& answer) {
  const auto ends = all_of<TextEnds>(answer);
  EXPECT_EQ(ends.size(), 1U);
  return ends.empty() ? "" : std::string(ends.front().why.message());
}

JoinRequest join_from(const std::string& host) {
  JoinRequest join;
  join.host_name = host;
  join.device = "cpu x1";
  join.data_address = host + ":7";
  return join;
}

TextRoom room_of(int64_t free_bytes, bool is_host_memory = false) {
  return {{free_bytes, 1, std::vector<int64_t>(kLayers, 10)}, is_host_memory};
}

class TextSessionTest : public testing::Test {
 protected:
  static TextSession::Options options(int64_t workers) {
    TextSession::Options made;
    made.run = "text-1";
    made.request = {"/models/a", 7, 100, 20};
    made.workers = workers;
    made.layers = kLayers;
    made.silence_us = 10 * kSecond;
    made.secret = 99;
    return made;
  }
  /// Workers 1 .. n have joined.
  void gather(int64_t workers) {
    session_.emplace(options(workers));
    for (int64_t i = 1; i <= workers; ++i) {
      last_ = session_->on_join(static_cast<PeerNumber>(i), join_from("h" + std::to_string(i)), 0);
    }
  }
  /// Two processes of one machine have joined.
  void gather_on_one_host() {
    session_.emplace(options(2));
    for (const uint32_t number : {1, 2}) {
      JoinRequest join = join_from("same");
      join.process_id = number;
      (void)session_->on_join(number, join, 0);
    }
  }
  void measure(const std::vector<TextRoom>& rooms) {
    for (size_t i = 0; i < rooms.size(); ++i) last_ = session_->on_room(worker(i + 1), rooms[i]);
  }
  /// Two workers have loaded three layers each.
  void begin() {
    gather(2);
    measure({room_of(1000), room_of(1000)});
    for (const size_t i : {1, 2}) last_ = session_->on_ready(worker(i));
  }
  static WorkerId worker(size_t number) { return {static_cast<uint32_t>(number)}; }
  static std::optional<DropReason> why(const TextSession::Answer& answer) {
    return answer.why_dropped();
  }

  std::optional<TextSession> session_;
  TextSession::Answer last_;
};

TEST_F(TextSessionTest, AsksForRoomWhenAllWorkersAreThere) {
  gather(1);
  EXPECT_EQ(all_of<AcceptTextWorker>(last_).front().who, "w1 (cpu x1 on h1)");
  EXPECT_EQ(sent<TextRequest>(last_).size(), 1U);
  gather(3);
  const auto requests = sent<TextRequest>(last_);
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[2].first, worker(3));
  EXPECT_EQ(requests[2].second, options(3).request);
}

TEST_F(TextSessionTest, RefusesWhoComesTooLateOrServesARun) {
  session_.emplace(options(2));
  JoinRequest other = join_from("h");
  other.run = "small-1";
  EXPECT_THAT(all_of<RefuseTextWorker>(session_->on_join(1, other, 0)).front().why,
              HasSubstr("serves run small-1"));
  gather(2);
  const auto refused = all_of<RefuseTextWorker>(session_->on_join(3, join_from("h"), 0));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused.front().peer, 3U);
  EXPECT_THAT(refused.front().why, HasSubstr("its 2 workers"));
}

TEST_F(TextSessionTest, WaitsForAnotherOneWhenOneLeavesBeforeAllAreThere) {
  session_.emplace(options(2));
  (void)session_->on_join(1, join_from("a"), 0);
  EXPECT_TRUE(session_->on_lost(worker(1), "gone").is_accepted());
  JoinRequest back = join_from("a");  // Its link is there again.
  back.run = "text-1";
  EXPECT_EQ(all_of<AcceptTextWorker>(session_->on_join(2, back, 0)).size(), 1U);
  const auto requests = sent<TextRequest>(session_->on_join(3, join_from("c"), 0));
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].first, worker(2)) << "numbers are not given twice";
}

TEST_F(TextSessionTest, ChainsTheWorkersByTheirLayers) {
  gather(3);
  measure({room_of(1000), room_of(1000), room_of(1000)});
  const auto cuts = all_of<TextCut>(last_);
  ASSERT_EQ(cuts.size(), 1U);
  const auto orders = sent<TextLayers>(last_);
  ASSERT_EQ(orders.size(), 3U);
  EXPECT_EQ(orders[0].second, (TextLayers{{0, 2}, {}, worker(2), "h2:7", 99}));
  EXPECT_EQ(orders[1].second, (TextLayers{{2, 4}, worker(1), worker(3), "h3:7", 99}));
  EXPECT_EQ(orders[2].second, (TextLayers{{4, 6}, worker(2), {}, "", 99}));
}

TEST_F(TextSessionTest, LeavesOutAWorkerWithoutRoom) {
  gather(3);
  measure({room_of(35), room_of(5), room_of(1000)});
  const auto orders = sent<TextLayers>(last_);
  ASSERT_EQ(orders.size(), 2U);
  EXPECT_EQ(orders[1].first, worker(3));
  EXPECT_EQ(orders[1].second.previous, worker(1));
  EXPECT_TRUE(all_of<TextBegins>(session_->on_ready(worker(1))).empty());
  EXPECT_EQ(all_of<TextBegins>(session_->on_ready(worker(3))).size(), 1U)
      << "nobody waits for the one that has nothing to load";
  EXPECT_TRUE(all_of<TextEnds>(session_->on_lost(worker(2), "gone")).empty());
  EXPECT_EQ(all_of<TextEnds>(session_->on_lost(worker(3), "gone")).size(), 1U);
}

TEST_F(TextSessionTest, CountsTheMemoryOfAMachineOnce) {
  gather_on_one_host();
  measure({room_of(70, true), room_of(70, true)});
  EXPECT_EQ(all_of<TextCut>(last_).size(), 1U) << "half of it is enough for three layers";
  gather_on_one_host();
  measure({room_of(60, true), room_of(60, true)});
  EXPECT_THAT(end_of(last_), AllOf(HasSubstr("11 bytes of memory are missing on w2 (cpu x1 on same)"
                                             " for layers 2..6"),
                                   Not(HasSubstr("\n"))));
}

TEST_F(TextSessionTest, MakesOneStepAfterTheOther) {
  begin();
  EXPECT_EQ(all_of<TextBegins>(last_).size(), 1U);
  const std::vector<int32_t> tokens = {5, 6, 7};
  const auto steps = sent<TextStep>(session_->on_step(tokens, 0));
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].second, (TextStep{1, 0, 3, tokens}));
  EXPECT_EQ(steps[1].second, (TextStep{1, 0, 3, {}})) << "tokens go to the first layer only";
  EXPECT_EQ(why(session_->on_step(tokens, 3)), DropReason::kUnexpected);
  EXPECT_EQ(all_of<TextStepDone>(session_->on_logits(1)).size(), 1U);
  EXPECT_EQ(why(session_->on_logits(1)), DropReason::kRepeated);
  EXPECT_EQ(sent<TextStep>(session_->on_step(tokens, 3))[1].second, (TextStep{2, 3, 3, {}}));
  EXPECT_EQ(why(session_->on_logits(1)), DropReason::kStale);
  EXPECT_EQ(why(session_->on_logits(3)), DropReason::kNotAllowed);
}

TEST_F(TextSessionTest, DropsWhatIsRepeatedEarlyOrOfNobody) {
  gather(2);
  EXPECT_EQ(why(session_->on_ready(worker(1))), DropReason::kUnexpected);
  EXPECT_EQ(why(session_->on_step(std::vector<int32_t>{1}, 0)), DropReason::kUnexpected);
  EXPECT_EQ(why(session_->on_room(worker(9), room_of(100))), DropReason::kUnknown);
  EXPECT_EQ(why(session_->on_room(worker(1), {{100, 1, {10, 10}}, false})),
            DropReason::kNotAllowed);
  EXPECT_TRUE(session_->on_room(worker(1), room_of(100)).is_accepted());
  EXPECT_EQ(why(session_->on_room(worker(1), room_of(100))), DropReason::kRepeated);
  measure({room_of(100), room_of(100)});
  EXPECT_EQ(why(session_->on_room(worker(2), room_of(100))), DropReason::kUnexpected);
  EXPECT_TRUE(session_->on_ready(worker(1)).is_accepted());
  EXPECT_EQ(why(session_->on_ready(worker(1))), DropReason::kRepeated);
  EXPECT_EQ(why(session_->on_lost(worker(9), "")), DropReason::kUnknown);
  EXPECT_EQ(why(session_->on_failed(worker(9), "", false)), DropReason::kUnknown);
  EXPECT_EQ(why(session_->on_heartbeat(worker(9), 0)), DropReason::kUnknown);
}

TEST_F(TextSessionTest, EndsInOneLineWhenAWorkerIsLostOrFails) {
  for (int step = 0; step < 2; ++step) {
    begin();
    if (step == 1) (void)session_->on_step(std::vector<int32_t>{1}, 0);
    EXPECT_THAT(end_of(session_->on_lost(worker(2), "end of stream")),
                AllOf(HasSubstr("w2 (cpu x1 on h2) is lost"), HasSubstr("end of stream"),
                      Not(HasSubstr("\n"))));
    EXPECT_TRUE(session_->has_ended());
    EXPECT_EQ(why(session_->on_lost(worker(1), "")), DropReason::kStale);
    EXPECT_EQ(why(session_->on_tick(100 * kSecond)), DropReason::kStale);
    EXPECT_EQ(why(session_->on_logits(1)).has_value(), true);
  }
  gather(2);
  const auto failed = session_->on_failed(worker(1), "no such folder", true);
  EXPECT_THAT(end_of(failed), HasSubstr("w1 (cpu x1 on h1) cannot draw text: no such folder"));
  EXPECT_TRUE(absl::IsDataLoss(all_of<TextEnds>(failed).front().why));
}

TEST_F(TextSessionTest, GoesOnWithoutAWorkerThatFailsBeforeItIsNeeded) {
  session_.emplace(options(2));
  (void)session_->on_join(1, join_from("h1"), 0);
  EXPECT_TRUE(session_->on_failed(worker(1), "no GPU", false).decisions().empty());
  (void)session_->on_join(2, join_from("h2"), 0);
  const auto joined = session_->on_join(3, join_from("h3"), 0);
  EXPECT_EQ(sent<TextRequest>(joined).size(), 2U) << "another one came in its place";
  gather(3);
  measure({room_of(1000), room_of(1000), room_of(5)});
  EXPECT_TRUE(session_->on_failed(worker(3), "it is full", false).decisions().empty());
  EXPECT_FALSE(session_->has_ended());
  EXPECT_TRUE(session_->on_failed(worker(2), "it is full", false).is_accepted());
  EXPECT_TRUE(session_->has_ended());
}

TEST_F(TextSessionTest, CountsAProcessThatComesAnewOnce) {
  session_.emplace(options(2));
  (void)session_->on_join(1, join_from("h1"), 0);
  EXPECT_TRUE(sent<TextRequest>(session_->on_join(2, join_from("h1"), 0)).empty());
  const auto joined = session_->on_join(3, join_from("h2"), 0);
  const auto requests = sent<TextRequest>(joined);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].first, worker(2));
}

/// It gave us up in a pause of ours, and its new connection is seen before the end of the old one.
TEST_F(TextSessionTest, AWorkerThatComesBackTooLateIsNoStranger) {
  begin();
  session_->on_own_pause(12 * kSecond, 3 * kSecond);
  JoinRequest back = join_from("h2");
  back.run = "text-1";
  const auto answer = session_->on_join(7, back, 3 * kSecond);
  const auto refused = all_of<RefuseTextWorker>(answer);
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused.front().peer, 7U);
  EXPECT_THAT(refused.front().why, HasSubstr("made another one, which has ended the text"));
  EXPECT_THAT(end_of(answer),
              AllOf(HasSubstr("w2 (cpu x1 on h2) is lost"), HasSubstr("paused for 12 s")));
  EXPECT_THAT(all_of<RefuseTextWorker>(session_->on_join(8, join_from("h1"), 0)).front().why,
              HasSubstr("the text has ended"));
  gather(3);
  measure({room_of(1000), room_of(1000), room_of(5)});
  EXPECT_THAT(all_of<RefuseTextWorker>(session_->on_join(7, join_from("h3"), 0)).front().why,
              HasSubstr("goes on without it"));
  EXPECT_FALSE(session_->has_ended()) << "it has no layers";
}

TEST_F(TextSessionTest, TurnsAwayWhoIsSilentBeforeItIsNeeded) {
  session_.emplace(options(2));
  (void)session_->on_join(7, join_from("h1"), 0);
  const auto refused = all_of<RefuseTextWorker>(session_->on_tick(10 * kSecond + 1));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused.front().peer, 7U);
  EXPECT_FALSE(session_->has_ended());
}

TEST_F(TextSessionTest, LosesOnceWhoFailsUnneededAndIsSilent) {
  session_.emplace(options(2));
  (void)session_->on_join(1, join_from("h1"), 0);
  (void)session_->on_peer_failure(worker(1), "a link broke", 0);
  EXPECT_TRUE(session_->on_tick(10 * kSecond + 1).decisions().empty());
  EXPECT_FALSE(session_->has_ended());
  (void)session_->on_join(2, join_from("h2"), 10 * kSecond);
  EXPECT_EQ(sent<TextRequest>(session_->on_join(3, join_from("h3"), 10 * kSecond)).size(), 2U);
}

TEST_F(TextSessionTest, EndsWhereAStepTakesTooLong) {
  begin();
  (void)session_->on_step(std::vector<int32_t>{1}, 0);
  uint64_t now = 0;
  for (; now <= 600 * kSecond; now += kSecond) {
    for (const size_t i : {1, 2}) (void)session_->on_heartbeat(worker(i), now);
    ASSERT_TRUE(all_of<TextEnds>(session_->on_tick(now)).empty()) << now;
  }
  for (const size_t i : {1, 2}) (void)session_->on_heartbeat(worker(i), now);
  EXPECT_THAT(end_of(session_->on_tick(now)), HasSubstr("a worker is stuck"));
}

TEST_F(TextSessionTest, NamesTheLostWorkerRatherThanWhoDoesNotReachIt) {
  begin();
  EXPECT_TRUE(session_->on_peer_failure(worker(1), "a link broke", kSecond).is_accepted());
  EXPECT_EQ(why(session_->on_peer_failure(worker(1), "", kSecond)), DropReason::kRepeated);
  EXPECT_TRUE(all_of<TextEnds>(session_->on_tick(3 * kSecond)).empty());
  EXPECT_THAT(end_of(session_->on_lost(worker(2), "gone")), HasSubstr("w2"));
  EXPECT_EQ(why(session_->on_peer_failure(worker(1), "", kSecond)), DropReason::kStale);
  begin();
  EXPECT_EQ(why(session_->on_peer_failure(worker(9), "", 0)), DropReason::kUnknown);
  (void)session_->on_peer_failure(worker(1), "a link broke", kSecond);
  EXPECT_THAT(end_of(session_->on_tick(3 * kSecond + 1)), HasSubstr("w1 (cpu x1 on h1) cannot draw "
                                                                    "text: a link broke"));
}

TEST_F(TextSessionTest, LosesAWorkerThatSaysNothing) {
  begin();
  EXPECT_TRUE(session_->on_heartbeat(worker(1), 8 * kSecond).is_accepted());
  EXPECT_TRUE(session_->on_heartbeat(worker(2), 5 * kSecond).is_accepted());
  EXPECT_TRUE(all_of<TextEnds>(session_->on_tick(15 * kSecond)).empty());
  EXPECT_THAT(end_of(session_->on_tick(15 * kSecond + 1)), HasSubstr("w2"));
  session_.emplace(options(2));
  (void)session_->on_join(1, join_from("a"), 0);
  EXPECT_TRUE(all_of<TextEnds>(session_->on_tick(20 * kSecond)).empty())
      << "others are still awaited";
}

TEST_F(TextSessionTest, SaysThatItWasPausedBeforeAWorkerWasLost) {
  begin();
  session_->on_own_pause(12 * kSecond + 1, 3 * kSecond);
  EXPECT_THAT(end_of(session_->on_lost(worker(2), "it closed its connection")),
              HasSubstr("closed its connection, after this process was paused for 12 s; draw"));
  begin();
  session_->on_own_pause(kSecond / 2, 3 * kSecond);
  EXPECT_THAT(end_of(session_->on_lost(worker(2), "gone")), Not(HasSubstr("paused")));
  begin();
  session_->on_own_pause(12 * kSecond, 3 * kSecond);
  for (const size_t i : {1, 2}) (void)session_->on_heartbeat(worker(i), 14 * kSecond);
  (void)session_->on_tick(14 * kSecond);
  EXPECT_THAT(end_of(session_->on_lost(worker(2), "gone")), Not(HasSubstr("paused")))
      << "workers have been heard of since";
}

}  // namespace
}  // namespace skein::plans
