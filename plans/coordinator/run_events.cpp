#include "plans/coordinator/run_events.hpp"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plans/base/units.hpp"

namespace skein::plans {

RunEvent worker_joined(const Member& member, bool is_back, size_t count, int64_t wanted) {
  const JoinRequest& request = member.request;
  return {"worker.joined",
          absl::StrCat("w", member.id.value, is_back ? " is back (" : " joined (", request.device,
                       " on ", request.host_name, ", pid ", request.process_id, "), ", count, "/",
                       wanted),
          {{"worker", absl::StrCat(member.id.value)},
           {"host", request.host_name},
           {"pid", absl::StrCat(request.process_id)},
           {"device", request.device}},
          /*anybody_may_cause=*/true};
}

RunEvent worker_held_back(const Member& member, uint64_t now_us) {
  const std::string seconds = absl::StrCat((member.eligible_us - now_us + 999'999) / 1'000'000);
  return {"worker.held_back",
          absl::StrCat(member.held_back_why, "; w", member.id.value, " may take part in ", seconds,
                       " s, if it stays"),
          {{"worker", absl::StrCat(member.id.value)},
           {"reason", member.held_back_why},
           {"seconds", seconds}},
          /*anybody_may_cause=*/true};
}

RunEvent worker_reconfigured(WorkerId worker) {
  return {
      "worker.reconfigured",
      absl::StrCat("w", worker.value, " comes with an older configuration and takes the new one"),
      {{"worker", absl::StrCat(worker.value)}},
      /*anybody_may_cause=*/true};
}

RunEvent worker_refused(const JoinRequest& request, const std::string& runs) {
  return {"worker.refused",
          absl::StrCat("refused pid ", request.process_id, " on ", request.host_name, ": ", runs,
                       "; start that run's coordinator where its workers look for it"),
          {{"run", request.run},
           {"host", request.host_name},
           {"pid", absl::StrCat(request.process_id)}}};
}

RunEvent worker_lost(WorkerId worker, const std::string& who, uint64_t step,
                     const absl::Status& why) {
  return {"worker.lost",
          absl::StrCat(who, " lost at step ", step, ": ", why.message()),
          {{"worker", absl::StrCat(worker.value)},
           {"step", absl::StrCat(step)},
           {"reason", std::string(why.message())}}};
}

RunEvent worker_failed(WorkerId worker, const std::string& who, uint64_t step,
                       const absl::Status& why) {
  return {"worker.failed",
          absl::StrCat(who, " cannot go on at step ", step,
                       ", and hands over what it holds: ", why.message()),
          {{"worker", absl::StrCat(worker.value)},
           {"step", absl::StrCat(step)},
           {"reason", std::string(why.message())}}};
}

RunEvent holders_awaited(const std::vector<WorkerId>& workers, uint64_t left_us, uint64_t newest,
                         uint64_t here) {
  const double left_s = static_cast<double>(left_us) * kSecondsPerMicrosecond;
  const std::string who = absl::StrJoin(workers, ", ", [](std::string* out, WorkerId each) {
    absl::StrAppend(out, "w", each.value);
  });
  return {
      "run.waiting",
      absl::StrCat("waiting at most ", left_s, " s for ", who, ", who may hold the state of step ",
                   newest, "; what is here is that of step ", here),
      {{"workers", who}, {"seconds", absl::StrCat(left_s)}, {"here", absl::StrCat(here)}}};
}

RunEvent run_rolled_back(uint64_t newest, const RestoreDecision& restore, const std::string& held,
                         const std::string& absent) {
  const char* whose = restore.first_step == 0   ? ", the initial weights"
                      : restore.from_checkpoint ? " of the checkpoint"
                                                : " of the snapshots";
  return {
      "run.rolled_back",
      absl::StrCat("nobody holds all state of step ", newest, ": going back to step ",
                   restore.first_step, whose, " (", held, absent.empty() ? "" : "; ", absent, ")"),
      {{"from", absl::StrCat(newest)},
       {"to", absl::StrCat(restore.first_step)},
       {"held", held},
       {"absent", absent}}};
}

RunEvent checkpoint_failed(uint64_t steps_done, const absl::Status& why, bool is_last) {
  const std::string reason(why.message());
  return {"checkpoint.failed",
          absl::StrCat(
              "the checkpoint of step ", steps_done, " is not written: ", reason,
              is_last ? "; the one before stays" : "; training goes on, and the one before stays"),
          {{"step", absl::StrCat(steps_done)}, {"reason", reason}}};
}

}  // namespace skein::plans
