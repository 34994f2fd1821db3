// Tokens per second of one host device on forward, backward and AdamW, and the machine's sgemm
// peak.
//   host_speed THREADS SECONDS ROWS [FLAVOR]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/seconds_since.hpp"
#include "gpu/device.hpp"
#include "gpu/model/stage_model.hpp"
#include "gpu/ops.hpp"
#include "plans/base/check.hpp"
#include "plans/base/rng.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using skein::bench::seconds_since;

// As in bench/host_speed.py, whose smaller model is the default one.
constexpr int64_t kSeqLen = 256;
constexpr int64_t kProduct = 2048;

void run(skein::gpu::Device& device, std::function<absl::Status(skein::gpu::Ops&)> work) {
  const absl::Status status = device.run({skein::gpu::WorkKind::kOther, std::move(work)});
  SKEIN_CHECK(status.ok()) << status;
}

double peak_gflops(skein::gpu::Device& device) {
  std::vector<float> a(kProduct * kProduct, 1.0F), b = a, c = a;
  double best = 0;
  for (int i = 0; i < 4; ++i) {
    run(device, [&](skein::gpu::Ops& ops) {
      const Clock::time_point start = Clock::now();
      ops.matmul({kProduct, kProduct, kProduct}, a.data(), b.data(), c.data());
      best = std::max(best, 2e-9 * kProduct * kProduct * kProduct / seconds_since(start));
      return absl::OkStatus();
    });
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || argc > 5) {
    std::fprintf(stderr, "usage: host_speed THREADS SECONDS ROWS [FLAVOR]\n");
    return 2;
  }
  const int64_t rows = std::atoi(argv[3]);
  auto device = skein::gpu::make_host_device(std::atoi(argv[1]));
  skein::gpu::StageModelOptions options;
  if (argc == 5) {
    options.model.flavor = argv[4];
    SKEIN_CHECK(skein::plans::apply_flavor(options.model).ok()) << argv[4];
  }
  options.layers = {0, skein::plans::layer_count(options.model)};
  options.rows = rows;
  options.seq_len = kSeqLen;
  auto model = skein::gpu::StageModel::create(options, *device).value();
  std::vector<int32_t> tokens(static_cast<size_t>(rows * kSeqLen)), targets(tokens.size());
  skein::plans::Rng rng(1);
  const auto vocabulary = static_cast<uint64_t>(options.model.vocab_size);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(rng.below(vocabulary));
    targets[i] = static_cast<int32_t>(rng.below(vocabulary));
  }
  int64_t steps = -2;  // Two to warm up.
  Clock::time_point start;
  const double limit = std::atof(argv[2]);
  do {
    if (steps == 0) start = Clock::now();
    run(*device, [&](skein::gpu::Ops& ops) -> absl::Status {
      absl::Status status = model->start_step(ops, 1.0 / static_cast<double>(tokens.size()));
      status.Update(model->forward(ops, 0, {tokens, targets, {}}, {}));
      status.Update(model->backward(ops, 0, {}, {}));
      status.Update(model->update(ops, {1e-3, 1.0, 0}));
      return status;
    });
  } while (++steps <= 0 || seconds_since(start) < limit);
  const double rate = static_cast<double>(steps * rows * kSeqLen) / seconds_since(start);
  double flops = 0;
  for (int64_t layer = 0; layer < options.layers.end; ++layer) {
    flops += skein::plans::layer_flops(options.model, layer, 1, kSeqLen).total() / kSeqLen;
  }
  std::printf("%.1f %.2f %.2f\n", rate, rate * flops * 1e-9, peak_gflops(*device));
}
