#pragma once

#include <vector>

#include "gpu/host/thread_pool.hpp"
#include "gpu/ops.hpp"

namespace skein::gpu {

/// `Ops` on the host: products by a library, loops of our own, both shared by the threads of one
/// pool. Every op has finished when it returns. Used by the device's thread only.
class HostOps final : public Ops {
 public:
  explicit HostOps(ThreadPool& pool) : pool_(pool) {}

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

 private:
  ThreadPool& pool_;
  std::vector<float> scores_;  // One query's with the positions of a cache.
};

}  // namespace skein::gpu
