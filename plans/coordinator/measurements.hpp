#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/coordinator/membership.hpp"
#include "plans/coordinator/probe_ring.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/planner/measured_request.hpp"

namespace skein::plans {

/// What workers have measured of their devices and links, and who is asked to. On each host one
/// worker measures at a time: several would disturb each other. A state machine without clock or
/// I/O.
class Measurements {
 public:
  explicit Measurements(const JobSpec& job) : job_(job) {}

  /// Everybody answers the probes of those whose links to it are measured (`ProbeRing`), as the
  /// members are now.
  CoordinatorDecisions tell_peers(const std::map<WorkerId, Member>& members);
  /// Asks whoever can be asked now. If the links to be measured are no longer those that the
  /// members were told, they are told before.
  CoordinatorDecisions request(const std::map<WorkerId, Member>& members);
  void take(const Member& member, MeasuredWorker measured);
  /// The worker is no member any more. True: it had been asked, and others may be now.
  bool forget(WorkerId worker);
  /// The worker takes `slowdown` times as long as it had measured.
  void slow_down(WorkerId worker, double slowdown);

  bool has(WorkerId worker) const { return measured_.contains(worker); }
  bool is_asked(WorkerId worker) const { return asked_.contains(worker); }
  /// Whether all have measured that can be asked: one that has failed measures nothing.
  bool has_all(const std::map<WorkerId, Member>& members) const;
  const std::set<WorkerId>& asked() const { return asked_; }
  /// All of them, or those of `workers` that have measured; ascending.
  std::vector<MeasuredWorker> all() const;
  std::vector<MeasuredWorker> of(const std::vector<WorkerId>& workers) const;
  /// The same, with what others have measured, or what FLOPs say, for those who have not: whoever
  /// needs a plan at once takes all for alike.
  std::vector<MeasuredWorker> of_or_guessed(const std::vector<WorkerId>& workers) const;
  /// A worker that joined late, and its speed, where that of the first one that has measured is 1.
  RunEvent describe(WorkerId worker) const;

  void check_invariants(const std::map<WorkerId, Member>& members) const;

 private:
  // Invariants: all are of members; nobody is asked who has measured.
  JobSpec job_;
  std::map<WorkerId, MeasuredWorker> measured_;
  std::set<WorkerId> asked_;
  std::optional<ProbeRing> told_;  // What the members were told last.
};

}  // namespace skein::plans
