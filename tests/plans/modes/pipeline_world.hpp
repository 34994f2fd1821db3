#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "plans/base/rng.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/modes/local_updates.hpp"
#include "plans/sync/policy_kind.hpp"
#include "tests/plans/worker/watched_program.hpp"

namespace skein::plans {

/// A job of pipeline replicas: three steps of two samples for each pipeline replica, in one
/// micro-batch of one row.
JobSpec pipeline_job(int64_t stages, int64_t pipelines, const std::string& policy = "sdpipe");

/// Pipeline replicas of one worker per stage that do what `LocalUpdates` with its policy and the
/// `LocalProgram`s say, in a random order of events: messages keep their order on each way and take
/// any time. Checks what always holds, above all that a round fails only if nobody is left or
/// somebody dies while the average is taken; breaches are failures of gtest, with the seed.
class PipelineWorld {
 public:
  struct Options {
    uint64_t seed = 1;
    double repeat_share =
        0;               // The share of the coordinator's messages that come twice, now or later.
    uint32_t kills = 0;  // Workers that die, at any time.
    uint64_t kill_after = 200;  // Events before the last kill, at most.
    uint64_t round_steps = 3;   // Of a round, unless it is cut short.
    uint64_t rounds = 3;
    double cut_share = 0;            // The share of events after which the round is cut short.
    std::vector<int64_t> rows = {};  // [pipeline replicas] of a micro-batch; empty: one each.
    /// What replicas do, in the order in which it happens; all are called if one is. Work that
    /// ended, with the first sample of the claim it is of; and members of a group that give what
    /// they have, and that take the result.
    std::function<void(uint32_t replica, const ProgramCommand& work, uint64_t first_sample)>
        on_work = {};
    std::function<void(uint32_t replica, const AverageWeights& group)> on_give = {};
    std::function<void(uint32_t replica, const AverageWeights& group)> on_take = {};
  };

  PipelineWorld(JobSpec job, Options options);

  /// Until all rounds have ended, the loop has failed, or nothing can happen any more, which is a
  /// breach.
  void run();

  bool has_failed() const { return has_failed_; }
  uint64_t steps_done() const { return first_step_; }
  uint64_t groups_of_several() const { return groups_of_several_; }
  uint64_t aborted() const { return aborted_; }
  uint64_t nonblocking() const { return nonblocking_; }
  uint64_t pushes() const { return pushes_; }
  /// Iterations that were done again as they were in nobody's weights any more.
  uint64_t redone() const { return redone_; }
  uint64_t dropped_by_programs() const;

 private:
  struct Claim {  // To a rank.
    uint64_t step = 0;
    SampleClaim claim;
  };
  using ToRank = std::variant<Claim, CommitPipeline, AverageWeights, AbortGroup, CommitOrder>;
  struct Averaged {  // From a rank.
    uint64_t number = 0;
    bool ok = false;
  };
  using FromRank = std::variant<ReadyReport, SendEarlySignal, Averaged>;
  struct Exchange {  // One member of a group.
    uint64_t number = 0;
    bool is_nonblocking = false;
  };
  struct Rank {
    explicit Rank(std::unique_ptr<WorkerProgram> own) : program(std::move(own)) {}
    Watched<WorkerProgram> program;
    bool is_dead = false;
    bool is_known_dead = false;
    std::deque<ProgramCommand> device;
    std::deque<ToRank> in;
    std::vector<ToRank> repeats;  // Older ones, to come again.
    std::deque<FromRank> out;
    std::deque<InputKey> inputs;
    std::optional<Exchange> exchange;
    std::set<uint64_t> aborted;  // Before the program has begun them.
    uint64_t newest = 0;         // Group that was offered.
    uint64_t updates = 0;
    double weight = 0;
    std::map<uint64_t, SampleClaim> claims;  // By step of the pipeline replica.
    // Whose updates are in its weights, by first sample; what others add to a non-blocking one
    // comes with its next update.
    std::set<uint64_t> carried, pending;
  };
  struct Group {
    AverageWeights order;
    std::map<ReplicaId, double> contribution;  // Those that have begun.
    std::set<uint64_t> carried;                // By their contributions.
    size_t through = 0;                        // Members, of a server's group.
  };

  using Event = std::function<void()>;
  std::vector<Event> possible();
  void add_rank_events(uint32_t id, std::vector<Event>& events);
  bool is_anybody_slow() const;
  std::string activities() const;
  void kill();
  void apply(ModeDecisions decisions);
  void apply(ModeOutcome outcome);
  void take(const ClaimSamples& decision);
  void take(const CommitPipeline& decision);
  void take(const AverageWeights& decision);
  void take(const AbortGroup& decision);
  void send(ReplicaId replica, const ToRank& message);
  void deliver(uint32_t id, const ToRank& message);
  void deliver_average(Rank& rank, ReplicaId id, const AverageWeights& average);
  void deliver_abort(Rank& rank, ReplicaId id, const AbortGroup& abort);
  void hear(uint32_t id, const FromRank& message);
  void carry_out(uint32_t id, const ProgramCommands& commands);
  void end_work(uint32_t id);
  void begin_exchange(uint32_t id, uint64_t number, bool is_nonblocking);
  bool can_end_exchange(const Rank& rank) const;
  void end_exchange(uint32_t id, bool ok);
  void begin_round();
  void end_round();
  void check_mean_is_due() const;
  void check_round();
  void check_carried(uint32_t stage, const Rank& rank) const;
  bool is_live(uint32_t pipeline) const { return !lost_pipelines_.contains(pipeline); }
  size_t claims_max() const { return static_cast<size_t>(job_.sync.claims_in_flight); }
  void claim(uint32_t pipeline, uint64_t step, const SampleClaim& claim);
  void count_done(uint32_t pipeline);

  JobSpec job_;
  Options options_;
  Rng rng_;
  Plan plan_;
  PipelineLayout layout_;
  LocalUpdates loop_;
  bool has_failed_ = false;
  std::optional<CommitTotals> completed_;  // The last round.
  std::vector<Rank> ranks_;                // By replica.
  uint64_t now_us_ = 0;
  std::map<uint64_t, Group> groups_;
  struct Claimed {
    uint64_t step = 0;
    SampleClaim claim;
    uint32_t reports = 0;  // Heard, with several claims in flight.
  };
  std::map<uint32_t, std::deque<Claimed>> claims_;  // By pipeline replica.
  struct Done {
    uint32_t pipeline = 0;
    uint64_t count = 0;
  };
  std::map<uint64_t, Done> done_;  // The round's, by first sample.
  std::set<uint32_t> lost_pipelines_;
  std::vector<std::set<uint64_t>> served_;  // By stage, what servers have in every shard.
  uint64_t first_step_ = 0;
  uint64_t rounds_left_ = 0;
  bool takes_mean_ = false;
  uint64_t kills_left_ = 0;
  std::vector<uint64_t> slowness_;  // By pipeline replica: its work ends as much more rarely.
  uint64_t groups_of_several_ = 0, aborted_ = 0, nonblocking_ = 0, pushes_ = 0, redone_ = 0;
};

}  // namespace skein::plans
