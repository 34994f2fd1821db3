#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "plans/base/rng.hpp"
#include "plans/sync/group_scheduler.hpp"
#include "plans/sync/pipeline_layout.hpp"

namespace skein::plans {

struct DriverOptions {
  uint64_t seed = 1;
  uint64_t events = 100'000;
  /// The stages of a pipeline replica wait for each other, as in a pipeline with one batch in
  /// flight: a step begins when all stages are free, and signals come from the last stage to the
  /// first. Otherwise every replica steps by itself.
  bool coupled = false;
  uint64_t step_us = 1000;   // Mean; each step takes 0.5 to 1.5 of it.
  double slow_share = 0.2;   // The first of the pipeline replicas are four times slower for good.
  double stall_rate = 0.05;  // Share of steps that take ten times as long.
  uint64_t group_us = 200;   // Until the last member is through; others are earlier.
  double death_rate =
      0;  // A pipeline replica leaves with this chance per event; joins come as often.
  uint32_t pipelines_min = 1;  // No death leaves fewer.
  double stale_rate = 0.05;  // The share of events after which something stale or repeated is sent.
  bool interrupts = false;   // Members need not be ready, and may go on in a group.
  bool equal_weights = true;  // Averages are doubly stochastic: the mean stays.
  bool learns = true;         // Each step changes the replica's values.
  uint64_t wake_us_max = 0;   // A timer is at most so far ahead; 0: not checked.
  uint64_t wait_us_max = 0;   // No ready replica waits for longer; 0: not checked.
};

/// All averages of few and many pipeline replicas, one and several stages, with and without
/// pipelines and churn; the rest of the options is `base`.
std::vector<std::pair<PipelineLayout, DriverOptions>> driver_settings(
    const DriverOptions& base = {});

/// Runs a policy against pipeline replicas that compute, stall, die and join at random, on a
/// virtual clock, and checks after every event what every policy owes: members are alive, ready
/// (unless they may be interrupted) and in one group at a time; weights are those of an average;
/// somebody always goes on; and what is stale or repeated changes nothing. Failures are those of
/// gtest, with the seed.
class PolicyDriver {
 public:
  PolicyDriver(GroupScheduler& policy, PipelineLayout layout, DriverOptions options);

  /// Called for each start, after the checks; may be null.
  std::function<void(const GroupStart&)> on_start;
  /// Called after a pipeline replica has died (false) or joined (true); may be null.
  std::function<void(uint32_t pipeline, bool joins)> on_change;

  /// Runs until `options.events` have happened. False: a check has failed.
  bool run();

  uint64_t now_us() const { return now_us_; }
  uint64_t start_count() const { return start_count_; }
  uint64_t change_count() const { return change_count_; }
  uint64_t wait_us_longest() const { return wait_us_longest_; }
  bool is_alive(uint32_t pipeline) const { return pipelines_[pipeline].alive; }
  /// Steps that a replica has finished since it last joined.
  uint64_t steps_of(ReplicaId replica) const { return replicas_[replica.value].steps; }
  /// Largest minus smallest value over the living replicas of a stage.
  double spread(uint32_t stage) const;
  /// Mean over the living replicas of a stage.
  double mean(uint32_t stage) const;

 private:
  struct Replica {
    uint64_t next_step = 0;  // That it computes, or will.
    uint64_t steps = 0;      // Finished in this life.
    bool computes = false;
    bool resumes = false;           // Is on its way out of a group.
    bool waits = false;             // It is ready, and nothing has started for it.
    uint64_t ready_us = 0;          // waits: since when.
    std::optional<uint64_t> group;  // That it is in.
    double value = 0;
  };
  struct Pipeline {
    bool alive = true;
    uint64_t life = 0;
    double slowness = 1;
    uint32_t busy_stages = 0;  // coupled: that are not free for the next step.
  };
  enum class Kind { kFinish, kResume, kGroupEnd, kTimer };
  struct Event {
    uint64_t at_us = 0;
    uint64_t sequence = 0;  // Breaks ties.
    Kind kind = Kind::kFinish;
    uint64_t subject = 0;  // Replica, group or wish.
    uint64_t life = 0;     // That of the replica's pipeline replica.
    bool operator>(const Event& other) const {
      return at_us != other.at_us ? at_us > other.at_us : sequence > other.sequence;
    }
  };

  void push(uint64_t at_us, Kind kind, uint64_t subject, uint64_t life);
  void handle(const Event& event);
  void go_on(ReplicaId replica);
  void compute(ReplicaId replica, uint64_t delay_us);
  uint64_t step_time(uint32_t pipeline);
  void finish(ReplicaId replica);
  void resume(ReplicaId replica);
  void end_group(uint64_t number);
  void apply(const GroupDecisions& decisions);
  void begin(const GroupStart& start);
  void check_members(const GroupStart& start);
  void average(const GroupStart& start);
  void churn();
  void kill(uint32_t pipeline);
  void revive(uint32_t pipeline);
  void send_something_stale();
  bool is_stuck() const;

  GroupScheduler& policy_;
  PipelineLayout layout_;
  DriverOptions options_;
  Rng rng_;
  uint64_t now_us_ = 0;
  uint64_t sequence_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Replica> replicas_;
  std::vector<Pipeline> pipelines_;
  uint32_t alive_count_ = 0;
  std::map<uint64_t, std::vector<ReplicaId>> open_groups_;  // Members that are alive.
  std::map<uint64_t, bool> broken_groups_;                  // That a member has died in.
  std::optional<uint64_t> wake_us_;
  uint64_t wish_count_ = 0;
  std::optional<uint64_t> last_number_;
  uint64_t start_count_ = 0;
  uint64_t change_count_ = 0;
  uint64_t wait_us_longest_ = 0;
};

}  // namespace skein::plans
