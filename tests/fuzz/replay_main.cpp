// The short form for compilers without libFuzzer: every seed, its truncations, and random
// mutations.
#include <algorithm>
#include <cstdio>

#include "plans/base/rng.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/support/cases.hpp"

namespace {

constexpr uint64_t kChangesMax = 6;
constexpr size_t kStride = 4 / skein::tests::cases(4);  // So few truncations are tried.

}  // namespace

int main() {
  skein::plans::Rng rng(2026);
  int runs = 0;
  const std::vector<std::vector<uint8_t>> seeds = skein::fuzz::seeds();
  for (const std::vector<uint8_t>& seed : seeds) {
    for (size_t length = 0; length <= seed.size(); length += kStride, ++runs) {
      skein::fuzz::run_one(seed.data(), length);
    }
    for (size_t i = 0; i < skein::tests::cases(skein::fuzz::short_run()) / seeds.size();
         ++i, ++runs) {
      std::vector<uint8_t> bytes = seed;
      for (uint64_t changes = 1 + rng.below(kChangesMax); changes > 0; --changes) {
        // A byte that the seed has elsewhere often leaves a text one that can be parsed.
        const uint64_t any = rng.bits();
        bytes[rng.below(bytes.size())] =
            rng.below(2) == 0 ? seed[any % seed.size()] : static_cast<uint8_t>(any);
      }
      if (rng.below(4) == 0) bytes.resize(rng.below(bytes.size() + 1));
      skein::fuzz::run_one(bytes.data(), bytes.size());
    }
  }
  std::printf("%d inputs, no crash\n", runs);
  return 0;
}
