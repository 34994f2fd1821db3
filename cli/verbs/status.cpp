#include "cli/verbs/status.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "actors/coordinator/run_lock.hpp"
#include "cli/config/json_text.hpp"
#include "cli/report/number_text.hpp"
#include "cli/run/run_folder.hpp"
#include "cli/verbs/ask_coordinator.hpp"
#include "cli/verbs/ended_run.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

absl::Status with_hint(const std::string& where, const absl::Status& status) {
  if (where != kStatusAddress || !absl::IsUnavailable(status)) return status;
  return absl::UnavailableError(absl::StrCat(
      std::string(status.message()), " (skein status outputs/latest asks a run by its folder)"));
}

Json to_json(const net::Status& status) {
  Json json = {{"job", status.job},
               {"state", status.state},
               {"steps_done", status.steps_done},
               {"steps_total", status.steps_total},
               {"loss", status.loss},
               {"tokens_per_second", status.tokens_per_second},
               {"generation", status.generation},
               {"term", status.term},
               {"folder", status.run_folder},
               {"workers", Json::array()}};
  for (const net::WorkerStatus& worker : status.workers) {
    Json replicas = Json::array();
    for (const std::string& replica : worker.replicas) replicas.push_back(replica);
    json["workers"].push_back({{"worker", worker.worker.value},
                               {"host", worker.host_name},
                               {"pid", worker.process_id},
                               {"device", worker.device},
                               {"steps_done", worker.steps_done},
                               {"heartbeat_age_ms", worker.heartbeat_age_ms},
                               {"replicas", replicas}});
  }
  return json;
}

void print_table(const net::Status& status) {
  // Neither is known before a step has ended.
  const bool has_loss = status.loss > 0;
  const bool has_rate = status.tokens_per_second > 0;
  std::printf("%s: %s, step %llu/%llu, loss %s, %s tok/s, generation %llu, term %llu\n",
              status.job.c_str(), status.state.c_str(),
              static_cast<unsigned long long>(status.steps_done),
              static_cast<unsigned long long>(status.steps_total),
              has_loss ? absl::StrFormat("%.4f", status.loss).c_str() : "-",
              has_rate ? absl::StrFormat("%.0f", status.tokens_per_second).c_str() : "-",
              static_cast<unsigned long long>(status.generation),
              static_cast<unsigned long long>(status.term));
  int width = 10;  // GPUs have long names.
  for (const net::WorkerStatus& worker : status.workers) {
    width = std::max(width, static_cast<int>(worker.device.size()));
  }
  std::printf("%-7s %-20s %-8s %-*s %-7s %-10s %s\n", "worker", "host", "pid", width, "device",
              "steps", "heard", "replicas");
  for (const net::WorkerStatus& worker : status.workers) {
    std::string replicas;
    for (const std::string& replica : worker.replicas) {
      absl::StrAppend(&replicas, replicas.empty() ? "" : "; ", with_ranges(replica));
    }
    const std::string heard = absl::StrCat(worker.heartbeat_age_ms, " ms");
    std::printf("w%-6u %-20s %-8u %-*s %-7llu %-10s %s\n", worker.worker.value,
                worker.host_name.c_str(), worker.process_id, width, worker.device.c_str(),
                static_cast<unsigned long long>(worker.steps_done), heard.c_str(),
                replicas.empty() ? "idle" : replicas.c_str());
  }
}

absl::Status print_one(const std::string& where, bool as_json) {
  const absl::StatusOr<RunFolder> folder = open_run_folder(where);
  const absl::StatusOr<std::string> address = coordinator_address(where);
  SKEIN_ASSIGN_OR_RETURN(std::unique_ptr<net::EventLoop> loop, net::EventLoop::start());
  const absl::StatusOr<net::Status> answer =
      address.ok() ? ask_coordinator(*loop, *address, {net::StatusRequest()}) : address.status();
  // After its end, another run may listen at a run's address.
  const bool is_answered = answer.ok() && (!folder.ok() || answer->run_folder == folder->path);
  if (!is_answered && folder.ok() && !actors::RunLock::is_held(folder->path)) {
    return print_ended_run(*folder, as_json);
  }
  SKEIN_RETURN_IF_ERROR(with_hint(where, answer.status()));
  const net::Status& status = *answer;
  if (as_json) {
    std::printf("%s\n", json_text(to_json(status), 2).c_str());
  } else {
    print_table(status);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status print_status(const std::vector<std::string>& where, bool as_json) {
  absl::Status first;
  for (const std::string& each : where) first.Update(print_one(each, as_json));
  return first;
}

}  // namespace skein::cli
