#include "absl/strings/str_cat.h"
#include "gpu/cuda/cuda_ops.hpp"
#include "gpu/cuda/kernels/reducers.hpp"

// The ops of sparse and adaptive sums of gradients.

namespace skein::gpu {

void CudaOps::select_top_k(const float* x, int64_t count, int64_t k, uint32_t* indices) {
  if (k < 1 || k > count || count > INT64_C(0xFFFFFFFF)) {
    note(absl::InvalidArgumentError(absl::StrCat("no largest ", k, " of ", count, " values")));
    return;
  }
  void* memory = scratch(kSelection, kernels::select_bytes(count));
  if (memory == nullptr) return;
  kernels::select_top_k(x, count, k, memory, indices, stream());
  launched("select_top_k");
}

void CudaOps::add_dots(const float* a, const float* b, int64_t count, Dots* dots) {
  const int64_t blocks = kernels::dot_blocks(count);
  auto* partial = scratch_of<double>(kRowLosses, 3 * (blocks + 1));
  if (partial == nullptr) return;
  double* sums = partial + 3 * blocks;
  kernels::dot_products(a, b, count, partial, sums, stream());
  launched("dot_products");
  download(sums, 3 * static_cast<int64_t>(sizeof(double)), [dots](const void* copy) {
    const auto* each = static_cast<const double*>(copy);
    dots->ab += each[0];
    dots->aa += each[1];
    dots->bb += each[2];
  });
}

void CudaOps::combine(double own_factor, float* own, double other_factor, const float* other,
                      int64_t count) {
  kernels::combine(own_factor, own, other_factor, other, count, stream());
  launched("combine");
}

}  // namespace skein::gpu
