#include "net/data/cut_links.hpp"

#include <gtest/gtest.h>

namespace skein::net {
namespace {

TEST(CutLinks, RefuseOnePeerForTheirTime) {
  CutLinks links;
  links.cut("a", 1.5, 1'000'000);
  for (uint64_t now_us : {1'000'000, 2'499'999}) EXPECT_TRUE(links.is_cut("a", now_us));
  for (uint64_t now_us : {2'500'000, 9'000'000}) EXPECT_FALSE(links.is_cut("a", now_us));
  EXPECT_FALSE(links.is_cut("b", 1'000'000));
}

TEST(CutLinks, ZeroSecondsAreForEver) {
  CutLinks links;
  links.cut("a", 0, 7);
  for (uint64_t now_us : {uint64_t{7}, ~uint64_t{0}}) EXPECT_TRUE(links.is_cut("a", now_us));
}

TEST(CutLinks, TheLatestWordCounts) {
  CutLinks links;
  links.cut("a", 0, 0);
  links.cut("a", 1, 0);
  EXPECT_FALSE(links.is_cut("a", 1'000'000));
  links.cut("a", 1e300, 0);
  EXPECT_TRUE(links.is_cut("a", 1'000'000'000'000));
}

}  // namespace
}  // namespace skein::net
