#include "cli/verbs/status.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "actors/coordinator/run_lock.hpp"
#include "cli/config/job_file.hpp"
#include "cli/config/json_text.hpp"
#include "cli/config/text_file.hpp"
#include "cli/report/number_text.hpp"
#include "cli/run/run_folder.hpp"
#include "gpu/checkpoint/checkpoint.hpp"
#include "gpu/checkpoint/emergency_shards.hpp"
#include "gpu/checkpoint/trainer_state.hpp"
#include "gpu/files/check_there.hpp"
#include "gpu/files/mapped_file.hpp"
#include "net/address.hpp"
#include "net/control/control_link.hpp"
#include "net/event_loop.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

constexpr double kTimeoutSeconds = 3;

/// NotFound if `where` is neither a run folder nor an address.
absl::StatusOr<std::string> address_of(const std::string& where) {
  std::ifstream file(where + "/coordinator.address");
  std::string address;
  if (file && std::getline(file, address)) return address;
  if (net::parse_address(where).ok()) return where;
  const absl::Status there = gpu::check_there(where);
  if (absl::IsNotFound(there)) return absl::NotFoundError(absl::StrCat("no run folder ", where));
  SKEIN_RETURN_IF_ERROR(there);
  SKEIN_RETURN_IF_ERROR(open_run_folder(where).status());
  return absl::UnavailableError(absl::StrCat(where, ": the run has no coordinator yet"));
}

absl::Status with_hint(const std::string& where, const absl::Status& status) {
  if (where != kStatusAddress || !absl::IsUnavailable(status)) return status;
  return absl::UnavailableError(absl::StrCat(
      std::string(status.message()), " (skein status outputs/latest asks a run by its folder)"));
}

/// What one exchange needs, kept alive by the callbacks.
struct Exchange {
  std::promise<absl::StatusOr<net::Status>> answer;
  bool answered = false;  // Touched on the event loop's thread only.

  void give(absl::StatusOr<net::Status> result) {
    if (std::exchange(answered, true)) return;
    answer.set_value(std::move(result));
  }
};

using Requests = std::vector<net::ControlBody>;

/// Sends the requests, the last of which is answered with a status.
absl::StatusOr<net::Status> ask(net::EventLoop& loop, const std::string& address,
                                const Requests& requests) {
  auto exchange = std::make_shared<Exchange>();
  net::ControlLink::Handlers handlers = {
      [exchange](net::Envelope message) {
        if (auto* status = std::get_if<net::Status>(&message.body)) {
          exchange->give(std::move(*status));
        } else if (const auto* refused = std::get_if<net::Refused>(&message.body)) {
          exchange->give(absl::FailedPreconditionError(refused->reason));
        }
      },
      [exchange](absl::Status why) { exchange->give(std::move(why)); }};
  net::ConnectOptions options;
  options.address = address;
  options.role = net::schema::Role::VIEWER;
  options.timeout_seconds = 0;
  auto link = std::make_shared<std::shared_ptr<net::ControlLink>>();
  net::connect_control(
      loop, options, std::move(handlers),
      [exchange, link, requests](absl::StatusOr<std::shared_ptr<net::ControlLink>> made) {
        if (!made.ok()) return exchange->give(made.status());
        *link = *made;
        for (const net::ControlBody& request : requests) (*made)->send(net::encode({}, request));
      });
  auto answer = exchange->answer.get_future();
  if (answer.wait_for(std::chrono::duration<double>(kTimeoutSeconds)) !=
      std::future_status::ready) {
    return absl::DeadlineExceededError(absl::StrCat(address, " does not answer"));
  }
  absl::StatusOr<net::Status> result = answer.get();
  link->reset();
  return result;
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

/// The last step in a run's metrics.jsonl; null if there is none. An error if it cannot be read.
absl::StatusOr<Json> last_step(const RunFolder& folder) {
  constexpr std::streamoff kTailBytes = 1 << 20;  // Many lines more than follow the last step's.
  const std::string path = folder.file("metrics.jsonl");
  const absl::Status readable = gpu::MappedFile::open(path).status();
  if (absl::IsNotFound(readable)) return Json();
  SKEIN_RETURN_IF_ERROR(readable);
  std::ifstream file(path, std::ios::ate);
  file.seekg(std::max<std::streamoff>(0, file.tellg() - kTailBytes));
  Json last;
  for (std::string line; std::getline(file, line);) {
    Json row = parse_json(line);
    if (text_at(row, "kind") == "step") last = std::move(row);
  }
  return last;
}

/// What a run has on disk.
struct Saved {
  std::string checkpoint;   // The newest one's folder; empty: it has none.
  uint64_t left_steps = 0;  // What its workers have left is after so many; 0: nothing.
};

/// An error says what is to be put right before anybody can go on from it.
absl::StatusOr<Saved> find_saved(const RunFolder& folder) {
  SKEIN_ASSIGN_OR_RETURN(const std::string run, find_run_id(folder));
  const auto own = gpu::own_checkpoints(folder.path, run);
  if (!own.ok() && !absl::IsNotFound(own.status())) return own.status();
  return Saved{own.ok() ? own->folders.front() : "", gpu::newest_left_state(folder.path, run)};
}

/// Whether the newest checkpoint has the state after so many steps.
absl::StatusOr<bool> has_checkpoint(const absl::StatusOr<Saved>& saved, int64_t steps) {
  SKEIN_RETURN_IF_ERROR(saved.status());
  if (saved->checkpoint.empty()) return false;
  SKEIN_ASSIGN_OR_RETURN(const gpu::TrainerState state, gpu::read_trainer_state(saved->checkpoint));
  return state.steps_done >= static_cast<uint64_t>(steps);
}

/// How a run goes on that nobody runs any more.
std::string way_on(const RunFolder& folder, const absl::StatusOr<Saved>& saved) {
  const std::string resumed = absl::StrCat("skein train --resume ", folder.path, " goes on");
  if (!saved.ok()) {
    return absl::StrCat(resumed, " once this is put right: ", saved.status().message());
  }
  std::string from = saved->checkpoint.empty()
                         ? "the beginning, as it has no checkpoint"
                         : std::filesystem::path(saved->checkpoint).filename().string();
  if (saved->left_steps > 0) {
    from = absl::StrCat("step ", saved->left_steps,
                        " if what its workers have left of it is whole, else from ", from);
  }
  return absl::StrCat(resumed, " from ", from,
                      " (skein coordinator --resume ... --listen ADDRESS, with what ",
                      "they hold, if workers still wait for it there)");
}

/// What the folder of a run says that no coordinator runs any more.
absl::Status print_ended(const RunFolder& folder, bool as_json) {
  SKEIN_ASSIGN_OR_RETURN(const std::string text, read_resolved_job(folder));
  SKEIN_ASSIGN_OR_RETURN(const plans::JobSpec job, parse_job(text));
  SKEIN_ASSIGN_OR_RETURN(const Json step, last_step(folder));
  const int64_t done = number_at<int64_t>(step, "step", 0);
  const bool has_all_steps = done >= job.training.steps;
  const absl::StatusOr<Saved> saved = find_saved(folder);
  absl::StatusOr<bool> is_last_saved = true;
  if (has_all_steps && job.checkpoint.enable) is_last_saved = has_checkpoint(saved, done);
  const bool is_complete = has_all_steps && is_last_saved.value_or(true);
  if (as_json) {
    Json json = {{"job", folder.job_id},  {"state", is_complete ? "done" : "ended"},
                 {"steps_done", done},    {"steps_total", job.training.steps},
                 {"folder", folder.path}, {"workers", Json::array()}};
    if (done > 0 && step.contains("loss")) json["loss"] = step["loss"];
    std::printf("%s\n", json_text(json, 2).c_str());
    return absl::OkStatus();
  }
  std::string line = absl::StrFormat("%s: the run has ended, at step %d/%d", folder.job_id, done,
                                     job.training.steps);
  const double loss = number_at<double>(step, "loss", NAN);
  if (done > 0 && !std::isnan(loss)) absl::StrAppendFormat(&line, ", loss %.4f", loss);
  if (!is_complete) {
    absl::StrAppend(&line, has_all_steps ? "; its last step is in no checkpoint" : "", "; ",
                    way_on(folder, saved));
  } else if (!is_last_saved.ok()) {
    absl::StrAppend(&line, "; its last step may not be saved: ", is_last_saved.status().message());
  }
  std::printf("%s\n", line.c_str());
  return absl::OkStatus();
}

absl::Status print_one(const std::string& where, bool as_json) {
  const absl::StatusOr<RunFolder> folder = open_run_folder(where);
  const absl::StatusOr<std::string> address = address_of(where);
  SKEIN_ASSIGN_OR_RETURN(std::unique_ptr<net::EventLoop> loop, net::EventLoop::start());
  const absl::StatusOr<net::Status> answer =
      address.ok() ? ask(*loop, *address, {net::StatusRequest()}) : address.status();
  // After its end, another run may listen at a run's address.
  const bool is_answered = answer.ok() && (!folder.ok() || answer->run_folder == folder->path);
  if (!is_answered && folder.ok() && !actors::RunLock::is_held(folder->path)) {
    return print_ended(*folder, as_json);
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

absl::Status drain_worker(const std::string& where, uint32_t worker) {
  SKEIN_ASSIGN_OR_RETURN(const std::string address, address_of(where));
  SKEIN_ASSIGN_OR_RETURN(std::unique_ptr<net::EventLoop> loop, net::EventLoop::start());
  // Asked twice: who is a member before it is told to leave.
  SKEIN_ASSIGN_OR_RETURN(const net::Status before, ask(*loop, address, {net::StatusRequest()}));
  std::vector<std::string> members;
  for (const net::WorkerStatus& each : before.workers) {
    members.push_back(absl::StrCat("w", each.worker.value));
  }
  if (std::find(members.begin(), members.end(), absl::StrCat("w", worker)) == members.end()) {
    return absl::NotFoundError(
        absl::StrCat("there is no worker w", worker, "; the run has ",
                     members.empty() ? "none" : absl::StrJoin(members, ", ")));
  }
  const Requests requests = {net::DrainRequest{{worker}}, net::StatusRequest()};
  SKEIN_RETURN_IF_ERROR(ask(*loop, address, requests).status());
  std::printf(
      members.size() > 1
          ? "w%u is to leave: its state moves to the others after the step in progress\n"
          : "w%u is to leave: it is the only worker, and stays until another one joins that "
            "can take over its state\n",
      worker);
  return absl::OkStatus();
}

absl::Status print_status(const std::vector<std::string>& where, bool as_json) {
  absl::Status first;
  for (const std::string& each : where) first.Update(print_one(each, as_json));
  return first;
}

}  // namespace skein::cli
