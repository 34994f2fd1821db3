#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "gpu/exact_sum.hpp"
#include "gpu/numbers.hpp"

namespace skein::gpu {

/// What a device can do, on its own memory: the fixed set of operations from which layers are made.
/// Called inside `Work::run`; an op may return before the device has finished it, later ops see its
/// results. Pointers are device memory, row-major, and do not overlap unless said so. "Overwrites"
/// and "adds to" say what happens to outputs. N is a number of tokens (rows).
///
/// `Numbers` of one call have one type, that of the device's activations (`DeviceInfo`) or float32,
/// unless its comment says more; everything else is float32. Sums, norms and losses are float32 in
/// all. Numerical agreement: with float32 every back end is within 1e-5 relative of the host's,
/// with bfloat16 within 2e-2.
///
/// Fused ops do what their comment says in terms of the others. Where a back end has nothing better
/// they are carried out as just that, so they change no bit of its results.
class Ops {
 public:
  virtual ~Ops() = default;

  /// c [m, n] = op(a) op(b), or c + op(a) op(b) if `accumulate`. a is [m, k], or [k, m] if
  /// `transpose_a`; b is [k, n], or [n, k] if `transpose_b`. c may be float32 where a and b are
  /// not. Rows lie `stride` numbers apart (0: one behind the other); what is between them, also
  /// behind the last one, belongs to the matrix, and nothing is known of it when the product is
  /// done.
  struct Matmul {
    int64_t m = 0, n = 0, k = 0;
    bool transpose_a = false;
    bool transpose_b = false;
    bool accumulate = false;
    int64_t a_stride = 0, b_stride = 0, c_stride = 0;

    int64_t a_rows() const { return transpose_a ? k : m; }
    int64_t b_rows() const { return transpose_b ? n : k; }
    /// The same without a stride of 0.
    Matmul with_strides() const {
      Matmul filled = *this;
      if (a_stride == 0) filled.a_stride = transpose_a ? m : k;
      if (b_stride == 0) filled.b_stride = transpose_b ? k : n;
      if (c_stride == 0) filled.c_stride = n;
      return filled;
    }
  };
  virtual void matmul(const Matmul& shape, ConstNumbers a, ConstNumbers b, Numbers c) = 0;
  /// Overwrites y [rows, columns]: every row is `bias`. For a product that accumulates onto it.
  virtual void fill_rows(ConstNumbers bias, Numbers y, int64_t rows, int64_t columns) = 0;
  /// Adds the column sums of dy [rows, columns] to db [columns].
  virtual void add_column_sums(ConstNumbers dy, float* db, int64_t rows, int64_t columns) = 0;

  /// Overwrites y [N, C], mean [N], rstd [N]. y = (x - mean) * rstd * weight + bias, a layer norm.
  /// Without `mean` (null) y = x * rstd * weight, with 1 / rstd the root of the mean square: an RMS
  /// norm, which has no bias either (null).
  struct NormForward {
    ConstNumbers x;
    const float *weight, *bias;
    Numbers y;
    float *mean, *rstd;
    int64_t rows = 0, columns = 0;
    float epsilon = 0;
  };
  virtual void norm_forward(const NormForward& norm) = 0;
  /// Overwrites dx [N, C] with `residual` [N, C], unless that is null, plus the input gradient.
  /// `residual` may be dx. Adds to dweight [C] and dbias [C]. Without `mean` that of an RMS norm,
  /// which has no dbias (null).
  struct NormBackward {
    ConstNumbers dy, x;
    const float *weight, *mean, *rstd;
    ConstNumbers residual;
    Numbers dx;
    float *dweight, *dbias;
    int64_t rows = 0, columns = 0;
  };
  virtual void norm_backward(const NormBackward& norm) = 0;

  /// Overwrites y [count]. The tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
  virtual void gelu_forward(ConstNumbers x, Numbers y, int64_t count) = 0;
  /// dy := dy * gelu'(x), in place.
  virtual void gelu_backward(ConstNumbers x, Numbers dy, int64_t count) = 0;

  /// x [rows, 2 I] is a gate and a value side by side, each I wide.
  struct Swiglu {
    int64_t rows = 0, width = 0;
  };
  /// Overwrites y [rows, I] = gate * logistic(gate) * value.
  virtual void swiglu_forward(const Swiglu& shape, ConstNumbers x, Numbers y) = 0;
  /// Overwrites dx [rows, 2 I], from dy [rows, I].
  virtual void swiglu_backward(const Swiglu& shape, ConstNumbers x, ConstNumbers dy,
                               Numbers dx) = 0;

  /// Causal attention over qkv [B, T, (H + 2 K) D]: H heads of queries, then K of keys and K of
  /// values, D channels each. K divides H, and H / K heads of queries in a row share one of keys
  /// and values (grouped-query attention: Ainslie et al., EMNLP'23).
  struct Attention {
    int64_t batch = 0, seq_len = 0, heads = 0, kv_heads = 0, head_size = 0;
    int64_t query_width() const { return heads * head_size; }   // H D
    int64_t key_width() const { return kv_heads * head_size; }  // K D, also that of the values.
    int64_t qkv_width() const { return query_width() + 2 * key_width(); }
  };
  /// Overwrites out [B, T, H D] and log_sum_exp [B, H, T] of the scaled scores.
  virtual void attention_forward(const Attention& shape, ConstNumbers qkv, Numbers out,
                                 float* log_sum_exp) = 0;
  /// Overwrites dqkv, of qkv's shape. Probabilities are computed again from `log_sum_exp`, a block
  /// of rows at a time (FlashAttention, NeurIPS'22, section 3.1). A key's gradient is added up over
  /// the heads that share it, in their order.
  virtual void attention_backward(const Attention& shape, ConstNumbers qkv, ConstNumbers out,
                                  const float* log_sum_exp, ConstNumbers dout, Numbers dqkv) = 0;

  /// The keys and values of one layer for positions of one sequence, each [K, capacity, D], in the
  /// type of qkv.
  struct KeyValueCache {
    Numbers keys, values;
    int64_t capacity = 0;  // Positions that there is room for; 0: there is no cache.
    int64_t length = 0;    // Positions before those of the call, which are in it.
  };
  /// Overwrites positions [length, length + T) of the cache by the keys and values of qkv
  /// [T, (H + 2 K) D]: those that follow of its sequence, so B is 1. There is room for them.
  virtual void append_to_cache(const Attention& shape, ConstNumbers qkv,
                               const KeyValueCache& cache) = 0;
  /// Overwrites out [T, H D]: attention of the same T positions, which have been appended, to
  /// themselves and all before them. Equals the last T rows of `attention_forward` over the whole
  /// sequence, up to rounding.
  virtual void attend_to_cache(const Attention& shape, ConstNumbers qkv, const KeyValueCache& cache,
                               Numbers out) = 0;

  /// Rotary positions: turns channels i and i + D / 2 of each head of q and k, in place, by an
  /// angle of their position in [0, T). v stays. A turn by the opposite angles is the gradient.
  struct Rotation {
    Attention shape;               // D is even.
    const float* turns = nullptr;  // [T, D]: D / 2 cosines, then the sines.
    bool is_opposite = false;
  };
  virtual void rotate(const Rotation& rotation, Numbers qkv) = 0;

  /// Overwrites y [rows, T, C] = wte[token] + wpe[position], without positions if wpe is null.
  struct Embedding {
    std::span<const int32_t> tokens;  // Host memory, [rows * T], each in [0, V).
    int64_t seq_len = 0, channels = 0;
  };
  virtual void embedding_forward(const Embedding& shape, const float* wte, const float* wpe,
                                 Numbers y) = 0;
  /// Adds to dwte [V, C] and dwpe [positions, C], unless it is null, rows in ascending order:
  /// deterministic.
  virtual void embedding_backward(const Embedding& shape, ConstNumbers dy, float* dwte,
                                  float* dwpe) = 0;

  /// logits [rows, V] := gradient of the loss, (softmax - one hot) * scale, and rows of zeros where
  /// the target is -1. Adds the token losses to `loss_sum` and their number to `loss_tokens` (host
  /// memory, valid when the work ends). Rows lie `stride` numbers apart, >= V; what is between them
  /// stays.
  struct CrossEntropy {
    std::span<const int32_t> targets;  // Host memory, [rows].
    int64_t vocab_size = 0;
    int64_t stride = 0;
    float scale = 0;
    double* loss_sum = nullptr;
    int64_t* loss_tokens = nullptr;
  };
  virtual void cross_entropy(const CrossEntropy& shape, Numbers logits) = 0;

  virtual void zero(Numbers x, int64_t count) = 0;
  /// Types may differ: rounds to the nearest, of two to the even one.
  virtual void copy(ConstNumbers from, Numbers to, int64_t count) = 0;
  /// y = a + b; y may be a or b.
  virtual void add(ConstNumbers a, ConstNumbers b, Numbers y, int64_t count) = 0;
  /// Adds values to `sums` by `kExactStep` and zeroes them. A sum that is NaN stays so.
  virtual void move_to_sums(const ExactSum& sum) = 0;
  /// to [count] += from [count], both of such sums.
  virtual void add_sums(const double* from, double* to, int64_t count) = 0;
  /// Overwrites values [count] with the nearest floats of sums [count].
  virtual void round_sums(const double* sums, float* values, int64_t count) = 0;
  /// `result` += sum of squares in float64, in an order that depends on `count` only. Host memory,
  /// valid when the work ends.
  virtual void add_sum_of_squares(const float* x, int64_t count, double* result) = 0;

  /// One parameter's optimizer state. What is in `rounded`, unless it is null, is overwritten with
  /// the new weights, in its type.
  struct AdamwTensor {
    float* weight = nullptr;
    const float* gradient = nullptr;
    float *moment1 = nullptr, *moment2 = nullptr;
    int64_t count = 0;
    bool decays = false;
    Numbers rounded;
  };
  /// AdamW (Loshchilov and Hutter, ICLR'19): decoupled decay, bias correction folded into the
  /// factors. All in place, [count].
  struct Adamw {
    float lr = 0, beta1 = 0, beta2 = 0, eps = 0, decay = 0;
    float correction1 = 1, correction2 = 1;  // 1 - beta^t
    float gradient_factor = 1;
  };
  virtual void adamw(const Adamw& options, const AdamwTensor& tensor) = 0;
  /// SGD with momentum and coupled decay, as PyTorch's: v = momentum v + g; w -= lr v. `rounded` as
  /// above.
  struct Sgd {
    float lr = 0, momentum = 0, decay = 0, gradient_factor = 1;
  };
  struct SgdTensor {
    float* weight = nullptr;
    const float* gradient = nullptr;
    float* velocity = nullptr;
    int64_t count = 0;
    Numbers rounded;
  };
  virtual void sgd(const Sgd& options, const SgdTensor& tensor) = 0;

  /// Between the host and the device. What the host gives lives, and what it gets is valid, when
  /// the work ends. The host's are float32, rounded on the device if `to` is not.
  virtual void copy_in(std::span<const float> from, Numbers to) = 0;
  virtual void copy_out(ConstNumbers from, std::span<float> to) = 0;

  /// A linear layer: x [rows, in], weight [in, out], or [out, in] if `transposed`, y and dy
  /// [rows, out]. There may be no bias (null).
  struct Linear {
    int64_t rows = 0, in = 0, out = 0;
    bool transposed = false;
  };
  /// Fused: overwrites y = x weight + bias.
  virtual void linear(const Linear& shape, ConstNumbers x, ConstNumbers weight, ConstNumbers bias,
                      Numbers y);
  /// Fused: `linear`, then overwrites activated [rows, out] = gelu(y).
  virtual void linear_gelu(const Linear& shape, ConstNumbers x, ConstNumbers weight,
                           ConstNumbers bias, Numbers y, Numbers activated);
  /// Fused: `linear`, then adds `residual` [rows, out], which is not y, to y.
  virtual void linear_residual(const Linear& shape, ConstNumbers x, ConstNumbers weight,
                               ConstNumbers bias, ConstNumbers residual, Numbers y);
  /// Overwrites dx [rows, in] = dy weight^T.
  void linear_input_gradient(const Linear& shape, ConstNumbers dy, ConstNumbers weight, Numbers dx);
  /// Fused: `linear_input_gradient`, then dx := dx * gelu'(before) [rows, in].
  virtual void linear_gelu_gradient(const Linear& shape, ConstNumbers dy, ConstNumbers weight,
                                    ConstNumbers before, Numbers dx);
  /// Adds x^T dy to dweight and the column sums of dy to dbias [out].
  void linear_weight_gradient(const Linear& shape, ConstNumbers x, ConstNumbers dy, float* dweight,
                              float* dbias);

  /// Values that are looked at together with others.
  struct Values {
    const float* data = nullptr;
    int64_t count = 0;
  };
  /// Fused: `add_sum_of_squares` of each.
  virtual void add_sums_of_squares(std::span<const Values> all, double* result);
  /// Fused: `adamw` of each.
  virtual void adamw_all(const Adamw& options, std::span<const AdamwTensor> tensors);

  /// Waits until the device has done what was called so far, and says whether all went well. The
  /// device does so itself at the end of each work.
  virtual absl::Status finish() { return absl::OkStatus(); }
};

}  // namespace skein::gpu
