#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "plans/planner/candidate_timing.hpp"
#include "plans/planner/local_search.hpp"

namespace skein::plans {

/// A candidate plan and where it comes from.
struct Candidate {
  CandidatePlan candidate;
  double step_us = 0;  // By `CandidateTiming`.
  std::string origin;
};

/// The best candidate plans that were seen, by `CandidateTiming`, without repeats. Not thread-safe.
class CandidatePool {
 public:
  /// Keeps `capacity` candidates at most.
  CandidatePool(CandidateTiming& timing, size_t capacity) : timing_(timing), capacity_(capacity) {}

  /// Rates the candidate plan as it is; keeps it if it is good enough.
  void add(const CandidatePlan& candidate, const std::string& origin);
  /// ... with every schedule of the request that is cheap to make.
  void add_with_schedules(CandidatePlan candidate, const std::string& origin);

  /// Best first; on a tie the one that was added first.
  const std::vector<Candidate>& candidates() const { return candidates_; }

 private:
  CandidateTiming& timing_;
  size_t capacity_;
  std::vector<Candidate> candidates_;
  std::set<CandidatePlan> seen_;
};

/// Fills the pool with partitions of the devices' orders.
void add_partitions(CandidateTiming& timing, CandidatePool& pool);

/// Adds variants of the pool's best with several stages per rank, for the schedules of the request
/// that take them.
void add_virtual_stages(CandidateTiming& timing, CandidatePool& pool);

/// Improves the pool's best, and the best of each number of stages, by local search.
void improve_candidates(CandidateTiming& timing, CandidatePool& pool);

/// Work (`CandidateTiming::work`) that the search may do for a request: a second at most for 64
/// devices.
int64_t search_budget(const PlanRequest& request);

}  // namespace skein::plans
