#include "net/address.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skein::net {
namespace {

TEST(Address, TakesHostAndPortApart) {
  const auto address = parse_address("127.0.0.1:29400");
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->host, "127.0.0.1");
  EXPECT_EQ(address->port, 29400);
  EXPECT_EQ(parse_address("[::1]:1")->host, "[::1]");
  for (const char* text : {"", "host", ":1", "host:", "host:x", "host:1x", "host:65536", "host:-1",
                           "a:1,b:1", "a,b:1", "a:1 b:1", " a:1", "a b:1"}) {
    EXPECT_FALSE(parse_address(text).ok()) << text;
  }
}

TEST(Address, WhoListensOnAllAddressesIsReachedByTheKnownOne) {
  EXPECT_EQ(reachable_address("0.0.0.0:4000", "coordinator:29400"), "coordinator:4000");
  EXPECT_EQ(reachable_address("[::]:4000", "[fe80::1]:29400"), "[fe80::1]:4000");
  EXPECT_EQ(reachable_address("10.0.0.1:4000", "coordinator:29400"), "10.0.0.1:4000");
  EXPECT_EQ(reachable_address("", "coordinator:29400"), "");
  EXPECT_EQ(reachable_address("0.0.0.0:4000", ""), "0.0.0.0:4000");
}

TEST(Address, RefusesToListenBeyondLoopbackUnlessToldSo) {
  for (const char* text : {"127.0.0.1:0", "127.1.2.3:5", "localhost:0", "[::1]:0"}) {
    EXPECT_TRUE(check_listen_address(text, false).ok()) << text;
  }
  for (const char* text : {"0.0.0.0:0", "10.0.0.1:1", "[::]:1", "example:1"}) {
    const auto refused = check_listen_address(text, false);
    EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << text;
    EXPECT_THAT(std::string(refused.status().message()), testing::HasSubstr("--insecure"));
    EXPECT_TRUE(check_listen_address(text, true).ok()) << text;
  }
}

}  // namespace
}  // namespace skein::net
