#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gpu/data/token_file.hpp"

namespace skein::gpu {

/// Tokens [begin, begin + count) of a file.
struct TokenPart {
  std::string path;
  TokenArray array;
  int64_t begin = 0;
  int64_t count = 0;
  int64_t vocab_size = INT32_MAX;  // Its tokens are below it, by a manifest.
};

/// Parts of files, one behind the other, cut into windows of T tokens and the target behind the
/// last one. No window reaches into the next part; what fills none is left out.
class TokenWindows {
 public:
  TokenWindows(std::vector<TokenPart> parts, int64_t seq_len, int64_t vocab_size);

  int64_t count() const { return ends_.back(); }  // Windows.
  int64_t tokens() const;
  int64_t parts() const { return static_cast<int64_t>(parts_.size()); }
  uint64_t bytes() const;

  /// Copies tokens [T] and targets [T] of window `index`; either span may be empty.
  /// DataLoss   a token is beyond the vocabulary (the model's, or that of a manifest), or the file
  ///            has become shorter: reading on would end the process. The message names both.
  absl::Status read(int64_t index, std::span<int32_t> tokens, std::span<int32_t> targets) const;

  /// Adds to a digest (FNV-1a) how many parts there are, their sizes, and their tokens: all of
  /// short parts, of long ones pieces spread over them.
  /// InvalidArgument   one of these is beyond the vocabulary.
  absl::Status add_to_digest(uint64_t& digest) const;
  /// Adds all tokens, and nothing of where parts end.
  void add_tokens_to_digest(uint64_t& digest) const;
  bool is_unchanged() const;

 private:
  absl::Status copy(const TokenPart& part, int64_t first, std::span<int32_t> out) const;

  std::vector<TokenPart> parts_;
  int64_t seq_len_, vocab_size_;
  std::vector<int64_t> ends_;  // Windows up to the end of each part, after a 0.
};

}  // namespace skein::gpu
