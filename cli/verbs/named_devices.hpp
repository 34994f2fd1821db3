#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/device.hpp"

namespace skein::cli {

/// More than a machine has.
inline constexpr int32_t kDevicesMax = 64;

struct DeviceNames {
  /// Separated by commas: "cpu", host threads; "cuda:0", a GPU of those that the driver shows;
  /// "cuda", all of these from the first on, up to one that cannot be used. Or "auto": as "cuda",
  /// and "cpu" where there is none.
  std::string names = "cpu";
  int64_t threads = 1;                 // Each "cpu" has so many.
  std::string precision = "bfloat16";  // On GPUs, as `gpu::CudaOptions`.
};

/// Devices of this process that have these names, in their order. With "auto" a line on standard
/// error says why there is no GPU.
/// InvalidArgument      a name is none, there are too many, or a GPU is named twice.
/// FailedPrecondition   a GPU that is named cannot be used; says why.
/// ResourceExhausted    it has no memory that is free; of "cuda" and "auto", none has any: those
/// that
///                      are full are left out.
absl::StatusOr<std::vector<std::unique_ptr<gpu::Device>>> open_devices(const DeviceNames& names);

}  // namespace skein::cli
