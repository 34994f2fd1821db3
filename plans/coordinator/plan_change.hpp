#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/coordinator/membership.hpp"
#include "plans/elastic/restore.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/plan/plan.hpp"
#include "plans/planner/planner.hpp"

namespace skein::plans {

/// One round of a change of plan after the other: every member quiesces and says what state it
/// holds, a plan is chosen, it is assigned with what has to move where, those that have a part in
/// it prepare, and it starts. Knows the plan in force, and who has which part. A state machine
/// without clock or I/O.
class PlanChange {
 public:
  /// `last`: the plan of an earlier life of the coordinator, whose state workers may still hold.
  PlanChange(const JobSpec& job, std::optional<Plan> last);

  /// A new round: nobody has quiesced, and nothing is prepared.
  void begin();
  /// False: the member has answered in this round.
  bool take_inventory(WorkerId worker, std::vector<InventoryItem> inventory);
  /// A worker is lost, or has left.
  void forget(WorkerId worker);
  /// Who cannot reach one another: no state moves between them from now on.
  void set_apart(WorkerPairs apart) { apart_ = std::move(apart); }
  const WorkerPairs& apart() const { return apart_; }
  bool has_quiesced(WorkerId worker) const { return inventories_.contains(worker); }
  bool is_quiet(const std::map<WorkerId, Member>& members) const;

  /// A plan of this round is being made for those who could work then.
  void ask_for(std::vector<WorkerId> able) { asked_for_ = std::move(able); }
  /// Empty: none has been made in this round.
  const std::vector<WorkerId>& asked_for() const { return asked_for_; }

  /// What may be taken up in the next round instead of a new answer of the planner.
  void propose(PlannedPipeline plan) { proposed_ = std::move(plan); }
  void drop_proposal() { proposed_.reset(); }
  /// The proposal, if all of its workers are among `workers`; it is gone then, in any case.
  std::optional<PlannedPipeline> take_proposal(const std::vector<WorkerId>& workers);

  /// How far the state is that the plan starts with.
  struct Durable {
    uint64_t committed = 0;  // Steps.
    uint64_t durable = 0;    // By the newest checkpoint.
  };
  /// Where such a plan would go on, by what the members have said in this round.
  RestoreDecision restore_of(const Plan& plan, const Durable& durable) const;
  /// The newest step whose state is here, by those who have quiesced, or on disk.
  uint64_t newest_step(const Durable& durable) const;
  /// "w1 holds layers 0-3 after 20 steps; ..."
  std::string describe_inventories() const;
  /// The plan is the next one. Its workers are members, and all have quiesced.
  void assign(Plan plan, const std::map<WorkerId, Member>& members, const Durable& durable);
  /// Nothing is assigned: there are too few workers.
  void pause() {
    hosted_.clear();
    givers_.clear();
    peers_that_keep_.clear();
  }
  /// The plan is in force: what moves has moved.
  void start() { givers_.clear(); }
  /// False: the worker has said so before, or has no part in the plan.
  bool take_prepared(WorkerId worker, const TurnReport& turns);
  bool is_prepared(WorkerId worker) const { return prepared_.contains(worker); }
  bool is_everybody_prepared() const;
  /// What each has said of the device that it shares.
  const std::map<WorkerId, TurnReport>& prepared() const { return prepared_; }

  /// The plan that is prepared or in force, or the one before while there is none.
  const std::optional<Plan>& plan() const { return plan_; }
  const RestoreDecision& restore() const { return restore_; }
  const std::vector<WorkerId>& snapshot_peers() const { return snapshot_peers_; }
  /// The replicas of each worker, by the plan that is prepared or in force.
  const std::map<WorkerId, std::set<ReplicaId>>& hosted() const { return hosted_; }
  bool hosts(WorkerId worker) const { return hosted_.contains(worker); }
  /// It sends state to others before the plan can start.
  bool gives_state(WorkerId worker) const { return givers_.contains(worker); }
  std::vector<WorkerId> workers() const;
  /// It has replicas, keeps snapshots, or sends state.
  bool takes_part(WorkerId worker) const;

  RunEvent describe(const PlannedPipeline& chosen, bool has_trained, uint64_t planning_us) const;

  void check_invariants(const std::map<WorkerId, Member>& members) const;

 private:
  StateSources sources(const Durable& durable) const;

  // Invariants: inventories are of members; whoever has prepared has a part in the plan; parts are
  // of the plan; `givers_` and `peers_that_keep_` repeat what the moves and the snapshot peers say,
  // to be asked for every message.
  JobSpec job_;
  std::map<WorkerId, std::vector<InventoryItem>> inventories_;  // This change's own.
  std::map<WorkerId, TurnReport> prepared_;
  WorkerPairs apart_;
  std::vector<WorkerId> asked_for_;  // This change's own.
  std::optional<PlannedPipeline> proposed_;
  std::optional<Plan> plan_;
  RestoreDecision restore_;               // The plan's.
  std::vector<WorkerId> snapshot_peers_;  // By stage of the plan; 0: there is none.
  std::map<WorkerId, std::set<ReplicaId>> hosted_;
  std::set<WorkerId> givers_;
  std::set<WorkerId> peers_that_keep_;
};

}  // namespace skein::plans
