#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "plans/base/rng.hpp"
#include "plans/sync/group_scheduler.hpp"
#include "plans/sync/pipeline_layout.hpp"

namespace skein::plans {

/// Pipeline replicas that run PipeDream's 1F1B without flush under a policy, in a random order of
/// events, with deaths, joins, failed groups, repeated signals and members that are through a group
/// before its outcome is known. Checks what holds for every policy; the first breach ends the run
/// and is kept.
class RandomPipelines {
 public:
  struct Options {
    uint64_t seed = 1;
    double death_share = 0.002, join_share = 0.01;  // Shares of the events.
    double repeat_share = 0.02, failure_share = 0.05;
  };

  RandomPipelines(GroupScheduler& policy, const PipelineLayout& layout, const Options& options);

  /// Called for each start, after the checks and before it takes effect.
  std::function<void(const GroupStart&)> on_start = [](const GroupStart&) {};
  std::function<void(const GroupStart&, bool ok)> on_end = [](const GroupStart&, bool) {};
  std::function<void(const MembershipChange&)> on_change = [](const MembershipChange&) {};

  void run(int events);
  /// Nobody dies any more; until every live pipeline replica has taken `steps` more steps at each
  /// stage.
  void settle(uint64_t steps);
  /// From outside: what a policy decides by itself.
  void apply(const GroupDecisions& decisions);
  void fail(const std::string& what) {
    if (breach_.empty()) breach_ = what;
  }

  /// Empty: everything held.
  const std::string& breach() const { return breach_; }
  bool is_live(uint32_t pipeline) const { return live_[pipeline]; }
  uint32_t live_count() const;
  /// Steps since its join that the policy knows to have ended, and with the one it waits with.
  uint64_t told(uint32_t stage, uint32_t pipeline) const { return at(stage, pipeline).told; }
  uint64_t arrived(uint32_t stage, uint32_t pipeline) const {
    const Replica& replica = at(stage, pipeline);
    const bool waits = replica.is_ready && !replica.is_in_group && replica.told == replica.ended;
    return replica.told + (waits ? 1 : 0);
  }
  uint64_t starts() const { return starts_; }
  uint64_t deaths() const { return deaths_; }

 private:
  struct Replica {
    uint64_t ended = 0;
    uint64_t told = 0;      // Of these the policy knows the outcome.
    bool is_ready = false;  // Has computed the step after `ended`.
    bool is_in_group = false;
    uint64_t group = 0;
  };
  struct Group {
    GroupStart start;
    std::map<uint32_t, bool> is_through;  // By pipeline replica, those alive.
  };
  struct Candidate {
    bool is_group = false;
    uint64_t group = 0;
    ReplicaId replica;
    double weight = 0;
  };

  const Replica& at(uint32_t stage, uint32_t pipeline) const {
    return replicas_[layout_.replica(stage, pipeline).value];
  }
  bool can_compute(uint32_t stage, uint32_t pipeline) const;
  std::vector<Candidate> candidates() const;
  void step();
  void take(const Candidate& candidate);
  void pass(uint64_t number);
  void change(uint32_t pipeline, bool joins);
  void change_someone(bool joins);
  void check(const GroupStart& start);

  GroupScheduler& policy_;
  PipelineLayout layout_;
  Options options_;
  Rng rng_;
  uint64_t now_us_ = 0;
  std::optional<uint64_t> wake_us_;
  std::vector<bool> live_;
  std::vector<uint64_t> first_step_;  // [pipeline replicas] of the present life.
  std::vector<double> speed_;         // [pipeline replicas] how often an event is its own.
  std::vector<Replica> replicas_;
  std::map<uint64_t, Group> groups_;
  std::vector<ReadySignal> sent_;  // Some, to be repeated.
  uint64_t starts_ = 0, deaths_ = 0, number_next_ = 0;
  std::string breach_;
};

}  // namespace skein::plans
