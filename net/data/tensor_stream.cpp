#include "net/data/tensor_stream.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::net {
namespace {

constexpr size_t kAlignment = 64;
/// Completed tensors that are remembered, to tell a repeat from a new one: those of two steps of a
/// thousand micro-batches.
constexpr size_t kCompletedMax = 2048;

}  // namespace

void FreeAligned::operator()(float* memory) const { std::free(memory); }

TensorStream::TensorStream(TensorInbox::StreamSpec spec, std::function<void()> on_space)
    : spec_(std::move(spec)), on_space_(std::move(on_space)) {
  if (spec_.parts.empty()) spec_.parts = {{spec_.row_begin, spec_.row_count}};
  uint64_t next = spec_.row_begin;
  for (const auto& [begin, count] : spec_.parts) {
    SKEIN_CHECK(begin == next && count > 0) << "a part of rows " << begin << "+" << count;
    next += count;
  }
  SKEIN_CHECK(next == uint64_t{spec_.row_begin} + spec_.row_count) << "parts up to row " << next;
}

absl::Status TensorStream::check(const Rows& rows) const {
  if (spec_.sender && rows.sender != *spec_.sender) {
    return absl::InvalidArgumentError(absl::StrCat("w", rows.sender.value, " sends what only w",
                                                   spec_.sender->value, " may send"));
  }
  const bool is_part = std::find(spec_.parts.begin(), spec_.parts.end(),
                                 std::pair(rows.begin, rows.count)) != spec_.parts.end();
  const uint64_t number_bytes = rows.is_bfloat16 ? sizeof(uint16_t) : sizeof(float);
  const uint64_t bytes = uint64_t{rows.count} * spec_.row_floats * number_bytes;
  if (is_part && rows.bytes == bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a tensor of rows ", rows.begin, "+", rows.count, " and ", rows.bytes,
      " bytes is none that replica ", spec_.receiver, " takes: it has rows ", spec_.row_begin, "+",
      spec_.row_count, " in ", spec_.parts.size(), " parts, of ", spec_.row_floats, " floats"));
}

bool TensorStream::is_repeat(const Rows& rows) const {
  if (completed_.contains(rows.key)) return true;
  const auto partial = partials_.find(rows.key);
  return partial != partials_.end() && partial->second.there.contains(rows.begin);
}

bool TensorStream::is_being_read(const Rows& rows) const {
  const auto partial = partials_.find(rows.key);
  return partial != partials_.end() && partial->second.reading.contains(rows.begin);
}

bool TensorStream::has_space(const Rows& rows) const {
  if (partials_.contains(rows.key)) return !is_being_read(rows);
  std::lock_guard lock(mutex_);
  return partials_.size() + held_ < spec_.tensors_max;
}

absl::StatusOr<std::span<float>> TensorStream::reserve(const Rows& rows) {
  const auto found = partials_.find(rows.key);
  AlignedFloats memory;
  if (found == partials_.end()) {
    SKEIN_ASSIGN_OR_RETURN(memory, take_memory());
  }
  Partial& partial = found == partials_.end() ? partials_[rows.key] : found->second;
  if (memory) partial.memory = std::move(memory);
  partial.reading.insert(rows.begin);
  const size_t offset = size_t{rows.begin - spec_.row_begin} * spec_.row_floats;
  return std::span(partial.memory.get() + offset, size_t{rows.count} * spec_.row_floats);
}

void TensorStream::arrived(const Rows& rows) {
  auto found = partials_.find(rows.key);
  if (found == partials_.end()) return;
  Partial& partial = found->second;
  if (partial.reading.erase(rows.begin) == 0) return;
  partial.there.insert(rows.begin);
  if (partial.there.size() < spec_.parts.size()) return;
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

void TensorStream::abandon(const Rows& rows) {
  const auto found = partials_.find(rows.key);
  if (found == partials_.end() || found->second.reading.erase(rows.begin) == 0) return;
  const bool is_empty = found->second.reading.empty() && found->second.there.empty();
  if (is_empty) {
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(found->second.memory));
    partials_.erase(found);
  }
  on_space_();
}

absl::StatusOr<AlignedFloats> TensorStream::take_memory() {
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
  if (memory != nullptr) return memory;
  return absl::ResourceExhaustedError(
      absl::StrCat("this process is out of memory for a tensor of ", bytes, " bytes"));
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
