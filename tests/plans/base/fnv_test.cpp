#include "plans/base/fnv.hpp"

#include <gtest/gtest.h>

#include <string_view>

namespace skein::plans {
namespace {

/// The digests that its authors publish: runs and data of earlier versions are known by them.
TEST(Fnv, GivesThePublishedDigests) {
  const auto digest_of = [](std::string_view text) {
    uint64_t digest = kFnvOffset;
    for (const char each : text) digest = add_to_fnv(digest, static_cast<unsigned char>(each));
    return digest;
  };
  EXPECT_EQ(digest_of(""), 0xcbf29ce484222325);
  EXPECT_EQ(digest_of("a"), 0xaf63dc4c8601ec8c);
  EXPECT_EQ(digest_of("foobar"), 0x85944171f73967e8);
}

}  // namespace
}  // namespace skein::plans
