#include "cli/verbs/status.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <future>
#include <memory>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "net/control/control_link.hpp"
#include "net/event_loop.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

constexpr double kTimeoutSeconds = 3;

std::string address_of(const std::string& where) {
  std::ifstream file(where + "/coordinator.address");
  std::string address;
  return file && std::getline(file, address) ? address : where;
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

nlohmann::ordered_json to_json(const net::Status& status) {
  nlohmann::ordered_json json = {{"job", status.job},
                                 {"state", status.state},
                                 {"steps_done", status.steps_done},
                                 {"steps_total", status.steps_total},
                                 {"loss", status.loss},
                                 {"tokens_per_second", status.tokens_per_second},
                                 {"generation", status.generation},
                                 {"term", status.term},
                                 {"folder", status.run_folder},
                                 {"workers", nlohmann::ordered_json::array()}};
  for (const net::WorkerStatus& worker : status.workers) {
    nlohmann::ordered_json replicas = nlohmann::ordered_json::array();
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
  std::printf("%s: %s, step %llu/%llu, loss %.4f, %.0f tok/s, generation %llu, term %llu\n",
              status.job.c_str(), status.state.c_str(),
              static_cast<unsigned long long>(status.steps_done),
              static_cast<unsigned long long>(status.steps_total), status.loss,
              status.tokens_per_second, static_cast<unsigned long long>(status.generation),
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
      absl::StrAppend(&replicas, replicas.empty() ? "" : "; ", replica);
    }
    const std::string heard = absl::StrCat(worker.heartbeat_age_ms, " ms");
    std::printf("w%-6u %-20s %-8u %-*s %-7llu %-10s %s\n", worker.worker.value,
                worker.host_name.c_str(), worker.process_id, width, worker.device.c_str(),
                static_cast<unsigned long long>(worker.steps_done), heard.c_str(),
                replicas.empty() ? "idle" : replicas.c_str());
  }
}

}  // namespace

absl::Status drain_worker(const std::string& where, uint32_t worker) {
  SKEIN_ASSIGN_OR_RETURN(std::unique_ptr<net::EventLoop> loop, net::EventLoop::start());
  // Asked twice: who is a member before it is told to leave.
  SKEIN_ASSIGN_OR_RETURN(const net::Status before,
                         ask(*loop, address_of(where), {net::StatusRequest()}));
  std::vector<std::string> members;
  for (const net::WorkerStatus& each : before.workers) {
    members.push_back(absl::StrCat("w", each.worker.value));
  }
  if (std::find(members.begin(), members.end(), absl::StrCat("w", worker)) == members.end()) {
    return absl::NotFoundError(absl::StrCat("there is no worker w", worker, "; the run has ",
                                            absl::StrJoin(members, ", ")));
  }
  const Requests requests = {net::DrainRequest{{worker}}, net::StatusRequest()};
  SKEIN_RETURN_IF_ERROR(ask(*loop, address_of(where), requests).status());
  std::printf("w%u is to leave: its state moves to the others after the step in progress\n",
              worker);
  return absl::OkStatus();
}

absl::Status print_status(const std::string& where, bool as_json) {
  SKEIN_ASSIGN_OR_RETURN(std::unique_ptr<net::EventLoop> loop, net::EventLoop::start());
  SKEIN_ASSIGN_OR_RETURN(const net::Status status,
                         ask(*loop, address_of(where), {net::StatusRequest()}));
  if (as_json) {
    std::printf("%s\n", to_json(status).dump(2).c_str());
  } else {
    print_table(status);
  }
  return absl::OkStatus();
}

}  // namespace skein::cli
