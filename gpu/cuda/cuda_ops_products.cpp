#include "gpu/cuda/cuda_ops.hpp"
#include "gpu/cuda/kernels/attention.hpp"
#include "gpu/cuda/kernels/elementwise.hpp"
#include "gpu/cuda/kernels/rows.hpp"
#include "gpu/cuda/launch_shape.hpp"

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"

// Products, and attention, which is made of them.

namespace skein::gpu {
namespace {

kernels::AttentionShape to_kernel(const Ops::Attention& shape) {
  return {shape.batch, shape.seq_len, shape.heads, shape.kv_heads, shape.head_size};
}

absl::Status check_head_size(const Ops::Attention& shape) {
  if (kernels::attention_padded_size(shape.head_size) != 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("no attention on CUDA for heads of ",
                                                 shape.head_size, " channels; use 256 or fewer"));
}

kernels::CachedAttention to_kernel(const Ops::Attention& shape, ConstNumbers qkv,
                                   const Ops::KeyValueCache& cache, Numbers out) {
  SKEIN_CHECK(shape.batch == 1 && cache.length + shape.seq_len <= cache.capacity) << cache.length;
  return {to_kernel(shape), qkv, cache.keys, cache.values, cache.capacity, cache.length, out};
}

/// From the first number of the first row to behind the last of the last.
int64_t span_of(int64_t rows, int64_t columns, int64_t stride) {
  return (rows - 1) * stride + columns;
}

/// bfloat16 numbers in 16 bytes, and the least side that is worth a second product.
constexpr int64_t kWhole = 8;
constexpr int64_t kCutMin = 128;

/// What a side is cut to: 0 if it stays whole.
int64_t cut(int64_t side) {
  return side >= kCutMin && side % kWhole != 0 ? side / kWhole * kWhole : 0;
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

float* CudaOps::converted(Scratch which, ConstNumbers from, int64_t count) {
  auto* to = scratch_of<float>(which, count);
  if (to != nullptr) copy(from, to, count);
  return to;
}

void CudaOps::multiply_converted(const Products::Call& call) {
  const Matmul s = call.shape.with_strides();
  Products::Call instead;
  instead.shape = s;
  instead.a = converted(kCastA, call.a, span_of(s.a_rows(), s.transpose_a ? s.m : s.k, s.a_stride));
  instead.b = converted(kCastB, call.b, span_of(s.b_rows(), s.transpose_b ? s.k : s.n, s.b_stride));
  const bool rounds = call.c.type() != NumberType::kFloat32;
  const int64_t count = span_of(s.m, s.n, s.c_stride);
  instead.c = rounds ? Numbers(scratch_of<float>(kCastC, count)) : call.c;
  if (instead.a.is_null() || instead.b.is_null() || instead.c.is_null()) return;
  // What lies between two rows is kept, too.
  if (rounds && (s.accumulate || s.c_stride != s.n)) copy(call.c, instead.c, count);
  note(products_->multiply(instead));
  if (rounds) copy(instead.c, call.c, count);
}

bool CudaOps::multiply_in_two(const Matmul& shape, ConstNumbers a, ConstNumbers b, Numbers c) {
  Matmul whole = shape.with_strides();
  if ((whole.a_stride | whole.b_stride | whole.c_stride) % kWhole != 0) return false;
  Matmul rest = whole;
  if (const int64_t n = cut(shape.n); n != 0) {
    whole.n = n;
    rest.n -= n;
    matmul(whole, a, b, c);
    matmul(rest, a, b + (shape.transpose_b ? n * whole.b_stride : n), c + n);
    return true;
  }
  if (const int64_t m = cut(shape.m); m != 0 && shape.transpose_a) {
    whole.m = m;
    rest.m -= m;
    matmul(whole, a, b, c);
    matmul(rest, a + m, b, c + m * whole.c_stride);
    return true;
  }
  const int64_t k = cut(shape.k);
  if (k == 0 || (shape.transpose_a && !shape.transpose_b)) return false;
  whole.k = k;
  rest.k -= k;
  // The small part first, as what is there already is rounded before the other is added.
  matmul(rest, a + (shape.transpose_a ? k * whole.a_stride : k),
         b + (shape.transpose_b ? k : k * whole.b_stride), c);
  whole.accumulate = true;
  matmul(whole, a, b, c);
  return true;
}

void CudaOps::matmul(const Matmul& shape, ConstNumbers a, ConstNumbers b, Numbers c) {
  if (a.type() == NumberType::kBfloat16 && multiply_in_two(shape, a, b, c)) return;
  Products::Call call;
  call.shape = shape;
  call.a = a;
  call.b = b;
  call.c = c;
  if (a.type() == NumberType::kFloat32) {
    note(products_->multiply(call));
  } else if (!try_product(call)) {
    multiply_converted(call);  // Odd sizes that the library has no bfloat16 product for.
  }
}

void CudaOps::linear(const Linear& shape, ConstNumbers x, ConstNumbers weight, ConstNumbers bias,
                     Numbers y) {
  if (x.type() == NumberType::kBfloat16 && !bias.is_null()) {
    Products::Call call;
    call.shape = {shape.rows, shape.out, shape.in, false, shape.transposed, false};
    call.a = x;
    call.b = weight;
    call.c = y;
    call.epilogue = Products::Epilogue::kBias;
    call.extra = const_cast<void*>(bias.data());  // Only read by this epilogue.
    if (try_product(call)) return;
  }
  Ops::linear(shape, x, weight, bias, y);
}

void CudaOps::linear_residual(const Linear& shape, ConstNumbers x, ConstNumbers weight,
                              ConstNumbers bias, ConstNumbers residual, Numbers y) {
  if (x.type() == NumberType::kBfloat16) {
    Products::Call call;
    call.shape = {shape.rows, shape.out, shape.in, false, shape.transposed, true};
    call.a = x;
    call.b = weight;
    call.added = residual;
    call.c = y;
    if (!bias.is_null()) {
      call.epilogue = Products::Epilogue::kBias;
      call.extra = const_cast<void*>(bias.data());  // Only read by this epilogue.
    }
    if (try_product(call)) return;
  }
  Ops::linear_residual(shape, x, weight, bias, residual, y);
}

void CudaOps::linear_gelu_gradient(const Linear& shape, ConstNumbers dy, ConstNumbers weight,
                                   ConstNumbers before, Numbers dx) {
  if (dy.type() == NumberType::kBfloat16 && fits_epilogue(shape.in, before.data())) {
    Products::Call call;
    call.shape = {shape.rows, shape.in, shape.out, false, !shape.transposed, false};
    call.a = dy;
    call.b = weight;
    call.c = dx;
    call.epilogue = Products::Epilogue::kGeluGradient;
    call.aux = const_cast<void*>(before.data());  // Only read by this epilogue.
    if (try_product(call)) return;
  }
  Ops::linear_gelu_gradient(shape, dy, weight, before, dx);
}

void CudaOps::linear_gelu(const Linear& shape, ConstNumbers x, ConstNumbers weight,
                          ConstNumbers bias, Numbers y, Numbers activated) {
  if (x.type() == NumberType::kBfloat16 && !bias.is_null() && fits_epilogue(shape.out, y.data())) {
    Products::Call call;
    call.shape = {shape.rows, shape.out, shape.in, false, shape.transposed, false};
    call.a = x;
    call.b = weight;
    call.c = activated;
    call.epilogue = Products::Epilogue::kBiasGelu;
    call.extra = const_cast<void*>(bias.data());
    call.aux = y.data();
    if (try_product(call)) return;
  }
  Ops::linear_gelu(shape, x, weight, bias, y, activated);
}

void CudaOps::rotate(const Rotation& rotation, Numbers qkv) {
  kernels::rotate({to_kernel(rotation.shape), rotation.turns, rotation.is_opposite, qkv}, stream());
  launched("rotate");
}

template <class Call>
bool CudaOps::try_cudnn(absl::Status (CudnnAttention::*run)(const Call&), const Call& call) {
  if (cudnn_ == nullptr || call.qkv.type() != NumberType::kBfloat16) return false;
  const absl::Status status = ((*cudnn_).*run)(call);
  if (absl::IsUnimplemented(status)) return false;
  note(status);
  return true;
}

void CudaOps::attention_forward(const Attention& shape, ConstNumbers qkv, Numbers out,
                                float* log_sum_exp) {
  if (!note(check_head_size(shape))) return;
  const kernels::AttentionForward call{to_kernel(shape), qkv, out, log_sum_exp};
  if (try_cudnn(&CudnnAttention::forward, call)) return;
  if (qkv.type() == NumberType::kBfloat16 && shape.head_size <= kernels::kTensorCoreHeadMax) {
    kernels::attention_forward(call, stream());
  } else {
    kernels::attention_forward_exact(call, stream());
  }
  launched("attention_forward");
}

void CudaOps::attention_backward(const Attention& shape, ConstNumbers qkv, ConstNumbers out,
                                 const float* log_sum_exp, ConstNumbers dout, Numbers dqkv) {
  kernels::AttentionBackward call{to_kernel(shape), qkv, out, log_sum_exp, dout, nullptr, dqkv};
  if (try_cudnn(&CudnnAttention::backward, call)) return;
  call.delta = scratch_of<float>(kDelta, shape.batch * shape.heads * shape.seq_len);
  if (call.delta == nullptr) return;
  kernels::attention_delta(call, stream());
  if (qkv.type() == NumberType::kBfloat16 && shape.head_size <= kernels::kTensorCoreHeadMax) {
    kernels::attention_backward(call, stream());
  } else {
    kernels::attention_backward_exact(call, stream());
  }
  launched("attention_backward");
}

void CudaOps::append_to_cache(const Attention& shape, ConstNumbers qkv,
                              const KeyValueCache& cache) {
  kernels::append_to_cache(to_kernel(shape, qkv, cache, nullptr), stream());
  launched("append_to_cache");
}

void CudaOps::attend_to_cache(const Attention& shape, ConstNumbers qkv, const KeyValueCache& cache,
                              Numbers out) {
  if (!note(check_head_size(shape))) return;
  kernels::attend_to_cache(to_kernel(shape, qkv, cache, out), stream());
  launched("attend_to_cache");
}

}  // namespace skein::gpu
