#include "gpu/ops.hpp"

namespace skein::gpu {

void Ops::linear(const Linear& shape, ConstNumbers x, ConstNumbers weight, ConstNumbers bias,
                 Numbers y) {
  const bool has_bias = !bias.is_null();
  if (has_bias) fill_rows(bias, y, shape.rows, shape.out);
  matmul({shape.rows, shape.out, shape.in, false, shape.transposed, has_bias}, x, weight, y);
}

void Ops::linear_input_gradient(const Linear& shape, ConstNumbers dy, ConstNumbers weight,
                                Numbers dx) {
  matmul({shape.rows, shape.in, shape.out, false, !shape.transposed, false}, dy, weight, dx);
}

void Ops::linear_residual(const Linear& shape, ConstNumbers x, ConstNumbers weight,
                          ConstNumbers bias, ConstNumbers residual, Numbers y) {
  linear(shape, x, weight, bias, y);
  add(y, residual, y, shape.rows * shape.out);
}

void Ops::linear_gelu_gradient(const Linear& shape, ConstNumbers dy, ConstNumbers weight,
                               ConstNumbers before, Numbers dx) {
  linear_input_gradient(shape, dy, weight, dx);
  gelu_backward(before, dx, shape.rows * shape.in);
}

void Ops::linear_gelu(const Linear& shape, ConstNumbers x, ConstNumbers weight, ConstNumbers bias,
                      Numbers y, Numbers activated) {
  linear(shape, x, weight, bias, y);
  gelu_forward(y, activated, shape.rows * shape.out);
}

void Ops::linear_weight_gradient(const Linear& shape, ConstNumbers x, ConstNumbers dy,
                                 float* dweight, float* dbias) {
  if (shape.transposed) {
    matmul({shape.out, shape.in, shape.rows, true, false, true}, dy, x, dweight);
  } else {
    matmul({shape.in, shape.out, shape.rows, true, false, true}, x, dy, dweight);
  }
  if (dbias != nullptr) add_column_sums(dy, dbias, shape.rows, shape.out);
}

void Ops::add_sums_of_squares(std::span<const Values> all, double* result) {
  for (const Values& values : all) add_sum_of_squares(values.data, values.count, result);
}

void Ops::adamw_all(const Adamw& options, std::span<const AdamwTensor> tensors) {
  for (const AdamwTensor& tensor : tensors) adamw(options, tensor);
}

}  // namespace skein::gpu
