#include "net/reduce/sparse_frame.hpp"

#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"

namespace skein::net {
namespace {

constexpr size_t kHeadWords = 2;
constexpr uint32_t kRefused = UINT32_MAX;  // In the place of k, which is less than 2^32 - 1.

absl::Status check_frame(std::span<const uint32_t> frame, size_t floats) {
  if (frame.size() < kHeadWords || frame.size() % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sparse frame of ", frame.size(), " words cannot be whole"));
  }
  const size_t k = (frame.size() - kHeadWords) / 2;
  if (frame[0] == floats && frame[1] == kRefused) {
    return absl::InvalidArgumentError(
        "a member has gradients that are not finite; use a lower optimizer.lr, or sync.reducer = "
        "\"sum\" to train on");
  }
  if (frame[0] != floats || frame[1] != k) {
    return absl::InvalidArgumentError(absl::StrCat("a member sent ", frame[1], " of ", frame[0],
                                                   " values instead of ", k, " of ", floats,
                                                   "; give all members the same sync.density"));
  }
  const auto indices = frame.subspan(kHeadWords, k);
  const auto values = frame.subspan(kHeadWords + k, k);
  for (size_t i = 0; i < k; ++i) {
    if (indices[i] >= floats || (i > 0 && indices[i] <= indices[i - 1])) {
      return absl::InvalidArgumentError(absl::StrCat("index ", indices[i], " at place ", i,
                                                     " of a sparse frame of ", floats,
                                                     " floats is out of order"));
    }
    if (!std::isfinite(std::bit_cast<float>(values[i]))) {
      return absl::InvalidArgumentError(
          absl::StrCat("the value at index ", indices[i], " of a sparse frame is not finite"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

size_t sparse_frame_words(size_t k) { return kHeadWords + 2 * k; }

void write_sparse_frame(std::span<const float> values, std::span<const uint32_t> indices,
                        std::span<uint32_t> frame) {
  const size_t k = indices.size();
  SKEIN_CHECK(frame.size() == sparse_frame_words(k)) << frame.size() << " words for " << k;
  frame[0] = static_cast<uint32_t>(values.size());
  frame[1] = static_cast<uint32_t>(k);
  for (size_t i = 0; i < k; ++i) {
    frame[kHeadWords + i] = indices[i];
    frame[kHeadWords + k + i] = std::bit_cast<uint32_t>(values[indices[i]]);
  }
}

void write_refusal(size_t floats, std::span<uint32_t> frame) {
  for (uint32_t& word : frame) word = 0;
  frame[0] = static_cast<uint32_t>(floats);
  frame[1] = kRefused;
}

absl::Status add_sparse_frame(std::span<const uint32_t> frame, std::span<float> sum) {
  absl::Status status = check_frame(frame, sum.size());
  if (!status.ok()) return status;
  const size_t k = (frame.size() - kHeadWords) / 2;
  for (size_t i = 0; i < k; ++i) {
    sum[frame[kHeadWords + i]] += std::bit_cast<float>(frame[kHeadWords + k + i]);
  }
  return absl::OkStatus();
}

}  // namespace skein::net
