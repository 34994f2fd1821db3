// The ops that only Llama's choices need, of the CUDA back end against the host's, as
// cuda_ops_test.cpp has the others.

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "tests/gpu/cuda_ops_fixture.hpp"

namespace skein::gpu {
namespace {

class CudaLlamaOps : public CudaOps {};

TEST_P(CudaLlamaOps, NormaliseByTheRootOfTheMeanSquare) {
  for (const auto& [rows, columns] : norm_shapes()) {
    compare(
        "RMS norm of " + std::to_string(rows) + " x " + std::to_string(columns),
        {tolerance_of(1e-5, kStored), tolerance_of(1e-5, kStored), tolerance_of(1e-5, kRounded)},
        [&, rows = rows, columns = columns](Bench& bench) {
          const int64_t n = rows * columns;
          const Activations a = bench.activations(random_values(n, 1));
          const Activations b = bench.activations(random_values(n, 2));
          const Tensor weight = bench.make(random_values(columns, 3));
          const Activations y = bench.poisoned_activations(n);
          const Activations sum = bench.poisoned_activations(n);
          const Activations fused = bench.poisoned_activations(n);
          const Tensor rstd = bench.poisoned(rows);
          const Activations dx = bench.activations(random_values(n, 5));
          const Tensor dweight = bench.make(random_values(columns, 6));
          EXPECT_TRUE(bench
                          .run([&](Ops& ops) {
                            ops.norm_forward({a.data, weight.data, nullptr, y.data, nullptr,
                                              rstd.data, rows, columns, 1e-3F});
                            ops.add(a.data, b.data, sum.data, n);
                            ops.norm_forward({sum.data, weight.data, nullptr, fused.data, nullptr,
                                              rstd.data, rows, columns, 1e-3F});
                            ops.norm_backward({b.data, sum.data, weight.data, nullptr, rstd.data,
                                               a.data, dx.data, dweight.data, nullptr, rows,
                                               columns});
                          })
                          .ok());
          return Outputs{bench.read(y),    bench.read(sum), bench.read(fused),
                         bench.read(rstd), bench.read(dx),  bench.read(dweight)};
        });
  }
}

TEST_P(CudaLlamaOps, GateValues) {
  for (const auto& [rows, width] : std::vector<std::array<int64_t, 2>>{
           {1, 1}, {3, 7}, {5, 256}, {2, 257}, {large(5000, 40), large(1100, 300)}}) {
    const Ops::Swiglu shape{rows, width};
    compare("swiglu of " + std::to_string(rows) + " x " + std::to_string(width),
            {tolerance_of(1e-5, kStored)}, [&, n = rows * width](Bench& bench) {
              // Far from zero, too, where the exponential overflows.
              const Activations x = bench.activations(random_values(2 * n, 1, 40));
              const Activations dy = bench.activations(random_values(n, 2));
              const Activations y = bench.poisoned_activations(n);
              const Activations dx = bench.poisoned_activations(2 * n);
              EXPECT_TRUE(bench
                              .run([&](Ops& ops) {
                                ops.swiglu_forward(shape, x.data, y.data);
                                ops.swiglu_backward(shape, x.data, dy.data, dx.data);
                              })
                              .ok());
              return Outputs{bench.read(y), bench.read(dx)};
            });
  }
}

TEST_P(CudaLlamaOps, TurnQueriesAndKeys) {
  const Ops::Attention shapes[] = {{1, 1, 1, 1, 2},   {2, 7, 2, 2, 6},
                                   {3, 5, 4, 4, 130}, {2, large(1000, 40), 3, 3, 32},
                                   {2, 7, 4, 2, 6},   {1, 33, 6, 1, 10}};
  for (const Ops::Attention& shape : shapes) {
    for (const bool is_opposite : {false, true}) {
      compare("turns of " + std::to_string(shape.qkv_width()), {tolerance_of(1e-6, kStored)},
              [&](Bench& bench) {
                const int64_t size = shape.head_size;
                const Tensor turns = bench.make(random_values(shape.seq_len * size, 1));
                const Activations qkv = bench.activations(
                    random_values(shape.batch * shape.seq_len * shape.qkv_width(), 2));
                EXPECT_TRUE(bench
                                .run([&](Ops& ops) {
                                  ops.rotate({shape, turns.data, is_opposite}, qkv.data);
                                })
                                .ok());
                return Outputs{bench.read(qkv)};
              });
    }
  }
}

TEST_P(CudaLlamaOps, EmbedWithoutPositions) {
  for (const auto& [rows, columns] :
       std::vector<std::array<int64_t, 2>>{{1, 1}, {6, 130}, {60, 33}}) {
    constexpr int64_t kVocabulary = 11;
    const std::vector<int32_t> tokens = random_tokens(rows, kVocabulary, 1);
    const Ops::Embedding shape{tokens, 3, columns};
    compare("embedding", {tolerance_of(0, kStored), 0},
            [&, rows = rows, columns = columns](Bench& bench) {
              const Tensor wte = bench.make(random_values(kVocabulary * columns, 1));
              const Activations y = bench.poisoned_activations(rows * columns);
              const Activations dy = bench.activations(random_values(rows * columns, 3));
              EXPECT_TRUE(bench
                              .run([&](Ops& ops) {
                                ops.embedding_forward(shape, wte.data, nullptr, y.data);
                                ops.embedding_backward(shape, dy.data, wte.data, nullptr);
                              })
                              .ok());
              return Outputs{bench.read(y), bench.read(wte)};
            });
  }
}

INSTANTIATE_TEST_SUITE_P(Precision, CudaLlamaOps, testing::Values("float32", "bfloat16"));

}  // namespace
}  // namespace skein::gpu
