// Times the ops of the CUDA back end, each against what bounds it: the bandwidth of a copy measured
// here, or the fastest product measured here. Then training steps of GPT-2 in micro-batches of 4,
// 16 and 64 samples, with a vocabulary that products like and with its own. With --large only
// steps, of a GPT-2 of about 1,000 M parameters. bench/gpu/torch_baseline.py runs the same steps.
//   cuda_speed [--quick] [--only attention|steps | --large] [--precision
//   bfloat16|tf32|float32]
// --only steps makes three steps with GPT-2's own vocabulary, for a profiler.
// Exit code 77 without a GPU.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/cuda/load_cuda.hpp"
#include "gpu/device.hpp"
#include "gpu/model/stage_model.hpp"
#include "gpu/ops.hpp"
#include "plans/base/check.hpp"
#include "plans/base/rng.hpp"

namespace skein {
namespace {

using gpu::Numbers;
using gpu::Ops;

constexpr int kRounds = 5;  // The median counts.
constexpr int kSteps = 12;  // Likewise, of those behind the first four.
constexpr int kWarmUps = 4;

struct Options {
  bool is_quick = false;
  bool is_large = false;
  std::string only;  // "attention", "steps"; all if empty.
  std::string precision = "bfloat16";
};

/// Sizes of one GPT-2 micro-batch, or of a smoke test.
struct Sizes {
  explicit Sizes(const Options& options) {
    if (options.is_large) batch = 8, channels = 1792, heads = 28, layers = 24;
    if (!options.is_quick) return;
    batches = {1}, batch = 1, seq_len = 32, channels = 32, heads = 2, layers = 1, vocab = 256,
    repeats = 1;
    square = 32;
  }
  int64_t rows() const { return batch * seq_len; }

  std::vector<int64_t> batches = {4, 16, 64};  // The models take them in turn.
  int64_t batch = 16, seq_len = 1024, channels = 768, heads = 12, layers = 12, vocab = 50304;
  int64_t odd_vocab() const { return vocab - 47; }  // GPT-2's own, 50257.
  int64_t square = 8192;  // Side of the product that all others are compared with.
  int64_t repeats = 20;   // Calls of an op in one round.
};

/// Runs work on a device and takes the time.
class Clock {
 public:
  explicit Clock(gpu::Device& device) : device_(device) {}

  double seconds(const std::function<absl::Status(Ops&)>& body) {
    const auto start = std::chrono::steady_clock::now();
    const absl::Status status = device_.run({gpu::WorkKind::kOther, body});
    SKEIN_CHECK(status.ok()) << status;
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  /// One call costs the difference of many calls and one, so that what starts a work costs nothing.
  double seconds_each(int64_t repeats, const std::function<void(Ops&)>& call) {
    auto calls = [&](int64_t count) {
      return seconds([&](Ops& ops) {
        for (int64_t i = 0; i < count; ++i) call(ops);
        return absl::OkStatus();
      });
    };
    (void)calls(2);
    std::vector<double> rounds;
    for (int i = 0; i < kRounds; ++i) {
      const double one = calls(1);
      rounds.push_back(std::max(calls(repeats + 1) - one, 1e-9) / static_cast<double>(repeats));
    }
    std::sort(rounds.begin(), rounds.end());
    return rounds[kRounds / 2];
  }

 private:
  gpu::Device& device_;
};

/// The table of ops.
class Table {
 public:
  Table(gpu::Device& device, const Sizes& sizes) : device_(device), clock_(device), s_(sizes) {}

  void run(const std::string& only) {
    measure_bounds();
    std::printf("%-34s %10s %9s %7s\n", "op", "us", "rate", "share");
    if (only == "attention") return by_length();
    measure_products();
    measure_attention();
    measure_rows();
    measure_head();
    measure_updates();
  }

 private:
  float* tensor(int64_t count, bool is_random = true) {
    buffers_.push_back(device_.allocate(count * 4).value());
    if (!is_random) return buffers_.back().floats();
    plans::Rng rng(7, buffers_.size());
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = static_cast<float>(rng.uniform() - 0.5);
    SKEIN_CHECK(device_.upload(values, buffers_.back().floats()).ok());
    return buffers_.back().floats();
  }

  Numbers activations(int64_t count, bool is_random = true) {
    if (type() == gpu::NumberType::kFloat32) return tensor(count, is_random);
    buffers_.push_back(device_.allocate(count * gpu::bytes_of(type())).value());
    const Numbers made = buffers_.back().numbers(type());
    if (!is_random) return made;
    (void)clock_.seconds([&, from = tensor(count)](Ops& ops) {
      ops.copy(from, made, count);
      return absl::OkStatus();
    });
    buffers_.pop_back();  // What was rounded.
    return made;
  }
  gpu::NumberType type() const { return device_.info().activations; }

  /// `bytes` at the least; the share is that of the bandwidth.
  void by_bytes(const std::string& name, double bytes, const std::function<void(Ops&)>& call) {
    const double seconds = clock_.seconds_each(s_.repeats, call);
    std::printf("%-34s %10.1f %5.2f TB/s %5.0f %%\n", name.c_str(), seconds * 1e6,
                bytes / seconds / 1e12, 100 * bytes / seconds / bandwidth_);
  }
  void by_flops(const std::string& name, double flops, const std::function<void(Ops&)>& call) {
    const double seconds = clock_.seconds_each(s_.repeats, call);
    std::printf("%-34s %10.1f %5.0f TF/s %5.0f %%\n", name.c_str(), seconds * 1e6,
                flops / seconds / 1e12, 100 * flops / seconds / product_rate_);
  }

  void measure_bounds() {
    const int64_t n = s_.square * s_.square;
    const Numbers a = activations(n);
    const Numbers b = activations(n);
    const Numbers c = activations(n, false);
    const double copy = clock_.seconds_each(s_.repeats, [&](Ops& ops) { ops.copy(a, c, n); });
    number_bytes_ = static_cast<double>(gpu::bytes_of(type()));
    bandwidth_ = 2 * number_bytes_ * static_cast<double>(n) / copy;
    const double product = clock_.seconds_each(s_.repeats, [&](Ops& ops) {
      ops.matmul({s_.square, s_.square, s_.square, false, false, false}, a, b, c);
    });
    product_rate_ = 2.0 * static_cast<double>(n) * static_cast<double>(s_.square) / product;
    std::printf("copy of %lld MiB: %.2f TB/s; product of side %lld: %.0f TFLOP/s\n\n",
                static_cast<long long>(n * gpu::bytes_of(type()) >> 20), bandwidth_ / 1e12,
                static_cast<long long>(s_.square), product_rate_ / 1e12);
  }

  void measure_products() {
    const int64_t n = s_.rows(), c = s_.channels;
    const Numbers x = activations(n * 4 * c);
    const Numbers weight = activations(4 * c * c);
    const Numbers bias = activations(4 * c);
    float* dweight = tensor(4 * c * c);
    float* dbias = tensor(4 * c);
    const Numbers y = activations(n * 4 * c, false);
    const Numbers activated = activations(n * 4 * c, false);
    const double b = number_bytes_;
    const double flops = 8.0 * static_cast<double>(n * c * c);
    by_flops("linear [C, 4C] with bias", flops, [&](Ops& ops) {
      ops.linear({n, c, 4 * c}, x, weight, bias, y);
    });
    by_flops("linear [C, 4C] with bias, GELU", flops, [&](Ops& ops) {
      ops.linear_gelu({n, c, 4 * c}, x, weight, bias, y, activated);
    });
    by_flops("linear [4C, C] with bias", flops, [&](Ops& ops) {
      ops.linear({n, 4 * c, c}, x, weight, bias, y);
    });
    by_flops("linear [4C, C], bias, residual", flops, [&](Ops& ops) {
      ops.linear_residual({n, 4 * c, c}, x, weight, bias, activated, y);
    });
    by_flops("input gradient times GELU's", flops, [&](Ops& ops) {
      ops.linear_gelu_gradient({n, 4 * c, c}, y, weight, x, activated);
    });
    by_flops("its input gradient", flops, [&](Ops& ops) {
      ops.matmul({n, 4 * c, c, false, true, false}, y, weight, activated);
    });
    by_flops("its weight and bias gradient", flops, [&](Ops& ops) {
      ops.linear_weight_gradient({n, 4 * c, c}, x, y, dweight, dbias);
    });
    by_bytes("GELU", 2 * b * static_cast<double>(4 * n * c),
             [&](Ops& ops) { ops.gelu_forward(x, y, 4 * n * c); });
    by_bytes("GELU backward", 3 * b * static_cast<double>(4 * n * c),
             [&](Ops& ops) { ops.gelu_backward(x, y, 4 * n * c); });
    // As wide as makes x the tensor of gates and values.
    const Ops::Swiglu gates{n, 2 * c};
    by_bytes("SwiGLU", 3 * b * static_cast<double>(2 * n * c),
             [&](Ops& ops) { ops.swiglu_forward(gates, x, y); });
    by_bytes("SwiGLU backward", 5 * b * static_cast<double>(2 * n * c),
             [&](Ops& ops) { ops.swiglu_backward(gates, x, y, activated); });
    by_bytes("column sums", b * static_cast<double>(4 * n * c),
             [&](Ops& ops) { ops.add_column_sums(x, dbias, n, 4 * c); });
  }

  void measure_attention() {
    const Ops::Attention shape{s_.batch, s_.seq_len, s_.heads, s_.heads, s_.channels / s_.heads};
    const int64_t n = s_.rows() * s_.channels;
    const Numbers qkv = activations(3 * n);
    float* turns = tensor(s_.seq_len * s_.channels / s_.heads);
    by_bytes("rotary positions", 4 * number_bytes_ * static_cast<double>(n), [&](Ops& ops) {
      ops.rotate({shape, turns, false}, qkv);
    });
    by_length();
  }

  /// The same tokens in ever fewer and longer sequences.
  void by_length() {
    const int64_t n = s_.rows() * s_.channels;
    const Numbers qkv = activations(3 * n);
    const Numbers out = activations(n, false);
    const Numbers dout = activations(n);
    const Numbers dqkv = activations(3 * n, false);
    float* sums = tensor(s_.rows() * s_.heads, false);
    for (int64_t t = s_.seq_len; t <= s_.rows(); t *= 4) {
      const Ops::Attention shape{s_.rows() / t, t, s_.heads, s_.heads, s_.channels / s_.heads};
      // Half of the pairs of queries and keys; a forward has two products, a backward five.
      const double pairs = static_cast<double>(n) * static_cast<double>(t) / 2;
      const std::string form = "attention, T " + std::to_string(t);
      by_flops(form, 4 * pairs, [&](Ops& ops) { ops.attention_forward(shape, qkv, out, sums); });
      by_flops(form + ", backward", 10 * pairs,
               [&](Ops& ops) { ops.attention_backward(shape, qkv, out, sums, dout, dqkv); });
    }
  }

  void measure_rows() {
    // More than fits the second cache.
    const int64_t n = 4 * s_.rows(), c = s_.channels, v = s_.vocab;
    const Numbers x = activations(n * c);
    const Numbers y = activations(n * c);
    const Numbers z = activations(n * c, false);
    float* weight = tensor(v * c);
    float* positions = tensor(s_.seq_len * c);
    const double b = number_bytes_;
    float* statistics = tensor(2 * n);
    const auto elements = static_cast<double>(n * c);
    const Ops::NormForward norm{x, weight, weight, z, statistics, statistics + n, n, c, 1e-5F};
    by_bytes("layer norm", 2 * b * elements, [&](Ops& ops) { ops.norm_forward(norm); });
    by_bytes("layer norm backward", 4 * b * elements, [&](Ops& ops) {
      ops.norm_backward({y, x, weight, statistics, statistics + n, z, z, weight, weight + c, n, c});
    });
    const Ops::NormForward rms{x, weight, nullptr, z, nullptr, statistics, n, c, 1e-5F};
    by_bytes("RMS norm", 2 * b * elements, [&](Ops& ops) { ops.norm_forward(rms); });
    by_bytes("RMS norm backward", 4 * b * elements, [&](Ops& ops) {
      ops.norm_backward({y, x, weight, nullptr, statistics, z, z, weight, nullptr, n, c});
    });
    by_bytes("addition", 3 * b * elements, [&](Ops& ops) { ops.add(x, y, z, n * c); });
    std::vector<int32_t> tokens(static_cast<size_t>(n));
    plans::Rng rng(5);
    for (int32_t& token : tokens) token = static_cast<int32_t>(rng.below(static_cast<uint64_t>(v)));
    const Ops::Embedding embedding{tokens, s_.seq_len, c};
    by_bytes("embedding", (8 + b) * elements,
             [&](Ops& ops) { ops.embedding_forward(embedding, weight, positions, z); });
    by_bytes("embedding backward", (12 + b) * elements,
             [&](Ops& ops) { ops.embedding_backward(embedding, x, weight, positions); });
  }

  /// With a vocabulary that products like, with GPT-2's in rows as far apart, as a model has them,
  /// and with GPT-2's in rows that lie one behind the other.
  void measure_head() {
    const int64_t n = std::min<int64_t>(s_.rows(), 8192), c = s_.channels, wide = s_.vocab;
    const std::vector<int32_t> targets(static_cast<size_t>(n), 1);
    const Numbers x = activations(n * c);
    const Numbers matrix = activations(wide * c);
    const Numbers logits = activations(n * wide);
    const Numbers dx = activations(n * c, false);
    float* dmatrix = tensor(wide * c);
    struct Form {
      std::string name;
      int64_t v, stride;
    };
    const int64_t odd = s_.odd_vocab();
    for (const Form& form :
         {Form{"", wide, wide}, {", odd V", odd, wide}, {", odd V, packed", odd, odd}}) {
      const int64_t v = form.v, stride = form.stride;
      const double flops = 2 * static_cast<double>(n * v) * static_cast<double>(c);
      by_flops("head: logits" + form.name, flops, [&](Ops& ops) {
        ops.matmul({.m = n, .n = v, .k = c, .transpose_b = true, .c_stride = stride}, x, matrix,
                   logits);
      });
      by_flops("head: dx" + form.name, flops, [&](Ops& ops) {
        ops.matmul({.m = n, .n = c, .k = v, .a_stride = stride}, logits, matrix, dx);
      });
      by_flops("head: dW" + form.name, flops, [&](Ops& ops) {
        ops.matmul(
            {.m = v, .n = c, .k = n, .transpose_a = true, .accumulate = true, .a_stride = stride},
            logits, x, dmatrix);
      });
      double sum = 0;
      int64_t counted = 0;
      by_bytes("head: cross-entropy" + form.name, 3 * number_bytes_ * static_cast<double>(n * v),
               [&](Ops& ops) {
                 ops.cross_entropy({targets, v, stride, 1e-3F, &sum, &counted}, logits);
               });
    }
  }

  void measure_updates() {
    const int64_t count = 12 * s_.channels * s_.channels, tensors = s_.layers;
    std::vector<Ops::AdamwTensor> all;
    std::vector<Ops::Values> values;
    for (int64_t i = 0; i < tensors; ++i) {
      all.push_back(
          {tensor(count), tensor(count), tensor(count), tensor(count, false), count, true, {}});
      if (type() != gpu::NumberType::kFloat32) all.back().rounded = activations(count, false);
      values.push_back({all.back().gradient, count});
    }
    Ops::Adamw options;
    options.lr = 1e-6F;
    options.eps = 1e-8F;
    const auto elements = static_cast<double>(count * tensors);
    const double copied = type() == gpu::NumberType::kFloat32 ? 0 : number_bytes_;
    by_bytes("AdamW", (28 + copied) * elements, [&](Ops& ops) { ops.adamw_all(options, all); });
    double sum = 0;
    by_bytes("norm", 4 * elements, [&](Ops& ops) { ops.add_sums_of_squares(values, &sum); });
  }

  gpu::Device& device_;
  Clock clock_;
  const Sizes s_;
  std::vector<gpu::Buffer> buffers_;
  double bandwidth_ = 0, product_rate_ = 0;
  double number_bytes_ = 0;  // An activation's.
};

/// Dense bfloat16, by the vendor's datasheets; 0 where we know none.
double peak_flops(const std::string& gpu) {
  const bool is_hopper =
      gpu.find("H100 80GB HBM3") != std::string::npos || gpu.find("H200") != std::string::npos;
  return is_hopper ? 989e12 : gpu.find("A100") != std::string::npos ? 312e12 : 0;
}

/// Steps of the whole model, with a vocabulary of `vocab`, in one stage.
void measure_model(gpu::Device& device, const Sizes& sizes, int64_t vocab, int steps) {
  gpu::StageModelOptions options;
  options.model.vocab_size = vocab;
  options.model.positions = sizes.seq_len;
  options.model.layers = sizes.layers;
  options.model.heads = sizes.heads;
  options.model.channels = sizes.channels;
  options.model.tied_head = true;
  options.layers = {0, plans::layer_count(options.model)};
  options.rows = sizes.batch;
  options.seq_len = sizes.seq_len;
  auto model = gpu::StageModel::create(options, device).value();
  int64_t parameters = 0;
  for (const auto& spec : model->parameters()) parameters += plans::element_count(spec);
  std::vector<int32_t> tokens(static_cast<size_t>(sizes.rows()));
  plans::Rng rng(5);
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab)));
  }
  Clock clock(device);
  std::vector<double> rounds;
  for (int i = 0; i < steps; ++i) {
    double norm = 0;
    rounds.push_back(clock.seconds([&](Ops& ops) {
      absl::Status status = model->start_step(ops, 1.0 / static_cast<double>(sizes.rows()));
      status.Update(model->forward(ops, 0, {tokens, tokens, {}}, {}));
      status.Update(model->backward(ops, 0, {}, {}));
      status.Update(model->gradient_norm_squared(ops, &norm));
      status.Update(model->update(ops, {1e-4, 1.0, i}));
      return status;
    }));
    std::printf("step %d: loss %.4f, gradient norm squared %.4f, %.1f ms\n", i,
                model->loss_sum() / static_cast<double>(model->loss_tokens()), norm,
                rounds.back() * 1e3);
  }
  const auto first = rounds.begin() + std::min<std::ptrdiff_t>(kWarmUps, steps - 1);
  std::sort(first, rounds.end());
  const double seconds = first[(rounds.end() - first) / 2];
  const auto n = static_cast<double>(sizes.rows());
  const double flops = 6 * static_cast<double>(parameters) * n +
                       6 * n * static_cast<double>(sizes.layers * sizes.channels * sizes.seq_len);
  const double peak = peak_flops(device.info().name);
  std::printf(
      "GPT-2 of %.0f M parameters, V %lld, %lld x %lld tokens: %.0f tokens/s, "
      "%.0f TFLOP/s, MFU %.1f %%, %.1f GB; steps of %.2f to %.2f ms\n",
      static_cast<double>(parameters) / 1e6, static_cast<long long>(vocab),
      static_cast<long long>(sizes.batch), static_cast<long long>(sizes.seq_len), n / seconds,
      flops / seconds / 1e12, peak > 0 ? 100 * flops / seconds / peak : 0.0,
      static_cast<double>(device.memory().in_use_max) / 1e9, *first * 1e3, rounds.back() * 1e3);
}

int run(const Options& options) {
  gpu::CudaOptions cuda;
  cuda.precision = options.precision;
  auto device = gpu::load_cuda_device(cuda);
  if (!device.ok()) {
    std::fprintf(stderr, "no CUDA device: %s\n", std::string(device.status().message()).c_str());
    return 77;
  }
  const Sizes sizes(options);
  std::printf("%s, %s\n", (*device)->info().name.c_str(), options.precision.c_str());
  if (options.is_large) {
    measure_model(**device, sizes, sizes.vocab, kSteps);
    return 0;
  }
  if (options.only == "steps") {
    measure_model(**device, sizes, sizes.odd_vocab(), 3);
    return 0;
  }
  Table(**device, sizes).run(options.only);
  if (options.only == "attention") return 0;
  std::printf("\n");
  measure_model(**device, sizes, sizes.vocab, kSteps);
  for (const int64_t batch : sizes.batches) {
    Sizes form = sizes;
    form.batch = batch;
    measure_model(**device, form, form.odd_vocab(), kSteps);
  }
  return 0;
}

}  // namespace
}  // namespace skein

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // A time-out loses no line that is complete.
  skein::Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      options.is_quick = true;
    } else if (std::strcmp(argv[i], "--large") == 0) {
      options.is_large = true;
    } else if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
      options.only = argv[++i];
    } else if (std::strcmp(argv[i], "--precision") == 0 && i + 1 < argc) {
      options.precision = argv[++i];
    } else {
      std::fprintf(stderr,
                   "usage: cuda_speed [--quick] [--only attention|steps | --large] "
                   "[--precision NAME]\n");
      return 2;
    }
  }
  return skein::run(options);
}
