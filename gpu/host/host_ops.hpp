#pragma once

#include "gpu/host/thread_pool.hpp"
#include "gpu/ops.hpp"

namespace skein::gpu {

/// `Ops` on the host: products by a library, loops of our own, both shared by the threads of one
/// pool. Every op has finished when it returns. Used by the device's thread only.
class HostOps final : public Ops {
 public:
  explicit HostOps(ThreadPool& pool) : pool_(pool) {}

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

 private:
  ThreadPool& pool_;
};

}  // namespace skein::gpu
