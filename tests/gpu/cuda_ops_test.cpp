// Every op of the CUDA back end against the host's. The plugin is the one that SKEIN_CUDA_PLUGIN
// names: the product's on a machine with a GPU, or one with an emulated GPU. Without a GPU all
// tests skip and say why.

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "tests/gpu/cuda_ops_fixture.hpp"

namespace skein::gpu {
namespace {

class CudaProducts : public CudaOps {};

TEST_P(CudaProducts, MultiplyInEveryTransposition) {
  for (const auto& [m, n, k] :
       std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                           {3, 5, 7},
                                           {17, 8, 33},
                                           {64, 48, 32},
                                           {large(513, 40), 72, large(1000, 60)}}) {
    for (int flags = 0; flags < 8; ++flags) {
      const Ops::Matmul shape{m, n, k, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0};
      compare("matmul " + std::to_string(m) + " flags " + std::to_string(flags), {tolerance()},
              [&, n = n, k = k, m = m](Bench& bench) {
                const Activations a = bench.activations(random_values(m * k, 1));
                const Activations b = bench.activations(random_values(k * n, 2));
                const bool adds = shape.accumulate;
                const Tensor c = adds ? bench.make(random_values(m * n, 3)) : bench.poisoned(m * n);
                const Activations d = adds ? bench.activations(random_values(m * n, 4))
                                           : bench.poisoned_activations(m * n);
                EXPECT_TRUE(bench
                                .run([&](Ops& ops) {
                                  ops.matmul(shape, a.data, b.data, c.data);
                                  ops.matmul(shape, a.data, b.data, d.data);
                                })
                                .ok());
                return Outputs{bench.read(c), bench.read(d)};
              });
    }
  }
}

TEST_P(CudaProducts, ReadAndWriteRowsThatLieApart) {
  // Long enough that a product is cut where a side is no whole 16 bytes.
  const int64_t m = 131, n = 133, k = 141, wide = 192;
  for (int flags = 0; flags < 8; ++flags) {
    Ops::Matmul shape{m, n, k, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0};
    shape.a_stride = shape.b_stride = shape.c_stride = wide;
    compare(
        "matmul with strides, flags " + std::to_string(flags), {tolerance()}, [&](Bench& bench) {
          const Activations a = bench.activations(random_values(shape.a_rows() * wide, 1));
          const Activations b = bench.activations(random_values(shape.b_rows() * wide, 2));
          const Activations c = bench.activations(random_values(m * wide, 3));
          EXPECT_TRUE(bench.run([&](Ops& ops) { ops.matmul(shape, a.data, b.data, c.data); }).ok());
          std::vector<float> rows;
          const std::vector<float> all = bench.read(c);
          for (int64_t row = 0; row < m; ++row) {
            rows.insert(rows.end(), all.begin() + row * wide, all.begin() + row * wide + n);
          }
          return Outputs{rows};
        });
  }
}

/// The library's choice for a bias that is aligned counts on that.
TEST_P(CudaProducts, TakeABiasAtAnyAddress) {
  const Ops::Linear shape{8, 16, 24};
  for (const int64_t shift : {0, 1, 4, 0}) {
    compare("linear, bias shifted by " + std::to_string(shift), {tolerance()}, [&](Bench& bench) {
      const Activations x = bench.activations(random_values(shape.rows * shape.in, 1));
      const Activations weight = bench.activations(random_values(shape.in * shape.out, 2));
      const Activations bias = bench.activations(random_values(shift + shape.out, 3));
      const Activations y = bench.poisoned_activations(shape.rows * shape.out);
      EXPECT_TRUE(bench
                      .run([&](Ops& ops) {
                        ops.linear(shape, x.data, weight.data, bias.data + shift, y.data);
                      })
                      .ok());
      return Outputs{bench.read(y)};
    });
  }
}

TEST_P(CudaProducts, ComputeLinearLayersWithBiasGeluAndGradients) {
  for (const auto& [rows, in, out, flags] :
       std::vector<std::array<int64_t, 4>>{{1, 3, 5, 0},
                                           {9, 12, 7, 0},
                                           {70, 16, 24, 0},
                                           {large(257, 33), 64, 48, 0},
                                           {9, 12, 7, 1},
                                           {70, 16, 24, 1},
                                           {9, 12, 7, 2},
                                           {70, 16, 24, 2},
                                           {70, 16, 24, 3}}) {
    const bool has_bias = (flags & 2) == 0;
    const Ops::Linear shape{rows, in, out, (flags & 1) != 0};
    const std::string what = "linear " + std::to_string(rows) + " flags " + std::to_string(flags);
    compare(what, {tolerance()}, [&, rows = rows, in = in, out = out](Bench& bench) {
      const Activations x = bench.activations(random_values(rows * in, 1));
      const Activations weight = bench.activations(random_values(in * out, 2));
      const Activations bias = bench.activations(random_values(out, 3));
      const Activations y = bench.poisoned_activations(rows * out);
      const Activations before = bench.poisoned_activations(rows * out);
      const Activations activated = bench.poisoned_activations(rows * out);
      const Tensor dweight = bench.make(random_values(in * out, 5));
      const Tensor dbias = bench.make(random_values(out, 6));
      const Activations dy = bench.activations(random_values(rows * out, 7));
      const Activations dx = bench.poisoned_activations(rows * in);
      const Activations sum = bench.poisoned_activations(rows * out);
      const Activations slope = bench.poisoned_activations(rows * in);
      const Numbers b = has_bias ? bias.data : Numbers();
      float* db = has_bias ? dbias.data : nullptr;
      EXPECT_TRUE(bench
                      .run([&](Ops& ops) {
                        ops.linear(shape, x.data, weight.data, b, y.data);
                        ops.linear_gelu(shape, x.data, weight.data, b, before.data, activated.data);
                        ops.linear_weight_gradient(shape, x.data, dy.data, dweight.data, db);
                        ops.linear_input_gradient(shape, dy.data, weight.data, dx.data);
                        ops.linear_residual(shape, x.data, weight.data, b, dy.data, sum.data);
                        ops.linear_gelu_gradient(shape, dy.data, weight.data, x.data, slope.data);
                      })
                      .ok());
      return Outputs{bench.read(y),       bench.read(before), bench.read(activated),
                     bench.read(dweight), bench.read(dbias),  bench.read(dx),
                     bench.read(sum),     bench.read(slope)};
    });
  }
}

TEST_P(CudaOps, NormaliseAndAddResiduals) {
  for (const auto& [rows, columns] : norm_shapes()) {
    compare(
        "layer norm of " + std::to_string(rows) + " x " + std::to_string(columns),
        {tolerance_of(1e-5, kStored), tolerance_of(1e-5, kStored), tolerance_of(1e-5, kRounded)},
        [&, rows = rows, columns = columns](Bench& bench) {
          const Activations a = bench.activations(random_values(rows * columns, 1));
          const Activations b = bench.activations(random_values(rows * columns, 2));
          const Tensor weight = bench.make(random_values(columns, 3));
          const Tensor bias = bench.make(random_values(columns, 4));
          const Activations y = bench.poisoned_activations(rows * columns);
          const Activations sum = bench.poisoned_activations(rows * columns);
          const Activations fused = bench.poisoned_activations(rows * columns);
          const Tensor mean = bench.poisoned(rows), rstd = bench.poisoned(rows);
          const Activations dx = bench.activations(random_values(rows * columns, 5));
          const Activations alone = bench.poisoned_activations(rows * columns);
          const Activations apart = bench.poisoned_activations(rows * columns);
          const Tensor dweight = bench.make(random_values(columns, 6));
          const Tensor dbias = bench.make(random_values(columns, 7));
          EXPECT_TRUE(
              bench
                  .run([&](Ops& ops) {
                    ops.norm_forward({a.data, weight.data, bias.data, y.data, mean.data, rstd.data,
                                      rows, columns, 1e-3F});
                    ops.add(a.data, b.data, sum.data, rows * columns);
                    ops.norm_forward({sum.data, weight.data, bias.data, fused.data, mean.data,
                                      rstd.data, rows, columns, 1e-3F});
                    ops.norm_backward({b.data, sum.data, weight.data, mean.data, rstd.data, dx.data,
                                       dx.data, dweight.data, dbias.data, rows, columns});
                    ops.norm_backward({b.data, sum.data, weight.data, mean.data, rstd.data, nullptr,
                                       alone.data, dweight.data, dbias.data, rows, columns});
                    ops.norm_backward({b.data, sum.data, weight.data, mean.data, rstd.data, a.data,
                                       apart.data, dweight.data, dbias.data, rows, columns});
                  })
                  .ok());
          return Outputs{bench.read(y),       bench.read(sum),   bench.read(fused),
                         bench.read(mean),    bench.read(rstd),  bench.read(dx),
                         bench.read(dweight), bench.read(dbias), bench.read(alone),
                         bench.read(apart)};
        });
  }
}

TEST_P(CudaOps, ComputeElementsAndColumnSums) {
  for (int64_t count : {int64_t{1}, int64_t{255}, int64_t{1027}, large(9'000'001, 5000)}) {
    compare(
        "elements",
        {tolerance_of(1e-5, kStored), tolerance_of(1e-5, kStored), tolerance_of(1e-5, kRounded)},
        [&](Bench& bench) {
          const Activations x = bench.activations(random_values(count, 1, 3));
          const Activations y = bench.poisoned_activations(count);
          const Activations dy = bench.activations(random_values(count, 2));
          const Activations sum = bench.poisoned_activations(count);
          const Activations copy = bench.poisoned_activations(count);
          const Activations zeros = bench.poisoned_activations(count);
          // Not where memory is aligned to more than one number.
          const Activations behind = bench.activations(random_values(count, 3));
          EXPECT_TRUE(bench
                          .run([&](Ops& ops) {
                            ops.gelu_forward(x.data, y.data, count);
                            ops.gelu_backward(x.data, dy.data, count);
                            ops.add(x.data, y.data, sum.data, count);
                            ops.add(sum.data, x.data, sum.data, count);
                            ops.copy(sum.data, copy.data, count);
                            ops.zero(zeros.data, count);
                            ops.add(x.data + 1, x.data, behind.data + 1, count - 1);
                          })
                          .ok());
          return Outputs{bench.read(y),    bench.read(dy),    bench.read(sum),
                         bench.read(copy), bench.read(zeros), bench.read(behind)};
        });
  }
  for (const auto& [rows, columns] :
       std::vector<std::array<int64_t, 2>>{{1, 1}, {64, 3}, {65, 31}, {200, 70}}) {
    compare("columns", {1e-5}, [&, rows = rows, columns = columns](Bench& bench) {
      const Activations bias = bench.activations(random_values(columns, 1));
      const Activations y = bench.poisoned_activations(rows * columns);
      const Tensor db = bench.make(random_values(columns, 3));
      const Activations dy = bench.activations(random_values(rows * columns, 2));
      EXPECT_TRUE(bench
                      .run([&](Ops& ops) {
                        ops.fill_rows(bias.data, y.data, rows, columns);
                        ops.add_column_sums(dy.data, db.data, rows, columns);
                      })
                      .ok());
      return Outputs{bench.read(y), bench.read(db)};
    });
  }
}

TEST_P(CudaOps, AttendForwardsAndBackwards) {
  const Ops::Attention shapes[] = {{1, 1, 1, 1, 4},
                                   {2, 7, 2, 2, 6},
                                   {1, 65, 1, 1, 32},
                                   {1, 40, 3, 3, 40},
                                   {1, 130, 1, 1, 64},
                                   {2, 33, 1, 1, 96},
                                   {1, 70, 1, 1, 128},
                                   {1, 37, 2, 2, 129},
                                   {1, 40, 1, 1, 256},
                                   {1, 21, 3, 3, 17},
                                   {1, large(1000, 72), 2, 2, 50},
                                   // Heads of queries that share keys.
                                   {2, 7, 4, 2, 6},
                                   {1, 70, 6, 2, 32},
                                   {1, 33, 3, 1, 129},
                                   {2, large(1000, 40), 4, 1, 64}};
  for (const Ops::Attention& shape : shapes) {
    const int64_t n = shape.batch * shape.seq_len * shape.query_width();
    const int64_t all = shape.batch * shape.seq_len * shape.qkv_width();
    compare("attention of " + std::to_string(shape.seq_len) + " x " +
                std::to_string(shape.head_size) + " and " + std::to_string(shape.kv_heads) +
                " heads of keys",
            {tolerance_of(1e-5, kRounded)}, [&](Bench& bench) {
              const Activations qkv = bench.activations(random_values(all, 1));
              const Activations out = bench.poisoned_activations(n);
              const Activations dqkv = bench.poisoned_activations(all);
              const Tensor sums = bench.poisoned(shape.batch * shape.heads * shape.seq_len);
              const Activations dout = bench.activations(random_values(n, 2));
              EXPECT_TRUE(bench
                              .run([&](Ops& ops) {
                                ops.attention_forward(shape, qkv.data, out.data, sums.data);
                                ops.attention_backward(shape, qkv.data, out.data, sums.data,
                                                       dout.data, dqkv.data);
                              })
                              .ok());
              return Outputs{bench.read(out), bench.read(sums), bench.read(dqkv)};
            });
  }
}

TEST_P(CudaOps, RefuseHeadsThatAreTooLarge) {
  const Activations qkv = cuda_->activations(random_values(3 * 257, 1));
  const Activations out = cuda_->poisoned_activations(257);
  const Tensor sums = cuda_->poisoned(1);
  const absl::Status status = cuda_->run([&](Ops& ops) {
    ops.attention_forward({1, 1, 1, 1, 257}, qkv.data, out.data, sums.data);
  });
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_TRUE(cuda_->run([](Ops&) {}).ok()) << "the next work has nothing to do with it";
}

TEST_P(CudaOps, EmbedAndScatterInTheHostsOrder) {
  for (const auto& [rows, seq_len, columns, vocab] : std::vector<std::array<int64_t, 4>>{
           {1, 1, 1, 1}, {6, 3, 130, 2}, {60, 20, 33, 11}, {large(2048, 64), 32, 48, 300}}) {
    const std::vector<int32_t> tokens = random_tokens(rows, static_cast<uint64_t>(vocab), 1);
    const Ops::Embedding shape{tokens, seq_len, columns};
    compare("embedding", {tolerance_of(0, kStored), 0},
            [&, rows = rows, seq_len = seq_len, columns = columns, vocab = vocab](Bench& bench) {
              const Tensor wte = bench.make(random_values(vocab * columns, 1));
              const Tensor wpe = bench.make(random_values(seq_len * columns, 2));
              const Activations y = bench.poisoned_activations(rows * columns);
              const Activations dy = bench.activations(random_values(rows * columns, 3));
              EXPECT_TRUE(bench
                              .run([&](Ops& ops) {
                                ops.embedding_forward(shape, wte.data, wpe.data, y.data);
                                ops.embedding_backward(shape, dy.data, wte.data, wpe.data);
                              })
                              .ok());
              return Outputs{bench.read(y), bench.read(wte), bench.read(wpe)};
            });
  }
}

TEST_P(CudaOps, FindLossesAndTheirGradients) {
  // Rows that lie apart are aligned, so that their numbers are read several at a time.
  for (const auto& [rows, vocab, stride] : std::vector<std::array<int64_t, 3>>{
           {1, 1, 1},
           {4, 3, 3},
           {4, 3, 64},
           {7, 256, 256},
           {7, 253, 256},
           {9, 1000, 1000},
           {large(300, 3), large(50257, 5003), large(50304, 5056)},
           {large(300, 3), large(50257, 5003), large(50257, 5003)}}) {
    std::vector<int32_t> targets = random_tokens(rows, static_cast<uint64_t>(vocab), 4);
    targets[targets.size() / 2] = -1;
    compare(
        "cross entropy over " + std::to_string(vocab) + " of " + std::to_string(stride),
        {tolerance_of(1e-5, kStored), 1e-5},
        [&, rows = rows, vocab = vocab, stride = stride](Bench& bench) {
          const Activations logits = bench.activations(random_values(rows * stride, 1, 5));
          double sum = 2;
          int64_t counted = 3;
          EXPECT_TRUE(
              bench
                  .run([&](Ops& ops) {
                    ops.cross_entropy({targets, vocab, stride, 0.25F, &sum, &counted}, logits.data);
                  })
                  .ok());
          return Outputs{
              bench.read(logits), {static_cast<float>(sum)}, {static_cast<float>(counted)}};
        });
  }
}

TEST_P(CudaOps, UpdateWeightsAndAddSquares) {
  const std::vector<int64_t> counts = {1, 5, 16384, 16385, large(3'000'001, 40000)};
  compare("optimizers", {1e-6}, [&](Bench& bench) {
    std::vector<Ops::AdamwTensor> tensors;
    std::vector<Ops::Values> values;
    std::vector<Tensor> written;
    for (size_t i = 0; i < counts.size(); ++i) {
      const Tensor weight = bench.make(random_values(counts[i], 4 * i));
      const Tensor gradient = bench.make(random_values(counts[i], 4 * i + 1));
      const Tensor moment1 = bench.make(random_values(counts[i], 4 * i + 2));
      std::vector<float> second = random_values(counts[i], 4 * i + 3);
      for (float& value : second) value *= value;
      const Tensor moment2 = bench.make(second);
      tensors.push_back(
          {weight.data, gradient.data, moment1.data, moment2.data, counts[i], i % 2 == 0, {}});
      values.push_back({gradient.data, counts[i]});
      written.insert(written.end(), {weight, moment1, moment2});
    }
    const Ops::Adamw options{0.1F, 0.9F, 0.95F, 1e-8F, 0.1F, 0.3F, 0.2F, 0.5F};
    const int64_t last = counts.back();
    double all = 1, one = 0;
    EXPECT_TRUE(bench
                    .run([&](Ops& ops) {
                      ops.adamw_all(options, tensors);
                      ops.adamw(options, tensors[1]);
                      ops.sgd(
                          {0.1F, 0.9F, 0.01F, 0.5F},
                          {tensors[4].weight, tensors[4].gradient, tensors[4].moment1, last, {}});
                      ops.add_sums_of_squares(values, &all);
                      ops.add_sum_of_squares(values[3].data, counts[3], &one);
                    })
                    .ok());
    Outputs outputs{{static_cast<float>(all)}, {static_cast<float>(one)}};
    for (const Tensor& tensor : written) outputs.push_back(bench.read(tensor));
    return outputs;
  });
}

TEST_P(CudaOps, SumUpExactlyWithTheHostsBits) {
  constexpr int64_t kCount = 1031;
  const auto bits_of = [&](Bench& bench) {
    std::vector<float> odd = random_values(kCount, 1, 0.3);
    odd[5] = INFINITY;
    odd[6] = NAN;
    odd[7] = 2;
    const Tensor one = bench.make(odd);
    const Tensor other = bench.make(random_values(kCount, 2, 1e-7));
    const Tensor sums = bench.make(std::vector<float>(2 * kCount, 0));
    const Tensor more = bench.make(std::vector<float>(2 * kCount, 0));
    const Tensor rounded = bench.poisoned(kCount);
    auto* to = reinterpret_cast<double*>(sums.data);
    auto* from = reinterpret_cast<double*>(more.data);
    EXPECT_TRUE(bench
                    .run([&](Ops& ops) {
                      ops.move_to_sums({one.data, to, kCount, 1.5});
                      ops.move_to_sums({other.data, to, kCount, 1.5});
                      ops.move_to_sums({other.data, from, kCount, 1.5});
                      ops.add_sums(to, from, kCount);
                      ops.round_sums(from, rounded.data, kCount);
                    })
                    .ok());
    EXPECT_EQ(bench.read(one), std::vector<float>(kCount, 0));
    Outputs all{bench.read(sums), bench.read(more), bench.read(rounded)};
    for (size_t place : {5, 6, 7}) {  // Not every NaN has the same bits.
      EXPECT_TRUE(std::isnan(all[2][place])) << place;
      all[2][place] = 0;
      for (size_t i : {0, 1}) all[i][2 * place] = all[i][2 * place + 1] = 0;
    }
    std::vector<std::vector<uint32_t>> bits;
    for (const auto& each : all) {
      bits.emplace_back();
      for (float value : each) bits.back().push_back(std::bit_cast<uint32_t>(value));
    }
    return bits;
  };
  Bench host(make_host_device(1), rounds());
  EXPECT_EQ(bits_of(*cuda_), bits_of(host));
}

TEST_P(CudaOps, CopyBetweenHostAndDevice) {
  const std::vector<float> from = random_values(10007, 1);
  std::vector<float> back(from.size(), 0);
  const Tensor there = cuda_->poisoned(10007);
  Buffer pinned = cuda_->device().allocate_host_visible(10007 * 4).value();
  for (int i = 0; i < 10007; ++i) EXPECT_EQ(pinned.floats()[i], 0);
  ASSERT_TRUE(cuda_
                  ->run([&](Ops& ops) {
                    ops.copy_in(from, there.data);
                    ops.copy_out(there.data, back);
                    ops.copy_out(there.data, {pinned.floats(), from.size()});
                  })
                  .ok());
  EXPECT_EQ(back, from);
  EXPECT_EQ(std::vector<float>(pinned.floats(), pinned.floats() + from.size()), from);
}

TEST_P(CudaOps, GiveZeroedMemoryAgainAndAgain) {
  Device& device = cuda_->device();
  const DeviceMemory before = device.memory();
  for (int round = 0; round < 3; ++round) {
    Buffer buffer = device.allocate(100'000).value();
    std::vector<float> values(25'000, 1);
    ASSERT_TRUE(device.download(buffer.floats(), values).ok());
    EXPECT_EQ(values, std::vector<float>(25'000, 0));
    values.assign(25'000, 7);
    ASSERT_TRUE(device.upload(values, buffer.floats()).ok());
    EXPECT_GT(device.memory().in_use, before.in_use);
  }
  EXPECT_EQ(device.memory().in_use, before.in_use);
  EXPECT_EQ(device.memory().cached, before.cached + 100'352);
  const absl::Status refused = device.allocate(int64_t{1} << 50).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_TRUE(device.allocate(1000).ok());
}

INSTANTIATE_TEST_SUITE_P(Precision, CudaOps, testing::Values("float32", "bfloat16"));
INSTANTIATE_TEST_SUITE_P(Precision, CudaProducts, testing::Values("float32", "tf32", "bfloat16"));

}  // namespace
}  // namespace skein::gpu
