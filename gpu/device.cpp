#include "gpu/device.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/host/host_memory.hpp"
#include "plans/base/check.hpp"

namespace skein::gpu {

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  if (data_ != nullptr) release_(data_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  release_ = std::move(other.release_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) release_(data_);
}

Buffer allocate_visible(Device& device, int64_t bytes) {
  absl::StatusOr<Buffer> memory = device.allocate_host_visible(bytes);
  if (!memory.ok()) memory = allocate_host(bytes);
  SKEIN_CHECK(memory.ok()) << memory.status();
  return *std::move(memory);
}

absl::StatusOr<Buffer> Device::allocate_host_visible(int64_t bytes) { return allocate_host(bytes); }

absl::Status Device::upload(std::span<const float> from, float* to) {
  std::copy(from.begin(), from.end(), to);
  return absl::OkStatus();
}

absl::Status Device::download(const float* from, std::span<float> to) {
  std::copy_n(from, to.size(), to.begin());
  return absl::OkStatus();
}

absl::StatusOr<DeviceGroups*> Device::groups() {
  return absl::UnavailableError(
      absl::StrCat("a device of kind '", info().name, "' has no groups of its own"));
}

}  // namespace skein::gpu
