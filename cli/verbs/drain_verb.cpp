#include "cli/verbs/drain_verb.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/verbs/ask_coordinator.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {

absl::Status drain_worker(const std::string& where, uint32_t worker) {
  SKEIN_ASSIGN_OR_RETURN(const std::string address, coordinator_address(where));
  SKEIN_ASSIGN_OR_RETURN(std::unique_ptr<net::EventLoop> loop, net::EventLoop::start());
  // Asked twice: who is a member before it is told to leave.
  SKEIN_ASSIGN_OR_RETURN(const net::Status before,
                         ask_coordinator(*loop, address, {net::StatusRequest()}));
  std::vector<std::string> members;
  for (const net::WorkerStatus& each : before.workers) {
    members.push_back(absl::StrCat("w", each.worker.value));
  }
  if (std::find(members.begin(), members.end(), absl::StrCat("w", worker)) == members.end()) {
    return absl::NotFoundError(
        absl::StrCat("there is no worker w", worker, "; the run has ",
                     members.empty() ? "none" : absl::StrJoin(members, ", ")));
  }
  const std::vector<net::ControlBody> requests = {net::DrainRequest{{worker}},
                                                  net::StatusRequest()};
  SKEIN_RETURN_IF_ERROR(ask_coordinator(*loop, address, requests).status());
  std::printf(
      members.size() > 1
          ? "w%u is to leave: its state moves to the others after the step in progress\n"
          : "w%u is to leave: it is the only worker, and stays until another one joins that "
            "can take over its state\n",
      worker);
  return absl::OkStatus();
}

}  // namespace skein::cli
