#include "plans/sync/components.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

TEST(Components, AgreeWithLabelsWhilePipelinesComeAndGo) {
  constexpr uint32_t kPipelines = 7;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Rng rng(seed);
    Components components(std::vector<bool>(kPipelines, true));
    std::vector<uint64_t> labels = {0, 1, 2, 3, 4, 5, 6};
    std::vector<bool> present(kPipelines, true);
    uint64_t next_label = kPipelines;
    for (int step = 0; step < 2000; ++step) {
      const auto a = static_cast<uint32_t>(rng.below(kPipelines));
      const auto b = static_cast<uint32_t>(rng.below(kPipelines));
      const uint64_t kind = rng.below(20);
      if (kind == 0) {
        components.reset();
        for (uint64_t& label : labels) label = next_label++;
      } else if (kind < 5) {
        present[a] ? components.leave(a) : components.join(a);
        present[a] = !present[a];
        labels[a] = next_label++;  // Of the left: nobody has it.
      } else if (present[a] && present[b]) {
        components.connect(std::vector<uint32_t>{a, b});
        std::replace(labels.begin(), labels.end(), uint64_t{labels[a]}, uint64_t{labels[b]});
      }
      std::set<uint64_t> distinct;
      for (uint32_t c = 0; c < kPipelines; ++c) {
        if (present[c]) distinct.insert(labels[c]);
      }
      ASSERT_EQ(components.count(), distinct.size()) << seed << " " << step;
      if (!present[a] || !present[b]) continue;
      ASSERT_EQ(components.find(a) == components.find(b), labels[a] == labels[b]);
    }
  }
}

}  // namespace
}  // namespace skein::plans
