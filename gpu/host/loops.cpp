#include "gpu/host/loops.hpp"

#include <algorithm>
#include <cmath>

namespace skein::gpu::loops {
namespace {

constexpr float kSqrt2OverPi = 0.7978845608028654F;
constexpr float kGeluCubic = 0.044715F;
/// With -ffast-math a division by infinity is not a number, as it goes by way of a reciprocal: so
/// far below zero, where GELU is zero in float32, exponentials are kept finite.
constexpr float kGeluFloor = -80;

float logistic(float x) { return 1.0F / (1.0F + expf(-std::max(x, kGeluFloor))); }

/// The same with its slope, s (1 - s), of which 1 - s is not made by a subtraction: that would keep
/// rounding errors only where s is close to 1.
struct Logistic {
  float value, slope;
};
Logistic logistic_with_slope(float x) {
  const float e = expf(-std::max(x, kGeluFloor));
  const float s = 1.0F / (1.0F + e);
  return {s, e * s * s};
}

/// Squares are summed in float64 in this many lanes, whatever the vector width of the machine.
constexpr int64_t kLanes = 16;

float max_of(const float* x, int64_t count) {
  float highest = x[0];
  for (int64_t i = 1; i < count; ++i) highest = std::max(highest, x[i]);
  return highest;
}

/// x := exp(x - shift); returns the sum, of parts in float32: over a whole vocabulary float32 would
/// lose what single numbers add to it.
float exp_in_place(float* x, int64_t count, float shift) {
  constexpr int64_t kPart = 1024;
  double sum = 0;
  for (int64_t begin = 0; begin < count; begin += kPart) {
    const int64_t end = std::min(begin + kPart, count);
    float part = 0;
    for (int64_t i = begin; i < end; ++i) {
      x[i] = expf(x[i] - shift);
      part += x[i];
    }
    sum += static_cast<double>(part);
  }
  return static_cast<float>(sum);
}

}  // namespace

void fill_rows(const float* bias, float* y, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) std::copy_n(bias, columns, y + r * columns);
}

void add_column_sums(const float* dy, float* db, int64_t rows, int64_t columns, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = dy + r * stride;
    for (int64_t c = 0; c < columns; ++c) db[c] += row[c];
  }
}

void layer_norm_forward(const Ops::NormForward& norm, int64_t begin, int64_t end) {
  const int64_t columns = norm.columns;
  const float inverse = 1.0F / static_cast<float>(columns);
  for (int64_t r = begin; r < end; ++r) {
    const float* x = norm.x.floats() + r * columns;
    float* y = norm.y.floats() + r * columns;
    float sum = 0;
    for (int64_t c = 0; c < columns; ++c) sum += x[c];
    const float mean = sum * inverse;
    float squares = 0;
    for (int64_t c = 0; c < columns; ++c) squares += (x[c] - mean) * (x[c] - mean);
    const float rstd = 1.0F / std::sqrt(squares * inverse + norm.epsilon);
    for (int64_t c = 0; c < columns; ++c) {
      y[c] = (x[c] - mean) * rstd * norm.weight[c] + norm.bias[c];
    }
    norm.mean[r] = mean;
    norm.rstd[r] = rstd;
  }
}

void layer_norm_backward_input(const Ops::NormBackward& norm, int64_t begin, int64_t end) {
  const int64_t columns = norm.columns;
  const float inverse = 1.0F / static_cast<float>(columns);
  for (int64_t r = begin; r < end; ++r) {
    const float* dy = norm.dy.floats() + r * columns;
    const float* x = norm.x.floats() + r * columns;
    float* dx = norm.dx.floats() + r * columns;
    const float mean = norm.mean[r];
    const float rstd = norm.rstd[r];
    float sum = 0;
    float sum_hat = 0;
    for (int64_t c = 0; c < columns; ++c) {
      const float g = dy[c] * norm.weight[c];
      sum += g;
      sum_hat += g * (x[c] - mean);
    }
    sum *= inverse;
    sum_hat *= inverse * rstd * rstd;
    if (norm.residual.is_null()) std::fill_n(dx, columns, 0.0F);
    const float* residual = norm.residual.is_null() ? dx : norm.residual.floats() + r * columns;
    for (int64_t c = 0; c < columns; ++c) {
      dx[c] = residual[c] + rstd * (dy[c] * norm.weight[c] - sum - (x[c] - mean) * sum_hat);
    }
  }
}

void layer_norm_backward_weight(const Ops::NormBackward& norm, int64_t begin, int64_t end) {
  for (int64_t r = 0; r < norm.rows; ++r) {
    const float* dy = norm.dy.floats() + r * norm.columns;
    const float* x = norm.x.floats() + r * norm.columns;
    const float mean = norm.mean[r];
    const float rstd = norm.rstd[r];
    for (int64_t c = begin; c < end; ++c) {
      norm.dweight[c] += dy[c] * (x[c] - mean) * rstd;
      norm.dbias[c] += dy[c];
    }
  }
}

void rms_norm_forward(const Ops::NormForward& norm, int64_t begin, int64_t end) {
  const int64_t columns = norm.columns;
  const float inverse = 1.0F / static_cast<float>(columns);
  for (int64_t r = begin; r < end; ++r) {
    const float* x = norm.x.floats() + r * columns;
    float* y = norm.y.floats() + r * columns;
    const float rstd = 1.0F / std::sqrt(dot(x, x, columns) * inverse + norm.epsilon);
    for (int64_t c = 0; c < columns; ++c) y[c] = x[c] * rstd * norm.weight[c];
    norm.rstd[r] = rstd;
  }
}

void rms_norm_backward_input(const Ops::NormBackward& norm, int64_t begin, int64_t end) {
  const int64_t columns = norm.columns;
  const float inverse = 1.0F / static_cast<float>(columns);
  for (int64_t r = begin; r < end; ++r) {
    const float* dy = norm.dy.floats() + r * columns;
    const float* x = norm.x.floats() + r * columns;
    float* dx = norm.dx.floats() + r * columns;
    const float rstd = norm.rstd[r];
    float sum = 0;
    for (int64_t c = 0; c < columns; ++c) sum += dy[c] * norm.weight[c] * x[c];
    sum *= inverse * rstd * rstd;
    if (norm.residual.is_null()) std::fill_n(dx, columns, 0.0F);
    const float* residual = norm.residual.is_null() ? dx : norm.residual.floats() + r * columns;
    for (int64_t c = 0; c < columns; ++c) {
      dx[c] = residual[c] + rstd * (dy[c] * norm.weight[c] - x[c] * sum);
    }
  }
}

void rms_norm_backward_weight(const Ops::NormBackward& norm, int64_t begin, int64_t end) {
  for (int64_t r = 0; r < norm.rows; ++r) {
    const float* dy = norm.dy.floats() + r * norm.columns;
    const float* x = norm.x.floats() + r * norm.columns;
    const float rstd = norm.rstd[r];
    for (int64_t c = begin; c < end; ++c) norm.dweight[c] += dy[c] * x[c] * rstd;
  }
}

void gelu_forward(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float v = x[i];
    // 0.5 (1 + tanh(u)) is the logistic function of 2u.
    const float u = std::max(2 * kSqrt2OverPi * (v + kGeluCubic * v * v * v), kGeluFloor);
    y[i] = v / (1.0F + expf(-u));
  }
}

void gelu_backward(const float* x, float* dy, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float v = x[i];
    const Logistic s = logistic_with_slope(2 * kSqrt2OverPi * (v + kGeluCubic * v * v * v));
    const float du = 2 * kSqrt2OverPi * (1.0F + 3 * kGeluCubic * v * v);
    dy[i] *= s.value + v * s.slope * du;
  }
}

void swiglu_forward(const float* gate, const float* value, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = gate[i] * logistic(gate[i]) * value[i];
}

void swiglu_backward(const float* gate, const float* value, const float* dy, float* dgate,
                     float* dvalue, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = gate[i];
    const Logistic s = logistic_with_slope(g);
    dgate[i] = dy[i] * value[i] * (s.value + g * s.slope);
    dvalue[i] = dy[i] * g * s.value;
  }
}

void rotate(const float* turns, float direction, float* channels, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float cosine = turns[i];
    const float sine = direction * turns[pairs + i];
    const float a = channels[i];
    const float b = channels[pairs + i];
    channels[i] = a * cosine - b * sine;
    channels[pairs + i] = b * cosine + a * sine;
  }
}

void add(const float* a, const float* b, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = a[i] + b[i];
}

double sum_of_squares(const float* x, int64_t count) {
  double lanes[kLanes] = {};
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double v = x[i + lane];
      lanes[lane] += v * v;
    }
  }
  for (int64_t i = whole; i < count; ++i) lanes[i - whole] += double{x[i]} * double{x[i]};
  double sum = 0;
  for (double lane : lanes) sum += lane;
  return sum;
}

void adamw(const Ops::Adamw& options, float* weight, const float* gradient, float* moment1,
           float* moment2, int64_t count) {
  const float step = options.lr / options.correction1;
  const float root = 1.0F / std::sqrt(options.correction2);
  const float keep = 1.0F - options.lr * options.decay;
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * options.gradient_factor;
    const float m = options.beta1 * moment1[i] + (1.0F - options.beta1) * g;
    const float v = options.beta2 * moment2[i] + (1.0F - options.beta2) * g * g;
    moment1[i] = m;
    moment2[i] = v;
    weight[i] = weight[i] * keep - step * m / (std::sqrt(v) * root + options.eps);
  }
}

void sgd(const Ops::Sgd& options, float* weight, const float* gradient, float* velocity,
         int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * options.gradient_factor + options.decay * weight[i];
    velocity[i] = options.momentum * velocity[i] + g;
    weight[i] -= options.lr * velocity[i];
  }
}

double cross_entropy_row(float* logits, int64_t count, int32_t target, float scale) {
  const float highest = max_of(logits, count);
  const float right = logits[target] - highest;
  const float sum = exp_in_place(logits, count, highest);
  const float factor = scale / sum;
  for (int64_t i = 0; i < count; ++i) logits[i] *= factor;
  logits[target] -= scale;
  return std::log(static_cast<double>(sum)) - static_cast<double>(right);
}

float softmax_row(float* scores, int64_t count, int64_t padded) {
  const float highest = max_of(scores, count);
  const float sum = exp_in_place(scores, count, highest);
  const float factor = 1.0F / sum;
  for (int64_t i = 0; i < count; ++i) scores[i] *= factor;
  std::fill(scores + count, scores + padded, 0.0F);
  return highest + std::log(sum);
}

void exp_row(float* scores, int64_t count, int64_t padded, float log_sum_exp) {
  exp_in_place(scores, count, log_sum_exp);
  std::fill(scores + count, scores + padded, 0.0F);
}

void softmax_backward_row(const float* probabilities, float* dscores, int64_t count, float delta,
                          float factor) {
  for (int64_t i = 0; i < count; ++i) {
    dscores[i] = probabilities[i] * (dscores[i] - delta) * factor;
  }
}

float dot(const float* a, const float* b, int64_t count) {
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace skein::gpu::loops
