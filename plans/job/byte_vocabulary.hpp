#pragma once

#include <cstdint>

namespace skein::plans {

/// Tokens that a model of bytes has at most: a few more than bytes may be special ones. One with
/// more has some that stand for more than a byte.
constexpr int64_t kByteVocabularyMax = 512;

}  // namespace skein::plans
