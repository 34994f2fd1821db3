#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "gpu/cuda/load_cuda.hpp"

namespace skein::gpu {

/// What program and plugin share are C++ interfaces: both are built from one source tree. A change
/// of `Device`, `DeviceInfo`, `DeviceGroup`, `Ops` or `CudaOptions` gets a new number.
constexpr int kCudaPluginAbi = 11;
constexpr char kCudaPluginAbiName[] = "skein_cuda_plugin_abi";
constexpr char kCudaPluginMakeName[] = "skein_cuda_make_device";

using CudaPluginAbi = int();
using CudaPluginMake = void(const CudaOptions& options,
                            absl::StatusOr<std::unique_ptr<Device>>* made);

}  // namespace skein::gpu
