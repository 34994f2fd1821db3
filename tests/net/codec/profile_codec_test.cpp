#include "net/codec/profile_codec.hpp"

#include <capnp/message.h>
#include <gtest/gtest.h>

#include <limits>

namespace skein::net {
namespace {

plans::Profile example() {
  plans::Profile profile;
  profile.source = "measured";
  profile.device = "cpu x1";
  profile.rows = {1, 4};
  profile.layers = {{"embedding", {{1, 2, 3}, {4, 5, 6}}, 100, 200, 300},
                    {"head", {{7, 8, 9}, {10, 11, 12}}, 0, 20, 300}};
  profile.state_factor = 3;
  profile.activation_factor = 0.5;
  profile.update_us_per_byte = 0.25;
  profile.tied_bytes = 300;
  return profile;
}

TEST(ProfileCodec, RoundTrips) {
  capnp::MallocMessageBuilder message;
  auto builder = message.initRoot<schema::Profile>();
  encode_profile(example(), builder);
  const auto decoded = decode_profile(builder.asReader());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, example());
}

TEST(ProfileCodec, RefusesTimesThatDoNotFitTheRows) {
  capnp::MallocMessageBuilder message;
  auto builder = message.initRoot<schema::Profile>();
  encode_profile(example(), builder);
  builder.initRows(3);
  EXPECT_FALSE(decode_profile(builder.asReader()).ok());
}

TEST(ProfileCodec, RefusesNumbersThatAreNone) {
  plans::Profile profile = example();
  profile.layers[1].at[0].forward_us = std::numeric_limits<double>::quiet_NaN();
  capnp::MallocMessageBuilder message;
  auto builder = message.initRoot<schema::Profile>();
  encode_profile(profile, builder);
  EXPECT_FALSE(decode_profile(builder.asReader()).ok());
}

}  // namespace
}  // namespace skein::net
