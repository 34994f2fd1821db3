#include "net/local_address.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/address.hpp"

namespace skein::net {
namespace {

TEST(LocalAddress, OfTheWayToAPeerOnThisMachineIsLoopback) {
  for (const char* peer : {"127.0.0.1:1", "localhost:29400", "127.1.2.3:5"}) {
    const auto host = local_address_to(peer);
    ASSERT_TRUE(host.ok()) << peer << ": " << host.status();
    EXPECT_TRUE(is_loopback(*host)) << *host;
  }
}

TEST(LocalAddress, OfIpv6StandsInBracketsToBePutBeforeAPort) {
  const auto host = local_address_to("[::1]:29400");
  if (!host.ok()) GTEST_SKIP() << "no IPv6 here: " << host.status();
  EXPECT_EQ(*host, "[::1]");
  EXPECT_TRUE(parse_address(*host + ":0").ok());
}

TEST(LocalAddress, OfANameThatIsNotKnownYetIsUnavailable) {
  const auto host = local_address_to("nobody.invalid:29400");  // A reserved top-level domain.
  EXPECT_TRUE(absl::IsUnavailable(host.status()));
  EXPECT_THAT(std::string(host.status().message()), testing::HasSubstr("nobody.invalid"));
}

TEST(LocalAddress, NeedsAnAddressWithAPort) {
  EXPECT_TRUE(absl::IsInvalidArgument(local_address_to("localhost").status()));
}

TEST(LocalAddress, IsMissedOnceTheMachineHasItNoMore) {
  EXPECT_TRUE(may_be_local("127.0.0.1"));
  EXPECT_FALSE(may_be_local("192.0.2.1"));  // For documentation only: no machine has it.
  EXPECT_FALSE(may_be_local("[2001:db8::1]"));
  EXPECT_TRUE(may_be_local("nobody.invalid"));  // Nobody was asked.
}

}  // namespace
}  // namespace skein::net
