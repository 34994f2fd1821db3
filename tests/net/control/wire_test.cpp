#include "net/control/wire.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "net/codec/envelope.hpp"
#include "net/schema/tensor.capnp.h"
#include "plans/base/rng.hpp"

namespace skein::net {
namespace {

ControlMessage request() {
  return encode({.generation = 3, .term = 2, .sender = 1},
                ProfileRequest{{1, 4}, {{{1}, ""}, {{7}, "127.0.0.1:1"}}});
}

TEST(Wire, RoundTrips) {
  const ControlMessage message = request();
  const auto parsed = ControlMessage::parse(message.bytes());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const auto envelope = **parsed;
  EXPECT_EQ(envelope.getGeneration(), 3u);
  ASSERT_TRUE(envelope.getBody().isProfileRequest());
  EXPECT_EQ(envelope.getBody().getProfileRequest().getPeers()[1].getWorker(), 7u);
}

TEST(Wire, RefusesEveryTruncation) {
  const ControlMessage message = request();
  for (size_t length = 0; length < message.bytes().size(); ++length) {
    EXPECT_FALSE(ControlMessage::parse(message.bytes().first(length)).ok()) << length;
  }
}

TEST(Wire, RefusesWhatIsTooLarge) {
  const std::vector<std::byte> large(kControlBytesMax + 8);
  EXPECT_FALSE(ControlMessage::parse(large).ok());
}

TEST(Wire, NeverThrowsWhateverTheBytes) {
  const ControlMessage message = request();
  plans::Rng rng(11);
  int accepted = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    std::vector<std::byte> bytes(message.bytes().begin(), message.bytes().end());
    for (uint64_t flips = 1 + rng.below(4); flips > 0; --flips) {
      bytes[rng.below(bytes.size())] = static_cast<std::byte>(rng.below(256));
    }
    accepted += ControlMessage::parse(bytes).ok() ? 1 : 0;
    (void)Wire<schema::TensorHeader>::parse(bytes);
  }
  EXPECT_GT(accepted, 0) << "nothing reached the fields";
}

}  // namespace
}  // namespace skein::net
