#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "plans/coordinator/stage_sync.hpp"
#include "plans/modes/training_mode.hpp"
#include "plans/tokens/token_order.hpp"
#include "plans/tokens/token_pool.hpp"

namespace skein::plans {

/// A commit is one step of the whole job, as in synchronous steps; its samples are pulled by
/// workers as tokens. A worker asks when its device has begun the step, and is granted tokens ahead
/// of what it computes, so that their inputs travel meanwhile, fewer if it keeps them from others
/// (`ahead_in_next_step`); whoever is slow comes to fewer of them, but where it is the only one
/// that may train a sub-model. The replicas of a stage reduce its gradients as soon as all of the
/// stage's tokens are done, while others still compute. Each replica's gradient is a sum over its
/// samples, scaled by the step's, so the reduced one does not depend on who came to which token but
/// for the order of sums. Source: Fela, ICDE'20 (from memory).
///
/// Differs: the loss of a worker ends the plan, and the step is done again with another one. Its
/// gradients go to groups that all replicas of a stage belong to, and these end with a member.
class TokenSteps final : public TrainingMode {
 public:
  TokenSteps(const JobSpec& job, const Plan& plan);

  ModeDecisions begin(uint64_t first_step, uint64_t end_step, uint64_t now_us) override;
  ModeOutcome on_token(WorkerId sender, ReplicaId replica, uint64_t step, int32_t token,
                       TokenEvent event, uint64_t now_us) override;
  ModeOutcome on_ready(WorkerId sender, const ReadyReport& report, uint64_t now_us) override;
  ModeOutcome on_reduced(WorkerId sender, ReplicaId replica, uint64_t step, double norm_squared,
                         uint64_t now_us) override;
  bool awaits(ReplicaId replica) const override;
  /// None: no worker of a sub-model that all may train is held to a share of the work that it could
  /// be too slow for. Those whom a limited sub-model is left to are, and are not watched: what one
  /// of them is to be busy follows from what it came to, and nothing says what that should be.
  ModeTimings last_timings() const override { return {}; }
  void check_invariants() const override;

 private:
  struct Worker {
    bool has_begun = false;  // It asks for tokens from then on.
    uint32_t granted = 0;  // Tokens whose output, or on the last level whose end, is not reported.
    uint32_t due = 0;      // Whose backward may run, and is not reported.
    uint32_t newest_level = 0;  // Where it was granted last, if at all.
    TokenUse use;               // What it has had in this step.
  };
  uint32_t level_of(ReplicaId replica) const;
  bool is_last(uint32_t level) const;
  ReplicaId replica_at(uint32_t level, WorkerId worker) const;
  /// Tokens whose backward may run from now on. One that has been reported already is done at once.
  void on_due(const TokenPool::Tokens& due, ModeDecisions& decisions);
  std::optional<DropReason> on_output(WorkerId sender, TokenId id);
  std::optional<DropReason> on_end(WorkerId sender, TokenId id, ModeDecisions& decisions);
  void on_done(WorkerId worker, TokenId id, ModeDecisions& decisions);
  /// Grants what can be granted.
  void grant_all(ModeDecisions& decisions);
  bool grant_one(WorkerId worker, Worker& own, ModeDecisions& decisions);
  /// Nothing can be granted. Notes who holds tokens that others could compute.
  void note_kept();
  void reduce(uint32_t level, ModeDecisions& decisions);
  ModeDecisions try_complete();
  /// In proportion to what each has come to in the step before; at first all alike.
  std::vector<double> speeds() const;

  // Invariants: while a step is in progress some stage is not complete; otherwise no report is
  // taken. A stage's reports are expected from the time on at which all of its tokens are done.
  const Plan plan_;
  const TokenShape shape_;
  const LevelWorkers level_workers_;
  const TokenPolicy policy_;
  const uint32_t ahead_;
  TokenPool pool_;        // The step's in progress.
  TokenBuckets buckets_;  // The same.
  std::map<WorkerId, Worker> workers_;
  std::set<TokenId> early_;        // Done, by what their holders say, before their consumers are.
  std::vector<StageSync> stages_;  // [stages of the plan]
  std::vector<bool> is_reducing_;  // [stages of the plan]
  uint64_t step_ = 0;              // In progress, or complete.
  bool is_in_progress_ = false;
};

}  // namespace skein::plans
