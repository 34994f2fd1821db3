// The host's ops of Llama's choices against what their definitions give in float64, on odd sizes;
// gradients against central differences of those.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "gpu/host/host_ops.hpp"
#include "gpu/host/thread_pool.hpp"
#include "gpu/model/rotary_turns.hpp"
#include "plans/base/rng.hpp"

namespace skein::gpu {
namespace {

using Values = std::vector<double>;
using Function = std::function<Values(const Values&)>;

std::vector<float> random_values(int64_t count, uint64_t stream, double scale = 1) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(scale * plans::random_normal(7, stream, i));
  }
  return values;
}

void expect_near(const std::vector<float>& got, const Values& wanted, double tolerance) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], wanted[i], tolerance * (1 + std::abs(wanted[i]))) << i;
  }
}

/// The gradient of f(x) . dy at x, by central differences in float64.
Values gradient(const Function& f, const std::vector<float>& x, const std::vector<float>& dy) {
  constexpr double kStep = 1e-5;
  Values at(x.begin(), x.end());
  auto product = [&] {
    const Values y = f(at);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * double{dy[i]};
    return sum;
  };
  Values slopes;
  for (double& value : at) {
    const double here = value;
    value = here + kStep;
    const double above = product();
    value = here - kStep;
    slopes.push_back((above - product()) / (2 * kStep));
    value = here;
  }
  return slopes;
}

Values plus(Values a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += double{b[i]};
  return a;
}

class LlamaOps : public testing::Test {
 protected:
  ThreadPool pool_{2};
  HostOps ops_{pool_};
};

Values rms_norm(const Values& x, const Values& weight, double epsilon) {
  Values y;
  for (size_t row = 0; row < x.size(); row += weight.size()) {
    double squares = 0;
    for (size_t c = 0; c < weight.size(); ++c) squares += x[row + c] * x[row + c];
    const double root = std::sqrt(squares / static_cast<double>(weight.size()) + epsilon);
    for (size_t c = 0; c < weight.size(); ++c) y.push_back(x[row + c] / root * weight[c]);
  }
  return y;
}

TEST_F(LlamaOps, RmsNormAndItsGradients) {
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{1, 1}, {3, 7}, {21, 5}, {2, 65}}) {
    const std::vector<float> x = random_values(rows * columns, 1);
    const std::vector<float> weight = random_values(columns, 2);
    const std::vector<float> dy = random_values(rows * columns, 3);
    const Values x64(x.begin(), x.end()), weight64(weight.begin(), weight.end());
    constexpr float kEpsilon = 0.01F;
    std::vector<float> y(x.size(), NAN), rstd(static_cast<size_t>(rows), NAN);
    ops_.norm_forward({x.data(), weight.data(), nullptr, y.data(), nullptr, rstd.data(), rows,
                       columns, kEpsilon});
    expect_near(y, rms_norm(x64, weight64, double{kEpsilon}), 1e-5);

    const std::vector<float> dx0 = random_values(rows * columns, 4);
    const std::vector<float> dweight0 = random_values(columns, 5);
    std::vector<float> dx = dx0, dweight = dweight0;
    ops_.norm_backward({dy.data(), x.data(), weight.data(), nullptr, rstd.data(), dx.data(),
                        dx.data(), dweight.data(), nullptr, rows, columns});
    const Function of_x = [&](const Values& at) {
      return rms_norm(at, weight64, double{kEpsilon});
    };
    const Function of_weight = [&](const Values& at) {
      return rms_norm(x64, at, double{kEpsilon});
    };
    expect_near(dx, plus(gradient(of_x, x, dy), dx0), 2e-5);
    expect_near(dweight, plus(gradient(of_weight, weight, dy), dweight0), 2e-5);
  }
}

Values swiglu(const Values& x, int64_t width) {
  const auto w = static_cast<size_t>(width);
  Values y;
  for (size_t row = 0; row < x.size(); row += 2 * w) {
    for (size_t c = 0; c < w; ++c) {
      const double gate = x[row + c];
      y.push_back(gate / (1 + std::exp(-gate)) * x[row + w + c]);
    }
  }
  return y;
}

TEST_F(LlamaOps, SwigluAndItsGradient) {
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{1, 1}, {3, 7}, {19, 5}, {2, 65}}) {
    const std::vector<float> x = random_values(rows * 2 * width, 1, 3);
    const std::vector<float> dy = random_values(rows * width, 2);
    std::vector<float> y(dy.size(), NAN), dx(x.size(), NAN);
    ops_.swiglu_forward({rows, width}, x.data(), y.data());
    ops_.swiglu_backward({rows, width}, x.data(), dy.data(), dx.data());
    const Function f = [width = width](const Values& at) { return swiglu(at, width); };
    expect_near(y, f(Values(x.begin(), x.end())), 1e-5);
    expect_near(dx, gradient(f, x, dy), 1e-5);
  }
}

TEST_F(LlamaOps, AGateFarFromZeroIsShutOrOpen) {
  const std::vector<float> x = {-1000, -90, 0, 90, 1000, 2, 2, 2, 2, 2};
  const std::vector<float> dy(5, 1);
  std::vector<float> y(5, NAN), dx(10, NAN);
  ops_.swiglu_forward({1, 5}, x.data(), y.data());
  ops_.swiglu_backward({1, 5}, x.data(), dy.data(), dx.data());
  expect_near(y, {0, 0, 0, 180, 2000}, 1e-6);
  expect_near(dx, {0, 0, 1, 2, 2, 0, 0, 0, 90, 1000}, 1e-6);
}

/// The matrix form: channel i of a head is the real and i + D / 2 the imaginary part.
Values rotate(const Values& qkv, const Ops::Attention& shape, double theta) {
  Values y = qkv;
  const int64_t size = shape.head_size;
  for (int64_t row = 0; row < shape.batch * shape.seq_len; ++row) {
    for (int64_t head = 0; head < shape.heads + shape.kv_heads; ++head) {
      for (int64_t i = 0; i < size / 2; ++i) {
        const double angle = static_cast<double>(row % shape.seq_len) *
                             std::pow(theta, -2.0 * static_cast<double>(i) / double(size));
        const auto a = static_cast<size_t>(row * shape.qkv_width() + head * size + i);
        const auto b = a + static_cast<size_t>(size / 2);
        y[a] = qkv[a] * std::cos(angle) - qkv[b] * std::sin(angle);
        y[b] = qkv[b] * std::cos(angle) + qkv[a] * std::sin(angle);
      }
    }
  }
  return y;
}

TEST_F(LlamaOps, TurnsAndTheirGradient) {
  for (const Ops::Attention& shape : {Ops::Attention{1, 1, 1, 1, 2},
                                      {2, 3, 2, 2, 6},
                                      {1, 5, 3, 3, 14},
                                      {2, 4, 1, 1, 10},
                                      {2, 5, 4, 2, 6}}) {
    plans::ModelSpec model;
    model.position_embedding_type = "rotary";
    model.heads = shape.heads;
    model.head_size = shape.head_size;
    model.rope_theta = 30;
    const std::vector<float> turns = rotary_turns(model, shape.seq_len);
    const std::vector<float> x = random_values(shape.batch * shape.seq_len * shape.qkv_width(), 1);
    std::vector<float> y = x;
    ops_.rotate({shape, turns.data(), false}, y.data());
    const Function f = [&](const Values& at) { return rotate(at, shape, model.rope_theta); };
    expect_near(y, f(Values(x.begin(), x.end())), 1e-6);
    const std::vector<float> dy = random_values(static_cast<int64_t>(x.size()), 2);
    std::vector<float> dx = dy;
    ops_.rotate({shape, turns.data(), true}, dx.data());
    expect_near(dx, gradient(f, x, dy), 1e-6);
  }
}

/// Attention by its definition, score by score.
Values attend(const Values& qkv, const Ops::Attention& shape) {
  const int64_t size = shape.head_size;
  const int64_t shared_by = shape.heads / shape.kv_heads;
  Values out;
  for (int64_t row = 0; row < shape.batch * shape.seq_len; ++row) {
    const int64_t first = row - row % shape.seq_len;
    for (int64_t head = 0; head < shape.heads; ++head) {
      const int64_t k = (shape.heads + head / shared_by) * size;
      auto at = [&](int64_t token, int64_t column) {
        return qkv[static_cast<size_t>(token * shape.qkv_width() + column)];
      };
      Values weights;
      double total = 0;
      for (int64_t key = first; key <= row; ++key) {
        double score = 0;
        for (int64_t i = 0; i < size; ++i) score += at(row, head * size + i) * at(key, k + i);
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(size))));
        total += weights.back();
      }
      for (int64_t i = 0; i < size; ++i) {
        double sum = 0;
        for (int64_t key = first; key <= row; ++key) {
          const double weight = weights[static_cast<size_t>(key - first)] / total;
          sum += weight * at(key, k + shape.key_width() + i);
        }
        out.push_back(sum);
      }
    }
  }
  return out;
}

TEST_F(LlamaOps, HeadsShareKeysAndTheirGradientsAddUp) {
  for (const Ops::Attention& shape : {Ops::Attention{1, 1, 1, 1, 1},
                                      {2, 5, 2, 2, 3},
                                      {2, 5, 4, 2, 3},
                                      {1, 6, 3, 1, 4},
                                      {1, 67, 2, 1, 2}}) {
    const int64_t rows = shape.batch * shape.seq_len;
    const std::vector<float> qkv = random_values(rows * shape.qkv_width(), 1);
    const std::vector<float> dout = random_values(rows * shape.query_width(), 2);
    std::vector<float> out(dout.size(), NAN), dqkv(qkv.size(), NAN);
    std::vector<float> log_sum_exp(static_cast<size_t>(rows * shape.heads), NAN);
    ops_.attention_forward(shape, qkv.data(), out.data(), log_sum_exp.data());
    ops_.attention_backward(shape, qkv.data(), out.data(), log_sum_exp.data(), dout.data(),
                            dqkv.data());
    const Function f = [&](const Values& at) { return attend(at, shape); };
    expect_near(out, f(Values(qkv.begin(), qkv.end())), 1e-5);
    expect_near(dqkv, gradient(f, qkv, dout), 1e-4);
  }
}

/// The same keys, once for all heads and once for each: the same bits.
TEST_F(LlamaOps, SharedKeysAreAsCopiesOfThem) {
  const Ops::Attention shared{2, 70, 4, 2, 6};
  Ops::Attention copied = shared;
  copied.kv_heads = copied.heads;
  const int64_t rows = shared.batch * shared.seq_len, size = shared.head_size;
  const std::vector<float> qkv = random_values(rows * shared.qkv_width(), 1);
  std::vector<float> spread;
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = qkv.data() + row * shared.qkv_width();
    spread.insert(spread.end(), from, from + shared.query_width());
    for (int64_t part = 0; part < 2; ++part) {
      for (int64_t head = 0; head < shared.heads; ++head) {
        const float* key =
            from + shared.query_width() + part * shared.key_width() + head / 2 * size;
        spread.insert(spread.end(), key, key + size);
      }
    }
  }
  const auto count = static_cast<size_t>(rows * shared.query_width());
  const auto statistics = static_cast<size_t>(rows * shared.heads);
  std::vector<float> out(count), other_out(count), sums(statistics), other_sums(statistics);
  ops_.attention_forward(shared, qkv.data(), out.data(), sums.data());
  ops_.attention_forward(copied, spread.data(), other_out.data(), other_sums.data());
  EXPECT_EQ(out, other_out);
  EXPECT_EQ(sums, other_sums);
}

/// Waves that go into the original length more often than `high` stay, those that do less often
/// than `low` are `factor` times as long, and in between there is no jump.
TEST_F(LlamaOps, LongWavesAreScaled) {
  plans::ModelSpec model;
  model.position_embedding_type = "rotary";
  model.head_size = 64;
  model.rope_theta = 500000;
  const Values plain = plans::rotary_frequencies(model);
  model.rope_factor = 8;
  model.rope_type = "linear";
  const Values linear = plans::rotary_frequencies(model);
  model.rope_type = "llama3";
  const Values scaled = plans::rotary_frequencies(model);
  ASSERT_EQ(scaled.size(), 32u);
  int kept = 0, long_waves = 0;
  for (size_t i = 0; i < scaled.size(); ++i) {
    EXPECT_DOUBLE_EQ(linear[i], plain[i] / 8);
    EXPECT_LE(scaled[i], plain[i] * (1 + 1e-12));
    EXPECT_GE(scaled[i], plain[i] / 8 * (1 - 1e-12));
    const double waves = 8192 * plain[i] / (2 * M_PI);
    if (waves > 4) kept += std::abs(scaled[i] / plain[i] - 1) < 1e-12 ? 1 : -100;
    if (waves < 1) long_waves += std::abs(scaled[i] / plain[i] * 8 - 1) < 1e-12 ? 1 : -100;
    if (i > 0) {
      EXPECT_LT(scaled[i], scaled[i - 1]);
    }
  }
  EXPECT_GT(kept, 5);
  EXPECT_GT(long_waves, 5);
  EXPECT_LT(kept + long_waves, 32);
}

TEST_F(LlamaOps, ScoresDependOnTheDistanceOnly) {
  const Ops::Attention shape{1, 9, 1, 1, 6};
  plans::ModelSpec model;
  model.position_embedding_type = "rotary";
  model.channels = 6;
  model.heads = 1;
  const std::vector<float> turns = rotary_turns(model, shape.seq_len);
  const std::vector<float> same = random_values(18, 1);
  std::vector<float> qkv;
  for (int64_t t = 0; t < shape.seq_len; ++t) qkv.insert(qkv.end(), same.begin(), same.end());
  ops_.rotate({shape, turns.data(), false}, qkv.data());
  auto score = [&](size_t query, size_t key) {
    double sum = 0;
    for (size_t c = 0; c < 6; ++c) sum += double{qkv[query * 18 + c]} * qkv[key * 18 + 6 + c];
    return sum;
  };
  for (size_t distance = 0; distance < 9; ++distance) {
    for (size_t key = 0; key + distance < 9; ++key) {
      EXPECT_NEAR(score(key + distance, key), score(distance, 0), 1e-5);
    }
  }
}

}  // namespace
}  // namespace skein::gpu
