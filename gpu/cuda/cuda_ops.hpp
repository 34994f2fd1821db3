#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu/cuda/cuda_context.hpp"
#include "gpu/cuda/cudnn_attention.hpp"
#include "gpu/cuda/products.hpp"
#include "gpu/cuda/staging.hpp"
#include "gpu/ops.hpp"

namespace skein::gpu {

/// `Ops` on a GPU: every op is put into the compute stream and returns. What the host gives is
/// copied at once; what it gets is written by `finish`. The first error is kept until then, and ops
/// after it do no harm. For the device's thread only.
///
/// `Numbers` may be of either type in any call, whatever the precision: that is what the device
/// tells models to keep activations in. Attention of bfloat16 numbers is cuDNN's, or by our kernels
/// with tensor cores.
class CudaOps final : public Ops {
 public:
  static absl::StatusOr<std::unique_ptr<CudaOps>> create(CudaContext& context, Precision precision);

  /// As `DeviceInfo::remark`.
  const std::string& remark() const { return remark_; }

  void matmul(const Matmul& shape, ConstNumbers a, ConstNumbers b, Numbers c) override;
  void fill_rows(ConstNumbers bias, Numbers y, int64_t rows, int64_t columns) override;
  void add_column_sums(ConstNumbers dy, float* db, int64_t rows, int64_t columns) override;
  void norm_forward(const NormForward& norm) override;
  void norm_backward(const NormBackward& norm) override;
  void gelu_forward(ConstNumbers x, Numbers y, int64_t count) override;
  void gelu_backward(ConstNumbers x, Numbers dy, int64_t count) override;
  void swiglu_forward(const Swiglu& shape, ConstNumbers x, Numbers y) override;
  void swiglu_backward(const Swiglu& shape, ConstNumbers x, ConstNumbers dy, Numbers dx) override;
  void rotate(const Rotation& rotation, Numbers qkv) override;
  void attention_forward(const Attention& shape, ConstNumbers qkv, Numbers out,
                         float* log_sum_exp) override;
  void attention_backward(const Attention& shape, ConstNumbers qkv, ConstNumbers out,
                          const float* log_sum_exp, ConstNumbers dout, Numbers dqkv) override;
  void append_to_cache(const Attention& shape, ConstNumbers qkv,
                       const KeyValueCache& cache) override;
  void attend_to_cache(const Attention& shape, ConstNumbers qkv, const KeyValueCache& cache,
                       Numbers out) override;
  void embedding_forward(const Embedding& shape, const float* wte, const float* wpe,
                         Numbers y) override;
  void embedding_backward(const Embedding& shape, ConstNumbers dy, float* dwte,
                          float* dwpe) override;
  void cross_entropy(const CrossEntropy& shape, Numbers logits) override;
  void zero(Numbers x, int64_t count) override;
  void copy(ConstNumbers from, Numbers to, int64_t count) override;
  void add(ConstNumbers a, ConstNumbers b, Numbers y, int64_t count) override;
  void move_to_sums(const ExactSum& sum) override;
  void add_sums(const double* from, double* to, int64_t count) override;
  void round_sums(const double* sums, float* values, int64_t count) override;
  void add_sum_of_squares(const float* x, int64_t count, double* result) override;
  void adamw(const Adamw& options, const AdamwTensor& tensor) override;
  void sgd(const Sgd& options, const SgdTensor& tensor) override;
  void copy_in(std::span<const float> from, Numbers to) override;
  void copy_out(ConstNumbers from, std::span<float> to) override;
  void linear(const Linear& shape, ConstNumbers x, ConstNumbers weight, ConstNumbers bias,
              Numbers y) override;
  void linear_residual(const Linear& shape, ConstNumbers x, ConstNumbers weight, ConstNumbers bias,
                       ConstNumbers residual, Numbers y) override;
  void linear_gelu_gradient(const Linear& shape, ConstNumbers dy, ConstNumbers weight,
                            ConstNumbers before, Numbers dx) override;
  void linear_gelu(const Linear& shape, ConstNumbers x, ConstNumbers weight, ConstNumbers bias,
                   Numbers y, Numbers activated) override;
  void add_sums_of_squares(std::span<const Values> all, double* result) override;
  void adamw_all(const Adamw& options, std::span<const AdamwTensor> tensors) override;
  absl::Status finish() override;

 private:
  /// Device memory that nothing survives in, one piece for each use; it grows to what is needed.
  enum Scratch {
    kCastA,
    kCastB,
    kCastC,
    kPassing,
    kPartialSums,
    kTable1,
    kTable2,
    kRowLosses,
    kDelta,
    kScratchCount
  };

  CudaOps(CudaContext& context, std::unique_ptr<Products> products);

  cudaStream_t stream() const { return context_.compute(); }
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
  /// False if there is no cuDNN, or it has no such attention.
  template <class Call>
  bool try_cudnn(absl::Status (CudnnAttention::*run)(const Call&), const Call& call);
  /// False if the library has no such product.
  bool try_product(Products::Call call);
  /// Where a side along which numbers lie is long, and no whole 16 bytes, as GPT-2's vocabulary,
  /// the library has products of bfloat16 several times as slow as for what is: then one product of
  /// what is, and one of a rest of up to 7. False if no side is so.
  bool multiply_in_two(const Matmul& shape, ConstNumbers a, ConstNumbers b, Numbers c);
  /// A bfloat16 product as one of float32 copies.
  void multiply_converted(const Products::Call& call);
  /// A float32 copy. Null after an error.
  float* converted(Scratch which, ConstNumbers from, int64_t count);

  CudaContext& context_;
  std::unique_ptr<Products> products_;
  std::unique_ptr<CudnnAttention> cudnn_;  // Null without it.
  std::string remark_;
  Staging staging_;
  std::array<Buffer, kScratchCount> scratch_;
  absl::Status error_;
  std::vector<std::function<void()>> at_finish_;
};

}  // namespace skein::gpu
