#include "net/data/tensor_stream.hpp"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"

namespace skein::net {
namespace {

constexpr size_t kAlignment = 64;
/// Completed tensors that are remembered, to tell a repeat from a new one: those of two steps of a
/// thousand micro-batches.
constexpr size_t kCompletedMax = 2048;

}  // namespace

void FreeAligned::operator()(float* memory) const { std::free(memory); }

absl::Status TensorStream::check(const Rows& rows) const {
  const bool inside =
      rows.count > 0 && rows.begin >= spec_.row_begin &&
      uint64_t{rows.begin} + rows.count <= uint64_t{spec_.row_begin} + spec_.row_count;
  const uint64_t bytes = uint64_t{rows.count} * spec_.row_floats * sizeof(float);
  if (inside && rows.bytes == bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a tensor of rows ", rows.begin, "+", rows.count, " and ", rows.bytes,
                   " bytes does not fit replica ", spec_.receiver, ", which takes rows ",
                   spec_.row_begin, "+", spec_.row_count, " of ", spec_.row_floats, " floats"));
}

bool TensorStream::is_repeat(const Rows& rows) const {
  if (completed_.contains(rows.key)) return true;
  const auto partial = partials_.find(rows.key);
  return partial != partials_.end() && partial->second.begins.contains(rows.begin);
}

bool TensorStream::has_space(const Rows& rows) const {
  if (partials_.contains(rows.key)) return true;
  std::lock_guard lock(mutex_);
  return partials_.size() + held_ < spec_.tensors_max;
}

std::span<float> TensorStream::reserve(const Rows& rows) {
  Partial& partial = partials_[rows.key];
  if (!partial.memory) {
    partial.memory = take_memory();
    partial.rows_missing = spec_.row_count;
  }
  partial.begins.insert(rows.begin);
  const size_t offset = size_t{rows.begin - spec_.row_begin} * spec_.row_floats;
  return {partial.memory.get() + offset, size_t{rows.count} * spec_.row_floats};
}

void TensorStream::arrived(const Rows& rows) {
  auto found = partials_.find(rows.key);
  if (found == partials_.end()) return;
  Partial& partial = found->second;
  partial.rows_missing -= std::min(rows.count, partial.rows_missing);
  if (partial.rows_missing > 0) return;
  float* memory = partial.memory.release();
  partials_.erase(found);
  completed_[rows.key] = 0;
  if (completed_.size() > kCompletedMax) completed_.erase(completed_.begin());
  {
    std::lock_guard lock(mutex_);
    ++held_;
  }
  const size_t floats = size_t{spec_.row_count} * spec_.row_floats;
  auto view = std::make_unique<std::span<float>>(memory, floats);
  TensorHandle handle(view.release(), [stream = shared_from_this()](std::span<float>* raw) {
    const std::unique_ptr<std::span<float>> owned(raw);
    stream->give_back(AlignedFloats(owned->data()));
  });
  spec_.on_tensor(rows.key, std::move(handle));
}

AlignedFloats TensorStream::take_memory() {
  {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      AlignedFloats memory = std::move(free_.back());
      free_.pop_back();
      return memory;
    }
  }
  const size_t bytes = size_t{spec_.row_count} * spec_.row_floats * sizeof(float);
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  AlignedFloats memory(static_cast<float*>(std::aligned_alloc(kAlignment, rounded)));
  SKEIN_CHECK(memory != nullptr) << "out of memory for a tensor of " << bytes << " bytes";
  return memory;
}

void TensorStream::give_back(AlignedFloats memory) {
  {
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(memory));
    --held_;
  }
  on_space_();
}

}  // namespace skein::net
