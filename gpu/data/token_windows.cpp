#include "gpu/data/token_windows.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/fnv.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

/// Parts of up to so many tokens are looked at as a whole.
constexpr int64_t kWholeTokensMax = 1 << 20;
/// Longer ones are looked at in so many pieces of so many tokens: a fraction of a second on a slow
/// disk.
constexpr int64_t kPieces = 1024;
constexpr int64_t kPieceTokens = 64;

/// Tokens of a part are below it.
int64_t vocabulary_of(const TokenPart& part, int64_t model_vocab_size) {
  return std::min(part.vocab_size, model_vocab_size);
}

std::string beyond(int32_t token, const TokenPart& part, int64_t model_vocab_size) {
  if (part.vocab_size <= model_vocab_size) {
    return absl::StrCat(" is ", token, ", beyond vocab_size = ", part.vocab_size,
                        " of its manifest; prepare the data again");
  }
  return absl::StrCat(" is ", token, ", beyond model.vocab_size = ", model_vocab_size,
                      "; raise it or use other data");
}

}  // namespace

TokenWindows::TokenWindows(std::vector<TokenPart> parts, int64_t seq_len, int64_t vocab_size)
    : parts_(std::move(parts)), seq_len_(seq_len), vocab_size_(vocab_size), ends_{0} {
  for (const TokenPart& part : parts_) {
    // A window's last target is the first token behind it.
    const int64_t windows = part.count <= seq_len ? 0 : (part.count - 1) / seq_len;
    ends_.push_back(ends_.back() + windows);
  }
}

int64_t TokenWindows::tokens() const {
  int64_t sum = 0;
  for (const TokenPart& part : parts_) sum += part.count;
  return sum;
}

uint64_t TokenWindows::bytes() const {
  uint64_t sum = 0;
  for (const TokenPart& part : parts_) sum += static_cast<uint64_t>(part.count * part.array.width);
  return sum;
}

absl::Status TokenWindows::copy(const TokenPart& part, int64_t first,
                                std::span<int32_t> out) const {
  const int64_t vocab_size = vocabulary_of(part, vocab_size_);
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t at = first + static_cast<int64_t>(i);
    out[i] = part.array.at(at);
    if (out[i] >= 0 && out[i] < vocab_size) continue;
    return absl::DataLossError(
        absl::StrCat(part.path, ": token ", at, beyond(out[i], part, vocab_size_)));
  }
  return absl::OkStatus();
}

absl::Status TokenWindows::read(int64_t index, std::span<int32_t> tokens,
                                std::span<int32_t> targets) const {
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
  const TokenPart& part = parts_[static_cast<size_t>(end - ends_.begin()) - 1];
  SKEIN_RETURN_IF_ERROR(part.array.file->check_length());
  const int64_t first = part.begin + (index - *(end - 1)) * seq_len_;
  SKEIN_RETURN_IF_ERROR(copy(part, first, tokens));
  return copy(part, first + 1, targets);
}

void TokenWindows::add_tokens_to_digest(uint64_t& digest) const {
  for (const TokenPart& part : parts_) {
    for (int64_t i = part.begin; i < part.begin + part.count; ++i) {
      digest = plans::add_to_fnv(digest, static_cast<uint64_t>(part.array.at(i)));
    }
  }
}

absl::Status TokenWindows::add_to_digest(uint64_t& digest) const {
  const auto add = [&digest](uint64_t value) { digest = plans::add_to_fnv(digest, value); };
  add(parts_.size());
  for (const TokenPart& part : parts_) {
    add(static_cast<uint64_t>(part.count));  // Windows end with the part.
    const bool is_whole = part.count <= kWholeTokensMax;
    const int64_t pieces = is_whole ? 1 : kPieces;
    const int64_t vocab_size = vocabulary_of(part, vocab_size_);
    const int64_t length = is_whole ? part.count : kPieceTokens;
    for (int64_t piece = 0; piece < pieces; ++piece) {
      // The first one begins with the part, the last one ends with it.
      const int64_t first = pieces == 1 ? 0 : (part.count - length) / (pieces - 1) * piece;
      const int64_t begin = piece == pieces - 1 ? part.count - length : first;
      for (int64_t i = begin; i < begin + length; ++i) {
        const int32_t token = part.array.at(part.begin + i);
        if (token < 0 || token >= vocab_size) {
          return absl::InvalidArgumentError(absl::StrCat(part.path, ": token ", part.begin + i,
                                                         " of the data",
                                                         beyond(token, part, vocab_size_)));
        }
        add(static_cast<uint64_t>(token));
      }
    }
  }
  return absl::OkStatus();
}

bool TokenWindows::is_unchanged() const {
  return std::all_of(parts_.begin(), parts_.end(),
                     [](const TokenPart& part) { return part.array.file->is_unchanged(); });
}

}  // namespace skein::gpu
