#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plans/elastic/worker_pairs.hpp"

namespace skein::plans {

/// Which workers have said that they cannot reach one another, though both reach the coordinator.
/// Believed for a minute, and each further time for twice as long, up to half an hour; then plans
/// try the link again. One that then works for a minute is as if it had never failed. A pair is
/// forgotten when one of the two is gone. The number of pairs is bounded: the one that ends first
/// goes. A state machine without clock or I/O; times are microseconds of one steady clock.
class UnreachablePairs {
 public:
  /// `generation`: of the plan under which they noticed. False: it was known of this plan.
  bool add(WorkerId one, WorkerId other, uint64_t generation, uint64_t now_us);
  void forget(WorkerId worker);
  /// The next plan tries all links: none without them could begin with the newest step.
  void try_again(uint64_t now_us);
  /// Those that are believed now.
  WorkerPairs at(uint64_t now_us) const;
  /// Every link that is believed to be down was tried again in vain.
  bool were_tried_again(uint64_t now_us) const;
  /// These workers, of whom no two do not reach one another though the link was tried again, as no
  /// plan could do without it. Those go that most others do not reach; of like ones the last to
  /// come.
  std::vector<WorkerId> without_stubborn(std::vector<WorkerId> workers, uint64_t now_us) const;
  /// When the next one is tried again; none: nothing is believed.
  std::optional<uint64_t> next_end_us(uint64_t now_us) const;
  /// "w1 and w2, w1 and w4 do not reach one another"
  std::string describe(uint64_t now_us) const;

  void check_invariants() const;

 private:
  struct Entry {
    uint64_t generation = 0;
    uint64_t until_us = 0;
    int times = 0;
    bool is_tried = false, is_stubborn = false;  // By `try_again`; in vain.
  };
  std::map<WorkerPair, Entry> pairs_;  // Invariant: at most as many as are kept, of unlike workers.
};

}  // namespace skein::plans
