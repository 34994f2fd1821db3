#include "cli/verbs/model_text.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace skein::cli {
namespace {

TEST(ModelText, BytesNeedNoFolder) {
  ModelText text = ModelText::bytes();
  EXPECT_FALSE(text.is_numbers());
  EXPECT_EQ(text.encode("a\xff").value(), (std::vector<int32_t>{'a', 255}));
  EXPECT_EQ(text.byte_count(7), 1);
  EXPECT_EQ(text.add('b'), "b");
}

}  // namespace
}  // namespace skein::cli
