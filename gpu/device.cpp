#include "gpu/device.hpp"

#include <utility>

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

}  // namespace skein::gpu
