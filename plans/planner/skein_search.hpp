#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "plans/planner/draft_timing.hpp"
#include "plans/planner/local_search.hpp"

namespace skein::plans {

/// A draft and where it comes from.
struct Candidate {
  PlanDraft draft;
  double step_us = 0;  // By `DraftTiming`.
  std::string origin;
};

/// The best drafts that were seen, by `DraftTiming`, without repeats. Not thread-safe.
class CandidatePool {
 public:
  /// Keeps `capacity` candidates at most.
  CandidatePool(DraftTiming& timing, size_t capacity) : timing_(timing), capacity_(capacity) {}

  /// Rates the draft as it is; keeps it if it is good enough.
  void add(const PlanDraft& draft, const std::string& origin);
  /// ... with every schedule of the request that is cheap to make.
  void add_with_schedules(PlanDraft draft, const std::string& origin);

  /// Best first; on a tie the one that was added first.
  const std::vector<Candidate>& candidates() const { return candidates_; }

 private:
  DraftTiming& timing_;
  size_t capacity_;
  std::vector<Candidate> candidates_;
  std::set<PlanDraft> seen_;
};

/// Fills the pool with partitions of the devices' orders.
void add_partitions(DraftTiming& timing, CandidatePool& pool);

/// Adds variants of the pool's best with several stages per rank, for the schedules of the request
/// that take them.
void add_virtual_stages(DraftTiming& timing, CandidatePool& pool);

/// Improves the pool's best, and the best of each number of stages, by local search.
void improve_candidates(DraftTiming& timing, CandidatePool& pool);

/// Work (`DraftTiming::work`) that the search may do for a request: a second at most for 64
/// devices.
int64_t search_budget(const PlanRequest& request);

}  // namespace skein::plans
