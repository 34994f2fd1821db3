// The ops of GPT-2's smallest model in the shapes that training has, each against the host's, and
// against the ops that a fused one is made of. An emulated GPU gets smaller ones.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/gpu/cuda_ops_fixture.hpp"

namespace skein::gpu {
namespace {

class CudaShapes : public CudaOps {};

/// A weight's gradient: as many products are added up as a micro-batch has tokens.
TEST_P(CudaShapes, AddUpTheGradientsOfAWholeMicroBatch) {
  const Ops::Linear shape{large(16384, 256), large(768, 16), large(3072, 24)};
  // What accumulates is as large as the root of the rows; rounding in other orders is not.
  compare("weight gradient", {tolerance_of(1e-4, kStored)}, [&](Bench& bench) {
    const Activations x = bench.activations(random_values(shape.rows * shape.in, 1));
    const Activations dy = bench.activations(random_values(shape.rows * shape.out, 2));
    const Tensor dweight = bench.make(random_values(shape.in * shape.out, 3));
    const Tensor dbias = bench.make(random_values(shape.out, 4));
    EXPECT_TRUE(bench
                    .run([&](Ops& ops) {
                      ops.linear_weight_gradient(shape, x.data, dy.data, dweight.data, dbias.data);
                    })
                    .ok());
    return Outputs{bench.read(dweight), bench.read(dbias)};
  });
}

/// On one device, as only rounding may differ.
TEST_P(CudaShapes, FusedOpsAreWhatTheyAreMadeOf) {
  const Ops::Linear shape{large(16384, 64), large(768, 16), large(3072, 24)};
  const int64_t rows = shape.rows, in = shape.in, out = shape.out;
  Bench& bench = *cuda_;
  const Activations x = bench.activations(random_values(rows * in, 1));
  const Activations weight = bench.activations(random_values(in * out, 2, 0.05));
  const Activations bias = bench.activations(random_values(out, 3));
  const Activations dy = bench.activations(random_values(rows * out, 4));
  Activations y[2], activated[2], sum[2], slope[2];
  Tensor dweight[2], dbias[2];
  for (int i = 0; i < 2; ++i) {
    y[i] = bench.poisoned_activations(rows * out);
    activated[i] = bench.poisoned_activations(rows * out);
    sum[i] = bench.poisoned_activations(rows * out);
    slope[i] = bench.poisoned_activations(rows * in);
    dweight[i] = bench.make(random_values(in * out, 5));
    dbias[i] = bench.make(random_values(out, 6));
  }
  const auto run_both = [&](Ops& ops) {
    ops.linear_gelu(shape, x.data, weight.data, bias.data, y[0].data, activated[0].data);
    ops.linear_residual(shape, x.data, weight.data, bias.data, dy.data, sum[0].data);
    ops.linear_gelu_gradient(shape, dy.data, weight.data, x.data, slope[0].data);
    ops.linear_weight_gradient(shape, x.data, dy.data, dweight[0].data, dbias[0].data);
    ops.fill_rows(bias.data, y[1].data, rows, out);
    ops.matmul({rows, out, in, false, false, true}, x.data, weight.data, y[1].data);
    ops.gelu_forward(y[1].data, activated[1].data, rows * out);
    ops.add(y[1].data, dy.data, sum[1].data, rows * out);
    ops.matmul({rows, in, out, false, true, false}, dy.data, weight.data, slope[1].data);
    ops.gelu_backward(x.data, slope[1].data, rows * in);
    ops.matmul({in, out, rows, true, false, true}, x.data, dy.data, dweight[1].data);
    ops.add_column_sums(dy.data, dbias[1].data, rows, out);
  };
  ASSERT_TRUE(bench.run(run_both).ok());
  const double stored = tolerance_of(1e-3, 2 * kStored);  // TF32 or not; or two roundings.
  expect_near(bench.read(y[0]), bench.read(y[1]), stored, "y");
  expect_near(bench.read(activated[0]), bench.read(activated[1]), stored, "gelu");
  expect_near(bench.read(sum[0]), bench.read(sum[1]), stored, "residual");
  expect_near(bench.read(slope[0]), bench.read(slope[1]), stored, "gelu gradient");
  expect_near(bench.read(dweight[0]), bench.read(dweight[1]), 1e-3, "dweight");
  expect_near(bench.read(dbias[0]), bench.read(dbias[1]), 1e-3, "dbias");
}

TEST_P(CudaShapes, AttendToAWholeMicroBatch) {
  const int64_t heads = large(12, 2);
  const Ops::Attention shape{large(16, 2), large(1024, 70), heads, heads, 64};
  const int64_t n = shape.batch * shape.seq_len, c = shape.query_width();
  compare("attention", {tolerance_of(1e-4, kRounded)}, [&](Bench& bench) {
    const Activations qkv = bench.activations(random_values(3 * n * c, 1));
    const Activations dout = bench.activations(random_values(n * c, 2));
    const Activations out = bench.poisoned_activations(n * c);
    const Activations dqkv = bench.poisoned_activations(3 * n * c);
    const Tensor sums = bench.poisoned(n * shape.heads);
    EXPECT_TRUE(bench
                    .run([&](Ops& ops) {
                      ops.attention_forward(shape, qkv.data, out.data, sums.data);
                      ops.attention_backward(shape, qkv.data, out.data, sums.data, dout.data,
                                             dqkv.data);
                    })
                    .ok());
    return Outputs{bench.read(out), bench.read(sums), bench.read(dqkv)};
  });
}

/// GPT-2's vocabulary, which is odd, in rows as a model has them on this device.
TEST_P(CudaShapes, FindLossesOverAnOddVocabulary) {
  const int64_t rows = large(1024, 16), c = large(768, 16), v = large(50257, 253);
  const int64_t stride = (v + 63) / 64 * 64;
  const std::vector<int32_t> targets = random_tokens(rows, static_cast<uint64_t>(v), 3);
  const double stored = tolerance_of(1e-3, kRounded);
  compare("head", {stored, stored, 1e-3}, [&](Bench& bench) {
    const Activations x = bench.activations(random_values(rows * c, 1));
    const Activations matrix = bench.activations(random_values(v * c, 2, 0.02));
    const Activations logits = bench.activations(std::vector<float>(rows * stride, 0));
    const Activations dx = bench.poisoned_activations(rows * c);
    const Tensor dmatrix = bench.make(std::vector<float>(v * c, 0));
    double sum = 0;
    int64_t counted = 0;
    EXPECT_TRUE(bench
                    .run([&](Ops& ops) {
                      ops.matmul(
                          {.m = rows, .n = v, .k = c, .transpose_b = true, .c_stride = stride},
                          x.data, matrix.data, logits.data);
                      ops.cross_entropy({targets, v, stride, 1, &sum, &counted}, logits.data);
                      ops.matmul({.m = rows, .n = c, .k = v, .a_stride = stride}, logits.data,
                                 matrix.data, dx.data);
                      ops.matmul({.m = v,
                                  .n = c,
                                  .k = rows,
                                  .transpose_a = true,
                                  .accumulate = true,
                                  .a_stride = stride},
                                 logits.data, x.data, dmatrix.data);
                    })
                    .ok());
    EXPECT_EQ(counted, rows);
    return Outputs{bench.read(dx), bench.read(dmatrix), {static_cast<float>(sum)}};
  });
}

INSTANTIATE_TEST_SUITE_P(Precision, CudaShapes, testing::Values("float32", "bfloat16"));

}  // namespace
}  // namespace skein::gpu
