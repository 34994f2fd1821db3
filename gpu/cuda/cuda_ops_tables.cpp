#include <algorithm>
#include <vector>

#include "gpu/cuda/cuda_ops.hpp"
#include "gpu/cuda/kernels/cross_entropy.hpp"
#include "gpu/cuda/kernels/embedding.hpp"
#include "gpu/cuda/kernels/optimizer.hpp"
#include "gpu/cuda/tables.hpp"
#include "plans/base/check.hpp"

// The ops that take tables from the host, or give it numbers.

namespace skein::gpu {
namespace {

kernels::AdamwFactors to_kernel(const Ops::Adamw& options) {
  kernels::AdamwFactors factors;
  factors.lr = options.lr;
  factors.beta1 = options.beta1;
  factors.beta2 = options.beta2;
  factors.eps = options.eps;
  factors.decay = options.decay;
  factors.correction1 = options.correction1;
  factors.correction2 = options.correction2;
  factors.gradient_factor = options.gradient_factor;
  return factors;
}

uint16_t* rounded_of(Numbers numbers) {
  SKEIN_CHECK(numbers.is_null() || numbers.type() == NumberType::kBfloat16)
      << "rounded weights are bfloat16";
  return static_cast<uint16_t*>(numbers.data());
}

}  // namespace

void CudaOps::embedding_forward(const Embedding& shape, const float* wte, const float* wpe,
                                Numbers y) {
  const auto* tokens = upload_all(kTable1, shape.tokens);
  if (tokens == nullptr) return;
  kernels::embedding_forward(tokens, wte, wpe, y, static_cast<int64_t>(shape.tokens.size()),
                             shape.seq_len, shape.channels, stream());
  launched("embedding_forward");
}

void CudaOps::embedding_backward(const Embedding& shape, ConstNumbers dy, float* dwte,
                                 float* dwpe) {
  const RowsByToken rows = group_rows_by_token(shape.tokens);
  kernels::TokenScatter scatter;
  scatter.dy = dy;
  scatter.order = upload_all(kTable1, rows.order);
  scatter.segments = upload_all(kTable2, rows.segments);
  if (scatter.order == nullptr || scatter.segments == nullptr) return;
  scatter.segment_count = static_cast<int64_t>(rows.segments.size());
  scatter.dwte = dwte;
  scatter.columns = shape.channels;
  kernels::embedding_backward_tokens(scatter, stream());
  if (dwpe != nullptr) {
    kernels::embedding_backward_positions(dy, dwpe, static_cast<int64_t>(shape.tokens.size()),
                                          shape.seq_len, shape.channels, stream());
  }
  launched("embedding_backward");
}

void CudaOps::cross_entropy(const CrossEntropy& shape, Numbers logits) {
  const auto rows = static_cast<int64_t>(shape.targets.size());
  const auto* targets = upload_all(kTable1, shape.targets);
  auto* losses = scratch_of<double>(kRowLosses, rows + 1);
  if (targets == nullptr || losses == nullptr) return;
  double* sum = losses + rows;
  kernels::cross_entropy(
      {targets, logits, losses, sum, rows, shape.vocab_size, shape.stride, shape.scale}, stream());
  launched("cross_entropy");
  const int64_t counted =
      std::count_if(shape.targets.begin(), shape.targets.end(), [](int32_t t) { return t >= 0; });
  download(sum, sizeof(double),
           [counted, total = shape.loss_sum, tokens = shape.loss_tokens](const void* copy) {
             *total += *static_cast<const double*>(copy);
             *tokens += counted;
           });
}

void CudaOps::add_sum_of_squares(const float* x, int64_t count, double* result) {
  const Values values{x, count};
  add_sums_of_squares({&values, 1}, result);
}

void CudaOps::add_sums_of_squares(std::span<const Values> all, double* result) {
  std::vector<const float*> pointers;
  std::vector<int64_t> counts;
  for (const Values& values : all) {
    pointers.push_back(values.data);
    counts.push_back(values.count);
  }
  const std::vector<kernels::Chunk> chunks = cut_in_chunks(counts);
  if (chunks.empty()) return;
  const auto* tensors_there = upload_all(kTable1, pointers);
  const auto* chunks_there = upload_all(kTable2, chunks);
  const auto chunk_count = static_cast<int64_t>(chunks.size());
  auto* partial = scratch_of<double>(kRowLosses, chunk_count + 1);
  if (tensors_there == nullptr || chunks_there == nullptr || partial == nullptr) return;
  double* sum = partial + chunk_count;
  kernels::sums_of_squares(tensors_there, chunks_there, chunk_count, partial, sum, stream());
  launched("sums_of_squares");
  download(sum, sizeof(double),
           [result](const void* copy) { *result += *static_cast<const double*>(copy); });
}

void CudaOps::adamw(const Adamw& options, const AdamwTensor& tensor) {
  adamw_all(options, {&tensor, 1});
}

void CudaOps::adamw_all(const Adamw& options, std::span<const AdamwTensor> tensors) {
  std::vector<kernels::AdamwSlice> slices;
  std::vector<int64_t> counts;
  for (const AdamwTensor& tensor : tensors) {
    slices.push_back({tensor.weight, tensor.gradient, tensor.moment1, tensor.moment2,
                      rounded_of(tensor.rounded), tensor.decays});
    counts.push_back(tensor.count);
  }
  const std::vector<kernels::Chunk> chunks = cut_in_chunks(counts);
  if (chunks.empty()) return;
  const auto* slices_there = upload_all(kTable1, slices);
  const auto* chunks_there = upload_all(kTable2, chunks);
  if (slices_there == nullptr || chunks_there == nullptr) return;
  kernels::adamw(to_kernel(options), slices_there, chunks_there,
                 static_cast<int64_t>(chunks.size()), stream());
  launched("adamw");
}

void CudaOps::sgd(const Sgd& options, const SgdTensor& tensor) {
  kernels::sgd(
      {options.lr, options.momentum, options.decay, options.gradient_factor},
      {tensor.weight, tensor.gradient, tensor.velocity, rounded_of(tensor.rounded), tensor.count},
      stream());
  launched("sgd");
}

}  // namespace skein::gpu
