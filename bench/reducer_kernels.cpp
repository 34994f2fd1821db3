// What the parts of the reducers take per MB of gradients on one core, beside a copy of the same
// memory. Prints the median of seven runs with the fastest and the slowest, in CPU time.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "net/reduce/adasum.hpp"
#include "net/reduce/half_float.hpp"
#include "net/reduce/top_k.hpp"
#include "plans/base/rng.hpp"

namespace skein::bench {
namespace {

constexpr int kRuns = 7;
constexpr size_t kFloats = 8 << 20;  // 32 MiB: past the caches.
constexpr double kMegabytes = kFloats * sizeof(float) / 1e6;

double cpu_us() { return static_cast<double>(std::clock()) * 1e6 / CLOCKS_PER_SEC; }

/// Median, fastest and slowest time of `work` in microseconds per MB.
std::vector<double> measure(const std::function<void()>& work) {
  work();
  std::vector<double> us(kRuns);
  for (double& each : us) {
    const double start = cpu_us();
    work();
    each = (cpu_us() - start) / kMegabytes;
  }
  std::sort(us.begin(), us.end());
  return {us[kRuns / 2], us.front(), us.back()};
}

/// `passes`: reads and writes of the gradients that the work cannot do without; a copy has 2.
void report(const std::string& name, double passes, const std::function<void()>& work) {
  static double copy_us = 0;  // The time of the first report, which is the copy.
  const std::vector<double> us = measure(work);
  if (copy_us == 0) copy_us = us[0];
  std::printf("%-34s %8.1f %8.1f %8.1f %11.0f%%\n", name.c_str(), us[0], us[1], us[2],
              100 * copy_us * passes / 2 / us[0]);
}

std::vector<float> normal_values(uint64_t stream) {
  std::vector<float> values(kFloats);
  for (size_t i = 0; i < kFloats; ++i) {
    values[i] = static_cast<float>(plans::random_normal(1, stream, i));
  }
  return values;
}

/// The baseline of top k: the exact selection of the standard library.
void select_by_nth_element(const std::vector<float>& values, size_t k,
                           std::vector<uint32_t>& indices) {
  indices.resize(values.size());
  std::iota(indices.begin(), indices.end(), 0);
  std::nth_element(
      indices.begin(), indices.begin() + static_cast<std::ptrdiff_t>(k), indices.end(),
      [&](uint32_t a, uint32_t b) { return std::fabs(values[a]) > std::fabs(values[b]); });
  indices.resize(k);
}

void run() {
  std::vector<float> a = normal_values(1);
  const std::vector<float> b = normal_values(2);
  std::vector<float> copy(kFloats);
  std::vector<uint16_t> halves(kFloats + net::kHalfHeadWords);
  std::vector<uint32_t> indices;
  std::printf("%-34s %8s %8s %8s %12s\n", "us per MB", "median", "min", "max", "of the copy");
  report("copy (memcpy)", 2, [&] { std::memcpy(copy.data(), b.data(), kFloats * sizeof(float)); });
  report("sum: add", 3, [&] {
    for (size_t i = 0; i < kFloats; ++i) copy[i] += b[i];
  });
  net::AdasumDots dots;
  report("adasum: dot products", 2, [&] { net::add_dots(a, b, dots); });
  report("adasum: average", 3, [&] { net::combine({0.5, 0.5}, a, b); });
  for (const auto& [name, format] :
       {std::pair("bf16", net::HalfFormat::kBf16), std::pair("fp16", net::HalfFormat::kFp16)}) {
    report(std::string(name) + ": encode", 1.5, [&] { net::encode_half(format, b, halves); });
    report(std::string(name) + ": decode and add", 2.5, [&] { net::add_half(halves, copy); });
  }
  report("top k: check that all are finite", 1, [&] { net::are_finite(b); });
  for (double density : {0.001, 0.01, 0.1}) {
    const size_t k = net::top_k_count(density, kFloats);
    const std::string suffix = " " + std::to_string(density).substr(0, 5);
    report("top k: select" + suffix, 1, [&] { net::select_top_k(b, k, indices); });
    report("top k: by nth_element" + suffix, 1, [&] { select_by_nth_element(b, k, indices); });
  }
}

}  // namespace
}  // namespace skein::bench

int main() {
  skein::bench::run();
  return 0;
}
