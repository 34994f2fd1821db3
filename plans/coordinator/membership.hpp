#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/base/outcome.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/elastic/hold_back.hpp"
#include "plans/elastic/host_records.hpp"
#include "plans/elastic/worker_pairs.hpp"
#include "plans/plan/plan.hpp"

namespace skein::plans {

/// Whether one process has sent both. The data address is that of a socket which one process at a
/// time can have.
bool is_same_process(const JoinRequest& one, const JoinRequest& other);

/// A worker that takes part in the run.
struct Member {
  PeerNumber peer = 0;
  WorkerId id;
  JoinRequest request;
  uint64_t joined_us = 0;
  uint64_t last_heard_us = 0;
  WorkerActivity activity;
  uint64_t eligible_us = 0;  // May be given work from then on.
  bool leaves = false;       // Its state is to move away.
  bool has_failed = false;   // It computes nothing any more; `leaves` is set.
  /// Above 0: it failed for lack of memory when so many workers could work, and was not to leave.
  size_t lacked_of = 0;
  /// Above 0: so many could work when the plan was made in whose steps it had a part last.
  size_t trained_of = 0;
  bool is_newcomer = false;     // It came, new, to a run that had begun to train.
  std::string held_back_why;    // "host a is flapping"; empty: it is not held back.
  bool may_hold_state = false;  // It had a part in a plan, or says so of an earlier connection.
  bool has_started = false;     // On this connection it had a part in a plan that was started,
  bool has_trained = false;     // and in a step that was committed.
};

/// Whether workers that are to leave are counted on.
enum class Leavers { kWithout, kWith };

/// Who is here: admission, identity, heartbeat leases, those that are held back as they come and
/// go, and departures. A state machine without clock or I/O; times are microseconds of one steady
/// clock.
class Membership {
 public:
  /// `last`: the plan of an earlier life of the coordinator, which has given other numbers as well.
  Membership(double lease_seconds, const std::optional<Plan>& last);

  /// A worker is admitted under its old number, if that was given and is free, or a new one. Its
  /// connection must have no member yet. `has_trained`: the run has begun.
  Member& admit(PeerNumber peer, JoinRequest request, bool has_trained, uint64_t now_us);
  /// It was lost: if it is flapping, it is held back when it is here again; and so are others that
  /// come from where it came from. `had_part`: it was part of the plan.
  void lose(WorkerId worker, bool had_part, uint64_t now_us);
  /// It has left as it was asked to, or its connection is lost through no fault of its own.
  void remove(WorkerId worker) { members_.erase(worker); }
  /// It has said something, whatever it is.
  void on_heard(WorkerId worker, uint64_t now_us);
  /// What its device does now; an event if it computes on something else than it had said.
  Outcome<CoordinatorDecisions> on_heartbeat(WorkerId worker, WorkerActivity activity,
                                             uint64_t now_us);
  /// False if it was known.
  bool mark_leaving(WorkerId worker);
  /// It leaves, and may not work until it has; when it is here again, it is one that was lost.
  /// `lacked_of`: above 0, it lacks memory, for what was decided when so many could work together;
  /// 0: it can do nothing more, whatever it lacked before. False if it was known.
  bool mark_failed(WorkerId worker, size_t lacked_of, bool had_part, uint64_t now_us);
  /// As many of those who lacked memory as then find more workers at work that reach one another
  /// than when they did, as a plan gives each less to hold, or as many as they have trained with,
  /// may work again. `apart`: who do not reach one another. False: there are none.
  bool count_on_full_again(const WorkerPairs& apart, uint64_t now_us);
  /// A plan gives it something to hold, now or later.
  void mark_holder(WorkerId worker) { members_.at(worker).may_hold_state = true; }
  /// A plan was started in which it has a part.
  void mark_started(WorkerId worker) { members_.at(worker).has_started = true; }
  /// A step was committed in which it had a part, by a plan made when `of` workers could work.
  void mark_trained(WorkerId worker, size_t of);

  const std::map<WorkerId, Member>& all() const { return members_; }
  size_t count() const { return members_.size(); }
  bool has(WorkerId worker) const { return members_.contains(worker); }
  bool has_peer(PeerNumber peer) const;
  /// The member that this very process was on a connection that must have died since. It need not
  /// know the number: nobody may have told it yet.
  std::optional<WorkerId> same_process(const JoinRequest& request) const;
  bool may_work(const Member& member, uint64_t now_us, Leavers leavers) const {
    const bool is_counted = !member.leaves || leavers == Leavers::kWith;
    return member.eligible_us <= now_us && is_counted && !member.has_failed;
  }
  /// How many may work, without those who are to leave.
  size_t count_able(uint64_t now_us) const;
  bool some_leave() const;
  bool some_have_failed() const;
  /// None is left that computes; also true of nobody.
  bool all_have_failed() const;
  /// When the next member that is held back may be given work; none: nobody is held back.
  std::optional<uint64_t> next_eligible_us(uint64_t now_us) const;
  /// Whose lease has run out, and for how long nothing was heard of them.
  struct Silent {
    WorkerId worker;
    double silent_us = 0;
  };
  std::vector<Silent> silent(uint64_t now_us) const;
  /// Nothing was heard of it for half a lease.
  bool is_silent(WorkerId worker, uint64_t now_us) const;
  /// The largest generation that a worker has come with.
  uint64_t seen_generation() const { return seen_generation_; }
  uint64_t last_join_us() const { return last_join_us_; }
  /// Every worker of the plan is here.
  bool has_all_of(const Plan& plan) const;

  void check_invariants() const;

 private:
  WorkerId number(const JoinRequest& request);
  void record_loss(WorkerId worker, bool had_part, uint64_t now_us);

  // Invariants: members have their own ids, of which this life's are up to the last one that was
  // given, and unlike connections.
  double lease_us_ = 0;
  bool is_first_life_ = true;
  std::map<WorkerId, Member> members_;
  uint32_t last_worker_ = 0;
  HoldBack hold_back_;
  HostRecords hosts_;
  uint64_t seen_generation_ = 0;
  uint64_t last_join_us_ = 0;
};

}  // namespace skein::plans
