#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/coordinator/membership.hpp"
#include "plans/elastic/restore.hpp"

namespace skein::plans {

// What people are told of a run's members and state: events with a line of text, and the same facts
// as fields for programs. Pure. `who` is a worker as people know it: "w3 (pid 12 on vm, stage 1)".

/// `count`: members that there are with it; `wanted`: that the run waits for at first.
RunEvent worker_joined(const Member& member, bool is_back, size_t count, int64_t wanted);
/// It may not take part before `member.eligible_us`.
RunEvent worker_held_back(const Member& member, uint64_t now_us);
RunEvent worker_reconfigured(WorkerId worker);
/// It serves another run; `runs` says which one, and which is here.
RunEvent worker_refused(const JoinRequest& request, const std::string& runs);
/// `step`: counted from 1, the one that is trained.
RunEvent worker_lost(WorkerId worker, const std::string& who, uint64_t step,
                     const absl::Status& why);
/// It lives, and computes nothing any more.
RunEvent worker_failed(WorkerId worker, const std::string& who, uint64_t step,
                       const absl::Status& why);

/// They may hold the state of step `newest`, and what is here is that of step `here`.
RunEvent holders_awaited(const std::vector<WorkerId>& workers, uint64_t left_us, uint64_t newest,
                         uint64_t here);
/// With the proof that nobody holds the state of step `newest`: what those who are here hold, and
/// why others cannot come back with more.
RunEvent run_rolled_back(uint64_t newest, const RestoreDecision& restore, const std::string& held,
                         const std::string& absent);

/// `is_last`: of the run, which ends.
RunEvent checkpoint_failed(uint64_t steps_done, const absl::Status& why, bool is_last);

}  // namespace skein::plans
