#include "actors/coordinator/worker_links.hpp"

#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "tests/actors/recording_link.hpp"

namespace skein::actors {
namespace {

struct WorkerLinksTest : testing::Test {
  RecordingLink& open(plans::PeerNumber number, net::schema::Role role, uint64_t now_us = 0) {
    auto link = std::make_shared<RecordingLink>();
    opened[number] = link;
    links.open(number, link, role, now_us);
    return *link;
  }

  std::map<plans::PeerNumber, std::shared_ptr<RecordingLink>> opened;
  WorkerLinks links;
};

TEST_F(WorkerLinksTest, OfTooManyStrangersTheOldestMakesWayAndNoMemberDoes) {
  constexpr plans::PeerNumber kMember = 1, kFirst = 2;
  open(kMember, net::schema::Role::WORKER);
  links.bind(kMember, plans::WorkerId{7});
  for (size_t i = 0; i < kStrangersMax; ++i) open(kFirst + i, net::schema::Role::WORKER);
  EXPECT_FALSE(opened[kFirst]->closed()) << "so many may be here";

  const plans::PeerNumber newcomer = kFirst + kStrangersMax;
  open(newcomer, net::schema::Role::WORKER);

  EXPECT_TRUE(opened[kFirst]->closed());
  EXPECT_EQ(links.find(kFirst), nullptr);
  for (plans::PeerNumber other = kFirst + 1; other <= newcomer; ++other) {
    EXPECT_FALSE(opened[other]->closed()) << other;
  }
  EXPECT_NE(links.find(newcomer), nullptr);
  EXPECT_FALSE(opened[kMember]->closed());
  EXPECT_EQ(links.workers().at(plans::WorkerId{7}), kMember);
}

TEST_F(WorkerLinksTest, AWorkerThatDoesNotJoinIsClosedAndAViewerMayBeSilent) {
  constexpr uint64_t kLongUs = 60'000'000;
  const RecordingLink& late = open(1, net::schema::Role::WORKER);
  const RecordingLink& viewer = open(2, net::schema::Role::VIEWER);
  const RecordingLink& fresh = open(3, net::schema::Role::WORKER, kLongUs);
  links.close_silent(kLongUs);
  EXPECT_TRUE(late.closed());
  EXPECT_FALSE(viewer.closed());
  EXPECT_FALSE(fresh.closed());
}

}  // namespace
}  // namespace skein::actors
