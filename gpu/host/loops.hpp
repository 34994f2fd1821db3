#pragma once

#include <cstdint>

#include "gpu/ops.hpp"

// Loops over ranges of rows or elements, each on the calling thread. Compiled with the vector
// instructions of SKEIN_MARCH and relaxed floating point: no NaN or infinity is produced by them
// from finite input, and none is tested for.
namespace skein::gpu::loops {

void fill_rows(const float* bias, float* y, int64_t rows, int64_t columns);
void add_column_sums(const float* dy, float* db, int64_t rows, int64_t columns, int64_t stride);
void layer_norm_forward(const Ops::NormForward& norm, int64_t begin, int64_t end);
/// Input gradient of rows [begin, end).
void layer_norm_backward_input(const Ops::NormBackward& norm, int64_t begin, int64_t end);
/// Parameter gradients of columns [begin, end), over all rows.
void layer_norm_backward_weight(const Ops::NormBackward& norm, int64_t begin, int64_t end);
/// The same of an RMS norm.
void rms_norm_forward(const Ops::NormForward& norm, int64_t begin, int64_t end);
void rms_norm_backward_input(const Ops::NormBackward& norm, int64_t begin, int64_t end);
void rms_norm_backward_weight(const Ops::NormBackward& norm, int64_t begin, int64_t end);
void gelu_forward(const float* x, float* y, int64_t count);
void gelu_backward(const float* x, float* dy, int64_t count);
/// One row: y [count] := gate * logistic(gate) * value; and the gradients of both.
void swiglu_forward(const float* gate, const float* value, float* y, int64_t count);
void swiglu_backward(const float* gate, const float* value, const float* dy, float* dgate,
                     float* dvalue, int64_t count);
/// One head of 2 pairs channels: pairs (i, i + pairs) turned by `turns`, as many cosines and then
/// sines; the latter times `direction`, 1 or -1.
void rotate(const float* turns, float direction, float* channels, int64_t pairs);
void add(const float* a, const float* b, float* y, int64_t count);
double sum_of_squares(const float* x, int64_t count);
void adamw(const Ops::Adamw& options, float* weight, const float* gradient, float* moment1,
           float* moment2, int64_t count);
void sgd(const Ops::Sgd& options, float* weight, const float* gradient, float* velocity,
         int64_t count);
/// One row: logits [count] := (softmax - one hot) * scale; returns the loss.
double cross_entropy_row(float* logits, int64_t count, int32_t target, float scale);
/// scores [count] := exp(scores - max) / sum, and zeros up to `padded`; returns max + log(sum).
float softmax_row(float* scores, int64_t count, int64_t padded);
/// scores [count] := exp(scores - log_sum_exp), and zeros up to `padded`.
void exp_row(float* scores, int64_t count, int64_t padded, float log_sum_exp);
/// dscores [count] := probabilities * (dscores - delta) * factor.
void softmax_backward_row(const float* probabilities, float* dscores, int64_t count, float delta,
                          float factor);
float dot(const float* a, const float* b, int64_t count);

}  // namespace skein::gpu::loops
