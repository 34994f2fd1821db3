#include "gpu/cuda/cudnn_attention.hpp"

// What stands in where cuDNN's front end was not there when the plugin was built.

namespace skein::gpu {

class CudnnAttention::Library {};

absl::StatusOr<std::unique_ptr<CudnnAttention>> CudnnAttention::create(CudaContext& context) {
  return absl::UnavailableError("the CUDA plugin was built without cuDNN's front end");
}

CudnnAttention::~CudnnAttention() = default;

absl::Status CudnnAttention::forward(const kernels::AttentionForward& call) {
  return absl::UnimplementedError("no cuDNN");
}

absl::Status CudnnAttention::backward(const kernels::AttentionBackward& call) {
  return absl::UnimplementedError("no cuDNN");
}

}  // namespace skein::gpu
