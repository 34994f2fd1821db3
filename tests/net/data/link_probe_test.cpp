#include "net/data/link_probe.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace skein::net {
namespace {

constexpr std::chrono::seconds kProbePatience{10};

TEST(LinkProbe, MeasuresBothDirectionsBetweenTwoPlanes) {
  const auto loop = EventLoop::start().value();
  const auto plane_a = DataPlane::start(*loop, {}).value();
  const auto plane_b = DataPlane::start(*loop, {}).value();
  const plans::WorkerId a{1};
  const plans::WorkerId b{2};
  const std::map<plans::WorkerId, std::string> addresses = {{a, plane_a->address()},
                                                            {b, plane_b->address()}};
  const auto probe_a = LinkProbe::open(*plane_a, a, addresses);
  const auto probe_b = LinkProbe::open(*plane_b, b, addresses);
  for (const auto& speed :
       {probe_a->measure(b, kProbePatience), probe_b->measure(a, kProbePatience),
        probe_a->measure(b, kProbePatience)}) {
    ASSERT_TRUE(speed.ok()) << speed.status();
    EXPECT_GT(speed->bytes_per_second, 0);
    EXPECT_GT(speed->latency_us, 0);
  }
  for (DataPlane* plane : {plane_a.get(), plane_b.get()}) plane->close_before(7);
  for (const auto& speed :
       {probe_a->measure(b, kProbePatience), probe_b->measure(a, kProbePatience)}) {
    EXPECT_TRUE(speed.ok()) << "after a change of the plan: " << speed.status();
  }
}

TEST(LinkProbe, WhoDoesNotAnswerIsWaitedForNoLongerThanAsked) {
  const auto loop = EventLoop::start().value();
  const auto plane_a = DataPlane::start(*loop, {}).value();
  auto plane_b = DataPlane::start(*loop, {}).value();
  const auto probe_a =
      LinkProbe::open(*plane_a, {1}, {{{1}, plane_a->address()}, {{2}, plane_b->address()}});
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(probe_a->measure({2}, std::chrono::milliseconds(200)).status()))
      << "it has not opened its streams";
  plane_b.reset();
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(probe_a->measure({2}, std::chrono::milliseconds(200)).status()))
      << "it has gone";
}

}  // namespace
}  // namespace skein::net
