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
#include "plans/modes/column_loop.hpp"
#include "plans/sync/policy_kind.hpp"
#include "plans/worker/local_program.hpp"
#include "tests/plans/worker/watched_program.hpp"

namespace skein::plans {

/// A job of columns: three steps of two samples for each column, in one micro-batch of one row.
JobSpec column_job(int64_t stages, int64_t columns, const std::string& policy = "sdpipe");

/// Columns of one worker per replica that do what `ColumnLoop`, a policy and the `LocalProgram`s
/// say, in a random order of events: messages keep their order on each way and take any time.
/// Checks what always holds, above all that the loop fails only if nobody is left or somebody dies
/// while the mean is taken; breaches are failures of gtest, with the seed.
class ColumnWorld {
 public:
  struct Options {
    uint64_t seed = 1;
    double repeat_share = 0;     // Of messages of the coordinator that come twice, now or later.
    uint32_t kills = 0;          // Workers that die, at any time.
    uint64_t kill_after = 200;   // Events before the last kill, at most.
    uint64_t segment_steps = 3;  // Of a segment, unless it is cut short.
    uint64_t segments = 3;
    double cut_share = 0;  // Of events after which the segment is cut short.
  };

  ColumnWorld(JobSpec job, Options options);

  /// Until all segments have ended, the loop has failed, or nothing can happen any more, which is a
  /// breach.
  void run();

  bool has_failed() const { return loop_.has_failed(); }
  uint64_t steps_done() const { return first_step_; }
  uint64_t groups_of_several() const { return groups_of_several_; }
  uint64_t dissolved() const { return dissolved_; }
  uint64_t passive() const { return passive_; }
  uint64_t pushes() const { return pushes_; }
  /// Iterations that were done again as they were in nobody's weights any more.
  uint64_t redone() const { return redone_; }
  uint64_t dropped_by_programs() const;

 private:
  struct Lease {  // To a rank.
    uint64_t step = 0;
    SampleLease lease;
  };
  using ToRank = std::variant<Lease, CommitColumn, CombineWeights, DissolveGroup, CommitOrder>;
  struct Combined {  // From a rank.
    uint64_t number = 0;
    bool ok = false;
  };
  using FromRank = std::variant<ReadyReport, Combined>;
  struct Exchange {  // Of one member in a group.
    uint64_t number = 0;
    bool is_passive = false;
  };
  struct Rank {
    explicit Rank(ProgramOptions options) : program(std::move(options)) {}
    Watched<LocalProgram> program;
    bool is_dead = false;
    bool is_known_dead = false;
    std::deque<ProgramCommand> device;
    std::deque<ToRank> in;
    std::vector<ToRank> repeats;  // Older ones, to come again.
    std::deque<FromRank> out;
    std::deque<InputKey> inputs;
    std::optional<Exchange> exchange;
    std::set<uint64_t> dissolved;  // Before the program has begun them.
    uint64_t newest = 0;           // Group that was offered.
    uint64_t updates = 0;
    double weight = 0;
    std::map<uint64_t, SampleLease> leases;  // By step of the column.
    // Whose updates are in its weights, by first sample; what others add to a passive one comes
    // with its next update.
    std::set<uint64_t> carried, pending;
  };
  struct Group {
    CombineWeights order;
    std::map<ReplicaId, double> put_in;  // Of those that have begun.
    std::set<uint64_t> carried;          // By what they have put in.
    size_t through = 0;                  // Members, of a server's group.
  };

  using Event = std::function<void()>;
  std::vector<Event> possible();
  void add_rank_events(uint32_t id, std::vector<Event>& events);
  bool is_anybody_slow() const;
  void kill();
  void apply(const CoordinatorDecisions& decisions);
  void take(const LeaseSamples& decision);
  void take(const CommitColumn& decision);
  void take(const CombineWeights& decision);
  void take(const DissolveGroup& decision);
  void take(const TellPolicy& decision);
  void send(ReplicaId replica, const ToRank& message);
  void deliver(uint32_t id, const ToRank& message);
  void deliver_combine(Rank& rank, ReplicaId id, const CombineWeights& combine);
  void deliver_dissolve(Rank& rank, ReplicaId id, const DissolveGroup& dissolve);
  void hear(uint32_t id, const FromRank& message);
  void carry_out(uint32_t id, const ProgramCommands& commands);
  void end_work(uint32_t id);
  void begin_exchange(uint32_t id, uint64_t number, bool is_passive);
  bool can_end_exchange(const Rank& rank) const;
  void end_exchange(uint32_t id, bool ok);
  void tell_policy();
  void begin_segment();
  void end_segment();
  void check_mean_is_due() const;
  void check_segment();
  void check_carried(uint32_t stage, const Rank& rank) const;
  bool is_live(uint32_t column) const { return !lost_columns_.contains(column); }

  JobSpec job_;
  Options options_;
  Rng rng_;
  Plan plan_;
  ColumnLayout layout_;
  ColumnLoop loop_;
  std::unique_ptr<GroupScheduler> policy_;
  std::vector<Rank> ranks_;  // By replica.
  std::deque<TellPolicy> to_policy_;
  std::deque<GroupStart> from_policy_;
  std::optional<uint64_t> wake_us_;
  uint64_t now_us_ = 0;
  std::map<uint64_t, Group> groups_;
  std::map<uint32_t, SampleLease> leases_;  // By column.
  struct Done {
    uint32_t column = 0;
    uint64_t count = 0;
  };
  std::map<uint64_t, Done> done_;  // Of the segment, by first sample.
  std::set<uint32_t> lost_columns_;
  std::vector<std::set<uint64_t>> served_;  // By stage, what servers have in every shard.
  uint64_t first_step_ = 0;
  uint64_t segments_left_ = 0;
  bool takes_mean_ = false;
  uint64_t kills_left_ = 0;
  std::vector<uint64_t> slowness_;  // By column: its work ends as much more rarely.
  uint64_t groups_of_several_ = 0, dissolved_ = 0, passive_ = 0, pushes_ = 0, redone_ = 0;
};

}  // namespace skein::plans
