#include "gpu/cuda/cuda_status.hpp"

#include <string>

#include "absl/strings/str_cat.h"

namespace skein::gpu {

bool is_device_lost(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemNotReady:
    case cudaErrorContextIsDestroyed:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

absl::Status cuda_status(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string text = absl::StrCat(std::string(what), ": ", cudaGetErrorString(error), " (",
                                        cudaGetErrorName(error), ")");
  if (error == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(text);
  if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice) {
    return absl::UnavailableError(text);
  }
  if (is_device_lost(error)) {
    // Not Unavailable, by which a worker would tell that another one is gone, and stay.
    return absl::InternalError(
        absl::StrCat("the CUDA device is lost: ", text, "; start the worker again"));
  }
  return absl::InternalError(text);
}

}  // namespace skein::gpu
