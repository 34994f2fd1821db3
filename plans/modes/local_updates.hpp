#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "plans/coordinator/stage_sync.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/modes/carried_updates.hpp"
#include "plans/modes/claim_pool.hpp"
#include "plans/modes/claims_in_flight.hpp"
#include "plans/modes/round_totals.hpp"
#include "plans/modes/training_mode.hpp"
#include "plans/share/turn_naming.hpp"
#include "plans/sync/group_scheduler.hpp"
#include "plans/sync/pipeline_layout.hpp"

namespace skein::plans {

/// Pipeline replicas train apart from each other, through one plan. A commit is a round.
///
/// Time is cut in rounds of whole steps. Within one, a pipeline replica claims samples, applies its
/// own updates, and between two iterations averages weights with whom the policy says. When the
/// samples of a round are done, each once, and no group runs, all pipeline replicas take the global
/// average of their weights and moments: then they are as alike as after a synchronous step.
///
/// Claims may be of unlike sizes, as the rows of the plan's pipeline replicas are. Then a member of
/// an average weighs as much more as the claim that it has just done was larger, or, in the global
/// average, as its claims are.
///
/// With a parameter server, whose shards are with the pipeline replicas, a group pushes its
/// members' updates to it and takes its weights; a round ends with a push of all. A pipeline
/// replica that is lost takes its shard along: then the rest of the round, which should be cut
/// short, is done without a server.
///
/// A pipeline replica is lost with the first of its workers. The policy hears of it first, its
/// groups are aborted, and the others go on; only in the global average can nobody be missed. Its
/// claim goes to another one, and so do the samples of its iterations that are, at some stage, in
/// nobody's weights any more.
///
/// With one claim in flight (`sync.claims_in_flight`) a pipeline replica applies its update when
/// all its stages are ready, clipped by the norm of all. With more it is never flushed within a
/// round: each stage applies its own, and is told to the policy, when it is ready. When the pool
/// has nothing for it, it leaves the policy, and does the claims that it holds alone.
///
/// The policy, one for all stages, is asked directly: what it starts begins with the same event.
/// Groups get numbers of their own in the order in which their members hear of them, as the policy
/// knows nothing of the global average.
class LocalUpdates final : public TrainingMode {
 public:
  /// All pipeline replicas of the plan are there, and nothing is claimed.
  LocalUpdates(const JobSpec& job, const Plan& plan, std::unique_ptr<GroupScheduler> policy);

  ModeDecisions begin(uint64_t first_step, uint64_t end_step, uint64_t now_us) override;
  ModeOutcome on_ready(WorkerId sender, const ReadyReport& report, uint64_t now_us) override;
  ModeOutcome on_early_signal(WorkerId sender, ReplicaId replica, uint64_t step,
                              uint64_t now_us) override;
  ModeOutcome on_averaged(WorkerId sender, ReplicaId replica, uint64_t number, bool ok,
                          uint64_t now_us) override;
  void on_validation(double loss) override { policy_->on_validation(loss); }
  void on_turn_report(WorkerId worker, const TurnReport& report) override;
  ModeDecisions on_timer(uint64_t now_us) override;
  std::optional<uint64_t> wake_us() const override { return wake_us_; }
  /// The round ends with the step in which a sample was claimed last.
  void cut_short() override;
  bool survives_losses() const override { return true; }
  ModeDecisions lose(WorkerId worker, uint64_t now_us) override;
  bool is_whole() const override { return !has_lost(); }
  uint64_t commit_steps() const override { return round_steps_; }
  /// What each holds, by how long its last iteration took.
  std::optional<double> time_when_cut_short(uint64_t now_us) const override;
  bool leaves_commits_behind() const override { return true; }
  int32_t pipeline_replica_of(ReplicaId replica) const override {
    return static_cast<int32_t>(layout_.pipeline_of(replica));
  }
  bool awaits(ReplicaId replica) const override;
  ModeTimings last_timings() const override { return last_timings_; }
  void check_invariants() const override;

  uint64_t end_step() const { return end_step_; }
  /// The round's totals, without the iterations that have been lost.
  RoundTotals totals() const;

 private:
  struct Pipeline {  // A pipeline replica.
    bool is_lost = false;
    bool has_policy = true;   // The policy counts it as present.
    uint64_t iterations = 0;  // In this round.
    uint64_t pace_us = 0;     // As `pace_us()` of its last iteration; 0: none yet.
    uint64_t step_us = 0;     // From its begin to its end, of the same.
    uint64_t trained = 0;     // Samples of the same; before it, of a whole claim.
    ClaimsInFlight claims;
    std::set<uint32_t> waiting = {};  // Stages that the policy knows of and has no group for.
    /// Where devices are shared with other jobs, its passes have turns of their own. With several
    /// claims in flight there are no passes apart from each other, and no turns.
    TurnNaming turns = TurnNaming(1);
  };
  struct Group {
    uint64_t policy_number = 0;
    bool is_closing = false;
    bool is_global = false;
    bool has_server = false;
    uint32_t stage = 0;
    CarriedUpdates::Counts contribution;
  };

  StageSync& stage_of(ReplicaId replica) { return stages_[layout_.stage_of(replica)]; }
  const StageSync& stage_of(ReplicaId replica) const { return stages_[layout_.stage_of(replica)]; }
  bool is_in_group(ReplicaId replica) const { return stage_of(replica).is_in_group(replica); }
  bool is_flushed() const { return claims_max_ == 1; }
  uint64_t name_turn_of(uint32_t pipeline) {
    return is_flushed() ? pipelines_[pipeline].turns.name_next() : 0;
  }
  void update(uint32_t pipeline, CoordinatorDecisions& orders);
  void update_stage(uint32_t pipeline, uint32_t stage, const ReadyReport& report,
                    CoordinatorDecisions& orders);
  void ask_for_group(uint32_t pipeline, uint32_t stage, CoordinatorDecisions& orders);
  bool take_claim(uint32_t pipeline, CoordinatorDecisions& orders);
  uint64_t pace_us(const PipelineIteration& iteration) const;
  const PipelineIteration& finish(uint32_t pipeline);
  void resume(uint32_t pipeline, CoordinatorDecisions& orders);
  void begin_claim(uint32_t pipeline, const SampleClaim& claim);
  void expect_next(uint32_t pipeline, uint32_t stage);
  bool declare_diverged(uint32_t pipeline, const SampleClaim& claim, double loss_sum,
                        uint64_t loss_tokens, double norm, CoordinatorDecisions& orders);
  void redo_returned(CoordinatorDecisions& orders);
  std::optional<SampleClaim> claim_for(uint32_t pipeline);
  std::optional<SampleClaim> next_claim(uint32_t pipeline);
  void weigh(std::vector<GroupMember>& members, bool is_global) const;
  double share_of(ReplicaId replica) const;
  uint64_t trained(ReplicaId replica) const;
  bool would_be_last(uint32_t pipeline) const;
  bool is_profiled() const;

  void tell_policy(const MembershipChange& change, CoordinatorDecisions& orders);
  void follow_policy(GroupDecisions decisions, CoordinatorDecisions& orders);
  bool start_group(const GroupStart& start, CoordinatorDecisions& orders);
  void go_on_alone(ReplicaId replica, CoordinatorDecisions& orders);
  void leave_policy(uint32_t pipeline, CoordinatorDecisions& orders);
  void begin_group(const AverageWeights& average, Group group);
  void end_group(const EndedGroup& ended, CoordinatorDecisions& orders);
  void abort_groups_of(uint32_t pipeline, CoordinatorDecisions& orders);

  void try_meet(CoordinatorDecisions& orders);
  void close(bool is_global, CoordinatorDecisions& orders);
  void redo_lost_iterations();
  std::set<uint32_t> pipelines_of(WorkerId worker) const;
  bool has_lost() const;
  ModeDecisions made(CoordinatorDecisions orders);

  // Invariants: a pipeline replica that computes is there, and the pool knows what it holds; a lost
  // one holds nothing, and is neither present to the policy nor awaited by a group. A stage waits
  // for the policy only while the pipeline replica is present to it. Groups
  // here are those that the stages run. While all take the global average nobody computes, and no
  // other group runs. Once all have it, nothing runs until the next round.
  PipelineLayout layout_;
  Plan plan_;
  uint64_t batch_ = 0;             // Samples of a step.
  std::vector<uint64_t> samples_;  // [pipeline replicas], of one iteration.
  bool is_sized_ = false;          // Not all of them have as many.
  uint64_t round_steps_ = 1;       // At most.
  size_t claims_max_ = 1;          // That a pipeline replica may hold.
  bool profiles_ = false;
  uint64_t profile_freq_ = 0;
  std::optional<uint64_t> profiled_step_;  // First step of the last round with timings.
  bool profiles_round_ = false;
  std::vector<StageSync> stages_;
  std::vector<Pipeline> pipelines_;
  std::optional<ClaimPool> pool_;
  std::map<uint64_t, Group> groups_;  // That run, by number.
  uint64_t next_number_ = 1;
  uint64_t end_step_ = 0;
  uint64_t begun_us_ = 0;         // The round.
  uint64_t closes_since_us_ = 0;  // The last average of the round, or its push before that.
  bool has_server_ = false;
  bool has_pushed_ = false;  // All have, at the end of the round.
  bool is_meeting_ = false;  // The global average is taken.
  bool is_global_ = true;    // All pipeline replicas have it.
  bool has_ended_ = false;   // The round has, and nobody was told yet.
  bool has_failed_ = false;  // Nobody can end the round: it has to be done again.
  bool has_diverged_ = false;
  std::vector<PipelineIteration> iterations_;  // The round's.
  CarriedUpdates carried_;
  std::vector<uint64_t> staleness_;  // [stages], largest of the round's groups.
  ModeTimings last_timings_;
  std::unique_ptr<GroupScheduler> policy_;
  std::optional<uint64_t> wake_us_;  // The policy's wish.
  uint64_t now_us_ = 0;              // The time of the event that is handled.
};

}  // namespace skein::plans
