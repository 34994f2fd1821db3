#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace skein::gpu {

/// Texts that are one token each wherever they are met. Thread-safe for those who only look.
class AddedTokens {
 public:
  /// The longest `content` that `put` takes: a place of a text is looked at as far as that.
  static constexpr size_t kBytesMax = 1024;

  AddedTokens() = default;
  /// Of equal contents the first one counts; none is empty.
  struct Added {
    std::string content;
    int32_t token = 0;
  };
  explicit AddedTokens(std::vector<Added> all);

  /// Appends the tokens of `text`, of several at one place the longest, and calls `rest` for what
  /// lies between them. Costs a few steps for each byte, however many tokens there are.
  absl::Status find(std::string_view text, std::vector<int32_t>& tokens,
                    const std::function<absl::Status(std::string_view)>& rest) const;

 private:
  /// None: null.
  const Added* longest_at(std::string_view text) const;

  std::vector<Added> all_;   // In the order of their bytes.
  std::bitset<256> firsts_;  // The bytes that they begin with.
};

}  // namespace skein::gpu
