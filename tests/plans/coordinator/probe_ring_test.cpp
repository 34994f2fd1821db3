#include "plans/coordinator/probe_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "plans/coordinator/measurements.hpp"

namespace skein::plans {
namespace {

std::map<WorkerId, Member> members_of(uint32_t count, uint32_t hosts) {
  std::map<WorkerId, Member> members;
  for (uint32_t id = 1; id <= count; ++id) {
    members[{id}].id = {id};
    members[{id}].request.host_name = absl::StrCat("host-", id % hosts);
  }
  return members;
}

bool contains(const std::vector<WorkerId>& all, WorkerId one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

TEST(ProbeRing, BothEndsMeasureALink) {
  for (uint32_t count = 1; count <= 70; ++count) {
    const auto members = members_of(count, 7);
    const ProbeRing ring(members);
    for (const auto& [id, member] : members) {
      const std::vector<WorkerId> peers = ring.peers_of(id);
      EXPECT_FALSE(contains(peers, id));
      for (WorkerId peer : peers) EXPECT_TRUE(contains(ring.peers_of(peer), id)) << count;
      if (count >= 16) continue;
      EXPECT_EQ(peers.size(), count - 1) << "all links of a few";
    }
  }
}

TEST(ProbeRing, AWorkerMeasuresFewLinksOfManyWorkers) {
  size_t links = 0;
  const auto members = members_of(4000, 500);
  const ProbeRing ring(members);
  for (const auto& [id, member] : members) links += ring.peers_of(id).size();
  EXPECT_LE(links, 4000u * 24) << "two at each of some twelve distances";
  const auto few = members_of(1000, 125);
  EXPECT_GE(ProbeRing(few).peers_of({1}).size(), 8u);
}

TEST(ProbeRing, EveryHostWithTwoWorkersHasALinkInsideItAndOneToAnother) {
  const auto members = members_of(300, 40);
  const ProbeRing ring(members);
  std::set<std::string> inside, outside;
  for (const auto& [id, member] : members) {
    for (WorkerId peer : ring.peers_of(id)) {
      const std::string& host = members.at(peer).request.host_name;
      (host == member.request.host_name ? inside : outside).insert(member.request.host_name);
    }
  }
  EXPECT_EQ(inside.size(), 40u);
  EXPECT_EQ(outside.size(), 40u);
}

TEST(ProbeRing, WhoIsAskedAfterALossHasPeersWhoKnowOfIt) {
  std::map<WorkerId, Member> members = members_of(40, 5);
  Measurements measurements{JobSpec()};
  measurements.tell_peers(members);
  EXPECT_EQ(measurements.request(members).size(), 5u) << "one of each host, and all are told";
  measurements.forget({5});
  members.erase({5});
  const CoordinatorDecisions decisions = measurements.request(members);
  std::map<WorkerId, std::vector<WorkerId>> told;
  std::vector<WorkerId> asked;
  for (const CoordinatorDecision& decision : decisions) {
    const auto& request = std::get<RequestProfile>(decision);
    if (request.rows.empty()) {
      told[request.worker] = request.peers;
      continue;
    }
    asked.push_back(request.worker);
    for (WorkerId peer : request.peers) EXPECT_TRUE(contains(told[peer], request.worker));
  }
  EXPECT_EQ(asked.size(), 1u) << "the next one of the host";
}

TEST(ProbeRing, TheSameMembersMeasureTheSameLinks) {
  const auto members = members_of(100, 10);
  for (const auto& [id, member] : members) {
    EXPECT_EQ(ProbeRing(members).peers_of(id), ProbeRing(members).peers_of(id));
  }
}

}  // namespace
}  // namespace skein::plans
