#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "gpu/cuda/cuda_context.hpp"
#include "gpu/cuda/products.hpp"
#include "gpu/cuda/staging.hpp"
#include "gpu/ops.hpp"

namespace skein::gpu {

/// `Ops` on a GPU: every op is put into the compute stream and returns. What the host gives is
/// copied at once; what it gets is written by `finish`. The first error is kept until then, and ops
/// after it do no harm. For the device's thread only.
///
/// Tensors are float32. With bfloat16 products, their operands are rounded on the way into them
/// (gpu/cuda/products.hpp, gpu/cuda/kernels/attention.hpp); everything else is as with float32.
class CudaOps final : public Ops {
 public:
  static absl::StatusOr<std::unique_ptr<CudaOps>> create(CudaContext& context, Precision precision);

  void matmul(const Matmul& shape, const float* a, const float* b, float* c) override;
  void fill_rows(const float* bias, float* y, int64_t rows, int64_t columns) override;
  void add_column_sums(const float* dy, float* db, int64_t rows, int64_t columns) override;
  void norm_forward(const NormForward& norm) override;
  void norm_backward(const NormBackward& norm) override;
  void gelu_forward(const float* x, float* y, int64_t count) override;
  void gelu_backward(const float* x, float* dy, int64_t count) override;
  void swiglu_forward(const Swiglu& shape, const float* x, float* y) override;
  void swiglu_backward(const Swiglu& shape, const float* x, const float* dy, float* dx) override;
  void rotate(const Rotation& rotation, float* qkv) override;
  void attention_forward(const Attention& shape, const float* qkv, float* out,
                         float* log_sum_exp) override;
  void attention_backward(const Attention& shape, const float* qkv, const float* out,
                          const float* log_sum_exp, const float* dout, float* dqkv) override;
  void embedding_forward(const Embedding& shape, const float* wte, const float* wpe,
                         float* y) override;
  void embedding_backward(const Embedding& shape, const float* dy, float* dwte,
                          float* dwpe) override;
  void cross_entropy(const CrossEntropy& shape, float* logits) override;
  void zero(float* x, int64_t count) override;
  void copy(const float* from, float* to, int64_t count) override;
  void add(const float* a, const float* b, float* y, int64_t count) override;
  void add_sum_of_squares(const float* x, int64_t count, double* result) override;
  void adamw(const Adamw& options, float* weight, const float* gradient, float* moment1,
             float* moment2, int64_t count) override;
  void sgd(const Sgd& options, float* weight, const float* gradient, float* velocity,
           int64_t count) override;
  void select_top_k(const float* x, int64_t count, int64_t k, uint32_t* indices) override;
  void add_dots(const float* a, const float* b, int64_t count, Dots* dots) override;
  void combine(double own_factor, float* own, double other_factor, const float* other,
               int64_t count) override;
  void copy_in(std::span<const float> from, float* to) override;
  void copy_out(const float* from, std::span<float> to) override;
  void linear(const Linear& shape, const float* x, const float* weight, const float* bias,
              float* y) override;
  void linear_gelu(const Linear& shape, const float* x, const float* weight, const float* bias,
                   float* y, float* activated) override;
  void linear_weight_gradient(const Linear& shape, const float* x, const float* dy, float* dweight,
                              float* dbias) override;
  void add_norm_forward(const float* a, const float* b, float* sum,
                        const NormForward& norm) override;
  void add_sums_of_squares(std::span<const Values> all, double* result) override;
  void adamw_all(const Adamw& options, std::span<const AdamwTensor> tensors) override;
  absl::Status finish() override;

 private:
  /// Device memory that nothing survives in, one piece for each use; it grows to what is needed.
  enum Scratch {
    kCastA,
    kCastB,
    kPartialSums,
    kTable1,
    kTable2,
    kRowLosses,
    kDelta,
    kBiasGradient,
    kSelection,
    kScratchCount
  };

  CudaOps(CudaContext& context, std::unique_ptr<Products> products);

  cudaStream_t stream() const { return context_.compute(); }
  bool rounds() const { return products_->precision() == Precision::kBfloat16; }
  /// Keeps the first error; says whether this one is none.
  bool note(const absl::Status& status);
  /// After a launch.
  void launched(absl::string_view what);
  /// Null after an error, which is noted.
  void* scratch(Scratch which, int64_t bytes);
  template <class T>
  T* scratch_of(Scratch which, int64_t count) {
    return static_cast<T*>(scratch(which, count * static_cast<int64_t>(sizeof(T))));
  }
  /// A copy on the device of what the host has. Null after an error.
  const void* upload(Scratch which, const void* from, int64_t bytes);
  template <class Range>
  auto upload_all(Scratch which, const Range& values) {
    using T = std::remove_cvref_t<decltype(*values.data())>;
    return static_cast<const T*>(
        upload(which, values.data(), static_cast<int64_t>(values.size() * sizeof(T))));
  }
  /// Copies to the host; `use` gets the copy when the work ends.
  void download(const void* from, int64_t bytes, std::function<void(const void*)> use);
  /// False if the library has no such product.
  bool try_product(Products::Call call);
  /// Rounds the operands of a call that has none yet.
  bool round_operands(Products::Call& call, const float* a, const float* b);

  CudaContext& context_;
  std::unique_ptr<Products> products_;
  Staging staging_;
  std::array<Buffer, kScratchCount> scratch_;
  absl::Status error_;
  std::vector<std::function<void()>> at_finish_;
};

}  // namespace skein::gpu
