#include "gpu/numbers.hpp"

#include "plans/base/check.hpp"

namespace skein::gpu {

const float* ConstNumbers::floats() const {
  SKEIN_CHECK(is_null() || type_ == NumberType::kFloat32) << "these numbers are bfloat16";
  return static_cast<const float*>(data_);
}

float* Numbers::floats() const {
  SKEIN_CHECK(is_null() || type_ == NumberType::kFloat32) << "these numbers are bfloat16";
  return static_cast<float*>(data_);
}

}  // namespace skein::gpu
