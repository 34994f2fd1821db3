#include "gpu/cuda/cuda_ops.hpp"
#include "gpu/cuda/kernels/attention.hpp"
#include "gpu/cuda/kernels/elementwise.hpp"
#include "gpu/cuda/kernels/rows.hpp"
#include "gpu/cuda/launch_shape.hpp"

#include "absl/strings/str_cat.h"

// The ops whose operands are rounded with bfloat16 products.

namespace skein::gpu {
namespace {

kernels::AttentionShape to_kernel(const Ops::Attention& shape) {
  return {shape.batch, shape.seq_len, shape.heads, shape.channels};
}

/// The auxiliary output of cuBLASLt's epilogues: 16 bytes, rows in multiples of 8 elements.
bool fits_epilogue(int64_t columns, const void* aux) {
  return columns % 8 == 0 && reinterpret_cast<uintptr_t>(aux) % 16 == 0;
}

}  // namespace

bool CudaOps::try_product(Products::Call call) {
  const absl::Status status = products_->multiply(call);
  if (absl::IsUnimplemented(status)) return false;
  note(status);
  return true;
}

bool CudaOps::round_operands(Products::Call& call, const float* a, const float* b) {
  const int64_t a_count = call.shape.m * call.shape.k;
  const int64_t b_count = call.shape.k * call.shape.n;
  auto* a_rounded = scratch_of<uint16_t>(kCastA, a_count);
  auto* b_rounded = scratch_of<uint16_t>(kCastB, b_count);
  if (a_rounded == nullptr || b_rounded == nullptr) return false;
  kernels::to_bfloat16(a, a_rounded, a_count, stream());
  kernels::to_bfloat16(b, b_rounded, b_count, stream());
  launched("to_bfloat16");
  call.is_bfloat16 = true;
  call.a = a_rounded;
  call.b = b_rounded;
  return true;
}

void CudaOps::matmul(const Matmul& shape, const float* a, const float* b, float* c) {
  Products::Call call;
  call.shape = shape;
  call.c = c;
  if (rounds()) {
    if (!round_operands(call, a, b) || try_product(call)) return;
  }
  // Odd sizes that the library has no bfloat16 product for.
  call.is_bfloat16 = false;
  call.a = a;
  call.b = b;
  note(products_->multiply(call));
}

void CudaOps::linear(const Linear& shape, const float* x, const float* weight, const float* bias,
                     float* y) {
  Products::Call call;
  call.shape = {shape.rows, shape.out, shape.in, false, shape.transposed, false};
  call.c = y;
  if (bias != nullptr) call.epilogue = Products::Epilogue::kBias;
  call.extra = const_cast<float*>(bias);  // Only read by this epilogue.
  if (rounds()) {
    if (!round_operands(call, x, weight) || try_product(call)) return;
  }
  Ops::linear(shape, x, weight, bias, y);
}

void CudaOps::linear_gelu(const Linear& shape, const float* x, const float* weight,
                          const float* bias, float* y, float* activated) {
  if (rounds() && bias != nullptr && fits_epilogue(shape.out, y)) {
    Products::Call call;
    call.shape = {shape.rows, shape.out, shape.in, false, shape.transposed, false};
    call.c = activated;
    call.epilogue = Products::Epilogue::kBiasGelu;
    call.extra = const_cast<float*>(bias);
    call.aux = y;
    if (!round_operands(call, x, weight) || try_product(call)) return;
  }
  Ops::linear_gelu(shape, x, weight, bias, y, activated);
}

void CudaOps::linear_weight_gradient(const Linear& shape, const float* x, const float* dy,
                                     float* dweight, float* dbias) {
  // The epilogue sums the right operand, which dy is only of a weight [in, out].
  if (rounds() && dbias != nullptr && !shape.transposed) {
    Products::Call call;
    call.shape = {shape.in, shape.out, shape.rows, true, false, true};
    call.c = dweight;
    call.epilogue = Products::Epilogue::kColumnSumsOfB;
    call.extra = scratch_of<float>(kBiasGradient, shape.out);
    if (call.extra == nullptr || !round_operands(call, x, dy)) return;
    if (try_product(call)) {
      add(dbias, call.extra, dbias, shape.out);
      return;
    }
    // The rounded operands are still there.
    call.epilogue = Products::Epilogue::kNone;
    call.extra = nullptr;
    if (try_product(call)) return add_column_sums(dy, dbias, shape.rows, shape.out);
  }
  Ops::linear_weight_gradient(shape, x, dy, dweight, dbias);
}

void CudaOps::rotate(const Rotation& rotation, float* qkv) {
  kernels::rotate({to_kernel(rotation.shape), rotation.turns, rotation.is_opposite, qkv}, stream());
  launched("rotate");
}

void CudaOps::attention_forward(const Attention& shape, const float* qkv, float* out,
                                float* log_sum_exp) {
  const int64_t size = shape.channels / shape.heads;
  if (kernels::attention_padded_size(size) == 0) {
    note(absl::InvalidArgumentError(
        absl::StrCat("no attention on CUDA for heads of ", size, " channels; use 256 or fewer")));
    return;
  }
  const kernels::AttentionForward call{to_kernel(shape), qkv, out, log_sum_exp};
  if (rounds() && size <= kernels::kTensorCoreHeadMax) {
    kernels::attention_forward(call, stream());
  } else {
    kernels::attention_forward_exact(call, stream());
  }
  launched("attention_forward");
}

void CudaOps::attention_backward(const Attention& shape, const float* qkv, const float* out,
                                 const float* log_sum_exp, const float* dout, float* dqkv) {
  auto* delta = scratch_of<float>(kDelta, shape.batch * shape.heads * shape.seq_len);
  if (delta == nullptr) return;
  const kernels::AttentionBackward call{to_kernel(shape), qkv, out, log_sum_exp, dout, delta, dqkv};
  kernels::attention_delta(call, stream());
  if (rounds() && shape.channels / shape.heads <= kernels::kTensorCoreHeadMax) {
    kernels::attention_backward(call, stream());
  } else {
    kernels::attention_backward_exact(call, stream());
  }
  launched("attention_backward");
}

}  // namespace skein::gpu
