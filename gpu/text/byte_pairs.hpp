#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace skein::gpu {

/// Byte pair encoding (Sennrich et al., ACL'16) of bytes: what is there is merged pair by pair, the
/// earliest learned pair first, of equal ones the leftmost.
class BytePairs {
 public:
  BytePairs();

  /// A token and the bytes that it stands for; of several with the same bytes the last one counts.
  void add_token(std::string bytes, int32_t token) { tokens_[std::move(bytes)] = token; }
  /// The next pair that was learned. InvalidArgument if one of the two, or both together, is no
  /// token.
  absl::Status add_merge(const std::string& left, const std::string& right);
  /// A piece that is a token as a whole is never cut (`ignore_merges`).
  void keep_whole_tokens() { keeps_whole_ = true; }

  /// Appends the tokens of one piece of text. InvalidArgument if a byte has no token.
  absl::Status encode(std::string_view piece, std::vector<int32_t>& tokens) const;

 private:
  struct Merge {
    int32_t rank = 0;
    int32_t token = 0;
  };
  static uint64_t key(int32_t left, int32_t right) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) |
           static_cast<uint32_t>(right);
  }

  std::unordered_map<std::string, int32_t> tokens_;  // By bytes; looked up, never iterated.
  std::unordered_map<uint64_t, Merge> merges_;       // By `key`; looked up, never iterated.
  bool keeps_whole_ = false;
};

}  // namespace skein::gpu
