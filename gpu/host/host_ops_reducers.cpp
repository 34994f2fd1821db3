#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "gpu/host/host_ops.hpp"
#include "plans/base/check.hpp"

// Obvious forms: gradients in the host's memory are summed by net/reduce.

namespace skein::gpu {

void HostOps::select_top_k(const float* x, int64_t count, int64_t k, uint32_t* indices) {
  SKEIN_CHECK(k >= 1 && k <= count && count <= INT64_C(0xFFFFFFFF)) << k << " of " << count;
  std::vector<uint32_t> all(static_cast<size_t>(count));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint32_t>(i);
  auto magnitude = [x](uint32_t i) { return std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFU; };
  auto comes_first = [&](uint32_t a, uint32_t b) {
    return magnitude(a) != magnitude(b) ? magnitude(a) > magnitude(b) : a < b;
  };
  std::nth_element(all.begin(), all.begin() + (k - 1), all.end(), comes_first);
  std::copy_n(all.begin(), k, indices);
  std::sort(indices, indices + k);
}

void HostOps::add_dots(const float* a, const float* b, int64_t count, Dots* dots) {
  Dots sum;
  for (int64_t i = 0; i < count; ++i) {
    sum.ab += double{a[i]} * double{b[i]};
    sum.aa += double{a[i]} * double{a[i]};
    sum.bb += double{b[i]} * double{b[i]};
  }
  dots->ab += sum.ab;
  dots->aa += sum.aa;
  dots->bb += sum.bb;
}

void HostOps::combine(double own_factor, float* own, double other_factor, const float* other,
                      int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    own[i] = static_cast<float>(own_factor * double{own[i]} + other_factor * double{other[i]});
  }
}

}  // namespace skein::gpu
