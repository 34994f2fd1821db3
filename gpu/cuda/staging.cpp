#include "gpu/cuda/staging.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

constexpr int64_t kAlignment = 64;
/// Small enough for a machine with many workers, large enough for most micro-batches' activations.
constexpr int64_t kBlockBytes = 16 << 20;

}  // namespace

absl::StatusOr<void*> Staging::take(int64_t bytes) {
  const int64_t wanted = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  while (block_ < blocks_.size() && blocks_[block_].bytes() - next_ < wanted) {
    ++block_;
    next_ = 0;
  }
  if (block_ == blocks_.size()) {
    SKEIN_ASSIGN_OR_RETURN(Buffer block, allocate_(std::max(wanted, kBlockBytes)));
    blocks_.push_back(std::move(block));
  }
  void* memory = static_cast<unsigned char*>(blocks_[block_].data()) + next_;
  next_ += wanted;
  return memory;
}

void Staging::reset() {
  block_ = 0;
  next_ = 0;
}

}  // namespace skein::gpu
