#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/cuda/cuda_context.hpp"
#include "gpu/cuda/kernels/attention.hpp"

namespace skein::gpu {

/// Causal attention of bfloat16 numbers by cuDNN's fused kernels, several times as fast on Hopper
/// as ours, which are what it is compared with and what is taken where the library is not there or
/// has nothing for a shape. It is deterministic, and keeps the same sums of exponentials as ours,
/// so that a backward may follow the other's forward. For the device's thread only.
class CudnnAttention {
 public:
  /// Opens libcudnn.so.9, or what SKEIN_CUDNN_LIBRARY names. Unavailable in one line without it, or
  /// where this plugin was built without cuDNN's front end.
  static absl::StatusOr<std::unique_ptr<CudnnAttention>> create(CudaContext& context);
  ~CudnnAttention();

  /// On the compute stream. Unimplemented if the library has nothing for such a shape, or there is
  /// no memory to work in, after which it is not asked for that shape again, or tensors are not
  /// aligned: nothing was done. Internal or Unavailable if the work failed.
  absl::Status forward(const kernels::AttentionForward& call);
  /// As above; `call.delta` is not written.
  absl::Status backward(const kernels::AttentionBackward& call);

 private:
  class Library;
  explicit CudnnAttention(std::unique_ptr<Library> library);

  std::unique_ptr<Library> library_;
};

}  // namespace skein::gpu
