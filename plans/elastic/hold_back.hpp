#pragma once

#include <cstdint>
#include <map>

#include "plans/base/ids.hpp"

namespace skein::plans {

/// Keeps workers that come and go from changing the plan each time: after its n-th loss a worker
/// that is back takes part again after 2^(n - 2) seconds, at most a minute; the first loss is free.
/// A worker that stays for ten minutes is trusted again. Of thousands of workers that were lost,
/// those that were lost first are forgotten.
class HoldBack {
 public:
  void on_lost(WorkerId worker, uint64_t now_us);
  /// When a worker that joins now may take part.
  uint64_t eligible_us(WorkerId worker, uint64_t now_us) const;

 private:
  struct Losses {
    int count = 0;
    uint64_t last_us = 0;
  };
  std::map<WorkerId, Losses> losses_;
};

}  // namespace skein::plans
