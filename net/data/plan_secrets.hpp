#pragma once

#include <cstdint>
#include <map>

namespace skein::net {

/// The secret of a plan: 64 bits that those know who exchange tensors in it. 0: none.
struct PlanSecret {
  uint64_t generation = 0;
  uint64_t value = 0;
};

/// The secrets of the plans that are not closed yet. Not thread-safe. Nothing of it is ever logged.
class PlanSecrets {
 public:
  void set(PlanSecret secret) { values_[secret.generation] = secret.value; }
  /// 0 if none was told; so for generation 0, which is of no plan.
  uint64_t of(uint64_t generation) const {
    const auto found = values_.find(generation);
    return found == values_.end() ? 0 : found->second;
  }
  void forget_before(uint64_t generation) {
    values_.erase(values_.begin(), values_.lower_bound(generation));
  }

 private:
  std::map<uint64_t, uint64_t> values_;  // By generation.
};

}  // namespace skein::net
