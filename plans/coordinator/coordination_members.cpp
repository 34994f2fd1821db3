// Who takes part: joins, leases, losses and departures.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plans/base/bad_input.hpp"
#include "plans/coordinator/coordination.hpp"

namespace skein::plans {
namespace {

constexpr double kMicro = 1e-6;
/// Workers that come or go together are handled together.
constexpr uint64_t kSettleUs = 300'000;
/// A coordinator that was restarted waits so long after the last worker that has come back: longer
/// than one attempt of a worker to connect (net/control/control_link).
constexpr uint64_t kRejoinUs = 2'500'000;
/// A neighbour that does not answer has usually died, of which we hear on its own connection.
constexpr uint64_t kTroubleUs = 400'000;
/// A step that takes so many times the one before is stuck.
constexpr double kStuckFactor = 20;

/// Rather than one that took the number of another life of the coordinator.
bool is_same_process(const JoinRequest& one, const JoinRequest& other) {
  return one.host_name == other.host_name && one.process_id == other.process_id &&
         one.data_address == other.data_address;
}

}  // namespace

bool Coordination::may_work(const Member& member, uint64_t now_us, Leavers leavers) const {
  return member.eligible_us <= now_us && (!member.leaves || leavers == Leavers::kWith);
}

/// Workers that may be given work, ascending; if the planner chooses, of those that have measured.
std::vector<WorkerId> Coordination::eligible_workers(uint64_t now_us, Leavers leavers) const {
  std::vector<WorkerId> workers;
  const auto most = static_cast<size_t>(options_.job.elastic.max_workers);
  for (const auto& [id, member] : members_) {
    if (!may_work(member, now_us, leavers) || (chooses_plan() && !member.measured)) continue;
    if (most == 0 || workers.size() < most) workers.push_back(id);
  }
  return workers;
}

WorkerId Coordination::number(const JoinRequest& request) {
  if (request.previous.value != 0 && !members_.contains(request.previous)) {
    last_worker_ = std::max(last_worker_, request.previous.value);
    return request.previous;
  }
  return WorkerId{++last_worker_};
}

CoordinatorDecisions Coordination::on_join(PeerNumber peer, JoinRequest request, uint64_t now_us) {
  for (const auto& [id, member] : members_) {
    if (member.peer == peer) return drop();
  }
  if (phase_ == Phase::kEnded || (options_.only_profiles && phase_ != Phase::kGathering)) {
    return {RefusePeer{peer, "the run takes no more workers"}};
  }
  seen_generation_ = std::max(seen_generation_, request.generation);
  CoordinatorDecisions decisions;
  const auto before = members_.find(request.previous);
  if (before != members_.end() && is_same_process(before->second.request, request)) {
    // Its old connection is dead, and we have not heard of it.
    append(decisions, on_worker_lost(request.previous,
                                     absl::UnavailableError("it has connected anew"), now_us));
  }
  const WorkerId worker = number(request);
  append(decisions, welcome(peer, worker, std::move(request), now_us));
  const bool gathers_first = phase_ == Phase::kGathering && !has_trained_;
  if (chooses_plan() && !gathers_first) {
    append(decisions, tell_peers());
    append(decisions, request_profiles());
  }
  if (phase_ == Phase::kGathering) {
    if (has_trained_) consider_change(now_us + kSettleUs);
    append(decisions, try_gather(now_us));
  } else if (phase_ == Phase::kHalting) {
    if (seen_generation_ < generation_) {
      decisions.push_back(halt(worker));
    } else {  // It would take this generation's halt for one that it has answered.
      append(decisions, begin_halt("a worker is back that has seen this generation", now_us));
    }
  } else if (phase_ != Phase::kProfiling) {
    consider_change(std::max(now_us + kSettleUs, members_.at(worker).eligible_us));
  }
  return decisions;
}

CoordinatorDecisions Coordination::welcome(PeerNumber peer, WorkerId worker, JoinRequest request,
                                           uint64_t now_us) {
  const size_t count = members_.size() + 1;
  CoordinatorDecisions decisions = {
      WelcomeWorker{peer, worker},
      RunEvent{
          "worker.joined",
          absl::StrCat("w", worker.value, request.previous == worker ? " is back (" : " joined (",
                       request.device, " on ", request.host_name, ", pid ", request.process_id,
                       "), ", count, "/", options_.worker_count),
          {{"worker", absl::StrCat(worker.value)},
           {"host", request.host_name},
           {"pid", absl::StrCat(request.process_id)},
           {"device", request.device}}}};
  Member member;
  member.peer = peer;
  member.id = worker;
  member.request = std::move(request);
  member.last_heard_us = now_us;
  member.eligible_us = hold_back_.eligible_us(worker, now_us);
  if (member.eligible_us > now_us) {
    decisions.push_back(
        RunEvent{"worker.held_back",
                 absl::StrCat("w", worker.value, " comes and goes: it takes part again in ",
                              (member.eligible_us - now_us) / 1'000'000, " s"),
                 {{"worker", absl::StrCat(worker.value)}}});
  }
  members_[worker] = std::move(member);
  last_progress_us_ = now_us;
  last_join_us_ = now_us;
  return decisions;
}

/// Whether all who may hold state are here again after a restart of the coordinator: the workers of
/// the last plan or, if some do not come back, as many as the job can do with.
bool Coordination::is_everybody_back(uint64_t now_us) const {
  if (static_cast<int64_t>(members_.size()) < options_.job.elastic.min_workers) return false;
  if (now_us >= last_join_us_ + kRejoinUs) return true;
  for (const StagePlan& stage : options_.last_plan->stages) {
    for (const ReplicaPlan& replica : stage.replicas) {
      if (!members_.contains(replica.worker)) return false;
    }
  }
  return true;
}

/// Goes on when there are enough workers: all that were asked for at first; after a pause, or a
/// restart of the coordinator, as many as the job can do with.
CoordinatorDecisions Coordination::try_gather(uint64_t now_us) {
  if (phase_ != Phase::kGathering) return {};
  if (!has_trained_) {
    const bool enough = options_.last_plan
                            ? is_everybody_back(now_us)
                            : static_cast<int64_t>(members_.size()) >= options_.worker_count;
    if (!enough) return {};
    if (chooses_plan() || options_.only_profiles) return start_profiling(now_us);
    return begin_halt("", now_us);
  }
  int64_t count = 0;
  bool all_known = true;
  for (const auto& [id, member] : members_) {
    if (!may_work(member, now_us, Leavers::kWithout)) continue;
    ++count;
    all_known = all_known && (member.measured || !chooses_plan());
  }
  const bool settled = change_at_us_ && now_us >= *change_at_us_;
  if (count < options_.job.elastic.min_workers || !settled) return {};
  change_at_us_.reset();
  return all_known ? begin_halt("there are workers again", now_us) : start_profiling(now_us);
}

CoordinatorDecisions Coordination::on_heartbeat(WorkerId worker, WorkerActivity activity,
                                                uint64_t now_us) {
  auto member = members_.find(worker);
  if (member == members_.end()) return drop();
  member->second.last_heard_us = now_us;
  WorkerActivity& known = member->second.activity;
  activity.steps_done = std::max(known.steps_done, activity.steps_done);
  if (activity.device.empty()) activity.device = known.device;
  const bool is_news = activity.device != known.device;
  known = std::move(activity);
  // Most compute on what they have asked for, as they said when they joined.
  if (!is_news || known.device == member->second.request.device) return {};
  return {RunEvent{"worker.device",
                   absl::StrCat("w", worker.value, " computes on ", known.device),
                   {{"worker", absl::StrCat(worker.value)}, {"device", known.device}}}};
}

CoordinatorDecisions Coordination::on_worker_lost(WorkerId worker, const absl::Status& why,
                                                  uint64_t now_us) {
  auto member = members_.find(worker);
  if (phase_ == Phase::kEnded || member == members_.end()) return drop();
  const std::string who = describe(worker);
  const uint64_t step = steps_done() + 1;
  const std::string what = absl::StrCat(who, " lost at step ", step, ": ", why.message());
  CoordinatorDecisions decisions = {RunEvent{"worker.lost",
                                             what,
                                             {{"worker", absl::StrCat(worker.value)},
                                              {"step", absl::StrCat(step)},
                                              {"reason", std::string(why.message())}}},
                                    DismissWorker{worker}};
  hold_back_.on_lost(worker, now_us);
  const bool measured = member->second.profiling;
  members_.erase(member);
  if (is_bad_input(why) || options_.only_profiles) {
    append(decisions, end(absl::Status(why.code(), absl::StrCat(who, " failed at step ", step, ": ",
                                                                why.message())),
                          false));
    return decisions;
  }
  if (measured) append(decisions, request_profiles());
  if (phase_ == Phase::kProfiling) {
    // The others were measured with it; a worker that takes its place is measured like them.
    phase_ = Phase::kGathering;
    last_progress_us_ = now_us;
    consider_change(now_us + kSettleUs);
    return decisions;
  }
  const bool gives_state = std::any_of(restore_.moves.begin(), restore_.moves.end(),
                                       [&](const LayerMove& move) { return move.from == worker; });
  is_urgent_ = is_urgent_ || hosts(worker);
  if (phase_ == Phase::kHalting) {
    append(decisions, try_assign(now_us));
  } else if (phase_ == Phase::kTraining && columns_ && hosts(worker)) {
    append(decisions, lose_column(worker, now_us));
  } else if ((phase_ == Phase::kPreparing && (hosts(worker) || gives_state)) ||
             ((phase_ == Phase::kTraining || phase_ == Phase::kFinishing) && hosts(worker))) {
    append(decisions, begin_halt(absl::StrCat("w", worker.value, " is lost"), now_us));
  }
  return decisions;
}

CoordinatorDecisions Coordination::on_trouble(WorkerId worker, WorkerId peer,
                                              const std::string& reason, uint64_t now_us) {
  if (!members_.contains(worker) || !runs_plan()) return drop();
  // Columns have gone on without one that is lost, and its neighbours hear of it as late as this.
  if (columns_ && peer.value != 0 && !members_.contains(peer)) return drop();
  const auto [trouble, is_new] = troubles_.try_emplace({worker, peer});
  if (!is_new) return drop();
  trouble->second = {now_us + kTroubleUs,
                     absl::StrCat(describe(worker), " at step ", steps_done() + 1, ": ", reason)};
  return {};
}

CoordinatorDecisions Coordination::on_leave(WorkerId worker, const std::string& reason,
                                            uint64_t now_us) {
  auto member = members_.find(worker);
  if (phase_ == Phase::kEnded || member == members_.end() || member->second.leaves) return drop();
  member->second.leaves = true;
  CoordinatorDecisions decisions = {
      RunEvent{"worker.leaving",
               absl::StrCat(describe(worker), " is to leave: ", reason),
               {{"worker", absl::StrCat(worker.value)}, {"reason", reason}}}};
  if (phase_ == Phase::kGathering) {
    append(decisions, dismiss_leavers());
  } else {
    consider_change(now_us);
    append(decisions, check_change(now_us));
  }
  return decisions;
}

CoordinatorDecisions Coordination::lose_silent(uint64_t now_us) {
  const double lease_us = options_.job.elastic.heartbeat_timeout_seconds / kMicro;
  std::vector<std::pair<WorkerId, double>> silent;
  for (const auto& [id, member] : members_) {
    const uint64_t heard = std::min(member.last_heard_us, now_us);
    const auto silent_us = static_cast<double>(now_us - heard);
    if (silent_us > lease_us) silent.emplace_back(id, silent_us);
  }
  CoordinatorDecisions decisions;
  for (const auto& [id, silent_us] : silent) {
    append(decisions, on_worker_lost(id,
                                     absl::UnavailableError(
                                         absl::StrCat("no heartbeat for ", silent_us * kMicro,
                                                      " s (elastic.heartbeat_timeout_seconds)")),
                                     now_us));
  }
  return decisions;
}

/// Workers that live, but have not halted or prepared in time.
CoordinatorDecisions Coordination::lose_slow_to_answer(uint64_t now_us) {
  const bool halts = phase_ == Phase::kHalting;
  if (!halts && !(phase_ == Phase::kPreparing && has_trained_)) return {};
  const double limit_s = halts ? options_.job.elastic.heartbeat_timeout_seconds
                               : options_.job.comm.init_timeout_seconds;
  if (static_cast<double>(now_us - last_progress_us_) * kMicro <= limit_s) return {};
  std::vector<WorkerId> late;
  for (const auto& [id, member] : members_) {
    if (halts ? !member.halted : hosts(id) && !member.prepared) late.push_back(id);
  }
  CoordinatorDecisions decisions;
  for (WorkerId id : late) {
    append(decisions, on_worker_lost(id,
                                     absl::DeadlineExceededError(absl::StrCat(
                                         "it has not ", halts ? "halted" : "prepared its replicas",
                                         " for ", limit_s, " s")),
                                     now_us));
  }
  return decisions;
}

CoordinatorDecisions Coordination::check_troubles(uint64_t now_us) {
  const auto first = std::min_element(
      troubles_.begin(), troubles_.end(),
      [](const auto& a, const auto& b) { return a.second.at_us < b.second.at_us; });
  if (first == troubles_.end() || now_us < first->second.at_us || !runs_plan()) return {};
  return begin_halt(std::string(first->second.reason), now_us);
}

/// A step that takes far longer than the one before has a culprit: the worker whose device works
/// for longest on one action.
CoordinatorDecisions Coordination::check_progress(uint64_t now_us) {
  if (phase_ == Phase::kEnded || now_us <= last_progress_us_) return {};
  const double waited_us = static_cast<double>(now_us - last_progress_us_);
  const double lease_us = options_.job.elastic.heartbeat_timeout_seconds / kMicro;
  if (phase_ == Phase::kTraining && commits_.last_step_us() > 0 &&
      waited_us > std::max(lease_us, kStuckFactor * commits_.last_step_us())) {
    const Member* culprit = nullptr;
    for (const auto& [id, member] : members_) {
      const WorkerActivity& activity = member.activity;
      if (!hosts(id) || !activity.works || activity.action_us * 2 < lease_us) continue;
      if (!culprit || activity.action_us > culprit->activity.action_us) culprit = &member;
    }
    if (culprit) {
      return on_worker_lost(culprit->id,
                            absl::DeadlineExceededError(
                                absl::StrCat("its device works on ", culprit->activity.action,
                                             " for ", culprit->activity.action_us * kMicro, " s")),
                            now_us);
    }
  }
  const bool starts = phase_ != Phase::kTraining && phase_ != Phase::kFinishing;
  const double limit_s =
      starts ? options_.job.comm.init_timeout_seconds : options_.job.comm.train_timeout_seconds;
  if (waited_us * kMicro <= limit_s) return {};
  if (phase_ == Phase::kGathering) {
    const int64_t wanted = has_trained_ ? options_.job.elastic.min_workers : options_.worker_count;
    return end(absl::DeadlineExceededError(absl::StrCat(
                   members_.size(), " of ", wanted, " workers joined within ", limit_s,
                   " s (comm.init_timeout_seconds); start more workers or ask for fewer")),
               false);
  }
  return end(absl::DeadlineExceededError(absl::StrCat(
                 "no progress for ", waited_us * kMicro, " s at step ", steps_done() + 1, " (",
                 starts ? "comm.init_timeout_seconds" : "comm.train_timeout_seconds",
                 "); waiting for ", missing_replicas())),
             false);
}

std::string Coordination::missing_replicas() const {
  std::vector<std::string> missing;
  for (const auto& [id, member] : members_) {
    if (member.profiling) missing.push_back(absl::StrCat("the measurements of w", id.value));
  }
  for (const auto& [worker, replicas] : hosted_) {
    const auto member = members_.find(worker);
    if (member == members_.end()) continue;
    for (ReplicaId replica : replicas) {
      const bool waits =
          phase_ == Phase::kPreparing ? !member->second.prepared : !commits_.is_reduced(replica);
      if (waits) {
        missing.push_back(absl::StrCat("stage ", stage_of(*plan_, replica), " on w", worker.value));
      }
    }
  }
  return absl::StrJoin(missing, ", ");
}

std::string Coordination::describe(WorkerId worker) const {
  const Member& member = members_.at(worker);
  std::string text = absl::StrCat("w", worker.value, " (pid ", member.request.process_id, " on ",
                                  member.request.host_name);
  const auto hosted = hosted_.find(worker);
  if (hosted != hosted_.end() && plan_) {
    absl::StrAppend(&text, ", stage ", stage_of(*plan_, *hosted->second.begin()));
  }
  if (!member.activity.action.empty()) {
    absl::StrAppend(&text, member.activity.works ? ", computing " : ", waiting for ",
                    member.activity.action);
  }
  return absl::StrCat(text, ")");
}

}  // namespace skein::plans
