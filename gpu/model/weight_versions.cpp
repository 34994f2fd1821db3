#include "gpu/model/weight_versions.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {

absl::Status WeightVersions::allocate(int32_t count, const StageParameters& parameters,
                                      const ParameterStore& store, Device& device) {
  if (parameters.blocks.empty()) return absl::OkStatus();
  store_ = &store;
  first_ = parameters.first_block;
  size_t last = first_;
  for (const LayerParameters& each : parameters.blocks) last += each.weights.size();
  const int64_t begin = store.offset(first_);
  floats_ = store.offset(last) - begin;
  type_ = device.info().activations;
  for (int32_t version = 0; version < count; ++version) {
    SKEIN_ASSIGN_OR_RETURN(Buffer weights, device.allocate(float_bytes(floats_)));
    buffers_.push_back(std::move(weights));
    if (type_ != NumberType::kFloat32) {
      SKEIN_ASSIGN_OR_RETURN(Buffer rounded, device.allocate(floats_ * bytes_of(type_)));
      rounded_.push_back(std::move(rounded));
    }
    std::vector<LayerParameters> blocks = parameters.blocks;
    size_t parameter = first_;
    for (LayerParameters& block : blocks) {
      for (size_t i = 0; i < block.weights.size(); ++i, ++parameter) {
        const int64_t offset = store.offset(parameter) - begin;
        block.weights[i] = buffers_.back().floats() + offset;
        block.operands[i] = rounded_.empty() ? ConstNumbers(block.weights[i])
                                             : rounded_.back().numbers(type_) + offset;
      }
    }
    versions_.push_back(std::move(blocks));
  }
  return absl::OkStatus();
}

int64_t WeightVersions::bytes() const {
  int64_t bytes = 0;
  for (const Buffer& each : buffers_) bytes += each.bytes();
  for (const Buffer& each : rounded_) bytes += each.bytes();
  return bytes;
}

absl::Status WeightVersions::keep(Ops& ops, StashSlots& slots) {
  if (store_ == nullptr) return absl::OkStatus();  // There are no blocks.
  std::vector<bool> is_used(buffers_.size());
  std::vector<StashSlot*> newest;
  for (StashSlot* slot : slots.held()) {
    if (slot->old_version) {
      is_used[*slot->old_version] = true;
    } else {
      newest.push_back(slot);
    }
  }
  if (newest.empty()) return absl::OkStatus();
  const auto free = std::find(is_used.begin(), is_used.end(), false);
  if (free == is_used.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("micro-batches in flight need more than ", buffers_.size(),
                     " older versions of the weights; the schedule is not the planned one"));
  }
  const auto version = static_cast<size_t>(free - is_used.begin());
  ops.copy(store_->weight(first_), buffers_[version].floats(), floats_);
  if (!rounded_.empty()) {
    ops.copy(store_->rounded(first_), rounded_[version].numbers(type_), floats_);
  }
  for (StashSlot* slot : newest) slot->old_version = version;
  return absl::OkStatus();
}

}  // namespace skein::gpu
