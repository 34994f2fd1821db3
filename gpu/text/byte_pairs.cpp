#include "gpu/text/byte_pairs.hpp"

#include <queue>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/text/byte_alphabet.hpp"

namespace skein::gpu {
namespace {

/// A part of a piece, linked to its neighbours; one that was merged away has the token -1.
struct Part {
  int32_t token = 0;
  int64_t previous = -1;
  int64_t next = -1;
};

/// A pair that may be merged: by rank, then from left to right.
struct Candidate {
  int32_t rank = 0;
  int64_t left = 0;
  int32_t left_token = 0, right_token = 0;
  int32_t merged = 0;
  bool operator>(const Candidate& other) const {
    return std::tie(rank, left) > std::tie(other.rank, other.left);
  }
};

}  // namespace

BytePairs::BytePairs() = default;

absl::Status BytePairs::add_merge(const std::string& left, const std::string& right) {
  for (const std::string& each : {left, right, left + right}) {
    if (tokens_.contains(each)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("merge ", merges_.size(), " (", written_of_bytes(left), " ",
                     written_of_bytes(right), "): ", written_of_bytes(each), " is no token"));
  }
  const auto rank = static_cast<int32_t>(merges_.size());
  merges_.insert_or_assign(key(tokens_.at(left), tokens_.at(right)),
                           Merge{rank, tokens_.at(left + right)});
  return absl::OkStatus();
}

absl::Status BytePairs::encode(std::string_view piece, std::vector<int32_t>& tokens) const {
  if (piece.empty()) return absl::OkStatus();
  if (keeps_whole_) {
    const auto whole = tokens_.find(std::string(piece));
    if (whole != tokens_.end()) {
      tokens.push_back(whole->second);
      return absl::OkStatus();
    }
  }
  const auto count = static_cast<int64_t>(piece.size());
  std::vector<Part> parts(piece.size());
  for (int64_t i = 0; i < count; ++i) {
    const auto found = tokens_.find(std::string(1, piece[static_cast<size_t>(i)]));
    if (found == tokens_.end()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("the tokenizer has no token for the byte 0x%02x",
                          static_cast<unsigned char>(piece[static_cast<size_t>(i)])));
    }
    parts[static_cast<size_t>(i)] = {found->second, i - 1, i + 1 < count ? i + 1 : -1};
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto at = [&parts](int64_t i) -> Part& { return parts[static_cast<size_t>(i)]; };
  const auto consider = [&](int64_t left) {
    if (left < 0 || at(left).next < 0) return;
    const int32_t a = at(left).token, b = at(at(left).next).token;
    const auto found = merges_.find(key(a, b));
    if (found == merges_.end()) return;
    candidates.push({found->second.rank, left, a, b, found->second.token});
  };
  for (int64_t i = 0; i + 1 < count; ++i) consider(i);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Part& left = at(best.left);
    // Either of the two may be part of another one by now.
    if (left.token != best.left_token || left.next < 0) continue;
    Part& right = at(left.next);
    if (right.token != best.right_token) continue;
    left.token = best.merged;
    left.next = right.next;
    right.token = -1;
    if (left.next >= 0) at(left.next).previous = best.left;
    consider(left.previous);
    consider(best.left);
  }
  for (int64_t i = 0; i >= 0; i = at(i).next) tokens.push_back(at(i).token);
  return absl::OkStatus();
}

}  // namespace skein::gpu
