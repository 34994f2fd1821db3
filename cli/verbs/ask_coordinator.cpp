#include "cli/verbs/ask_coordinator.hpp"

#include <chrono>
#include <fstream>
#include <future>
#include <memory>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "cli/run/run_folder.hpp"
#include "gpu/files/check_there.hpp"
#include "net/address.hpp"
#include "net/control/control_link.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

constexpr double kTimeoutSeconds = 3;

/// What one exchange needs, kept alive by the callbacks.
struct Exchange {
  std::promise<absl::StatusOr<net::Status>> answer;
  bool answered = false;  // Touched on the event loop's thread only.

  void give(absl::StatusOr<net::Status> result) {
    if (std::exchange(answered, true)) return;
    answer.set_value(std::move(result));
  }
};

}  // namespace

absl::StatusOr<std::string> coordinator_address(const std::string& where) {
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

absl::StatusOr<net::Status> ask_coordinator(net::EventLoop& loop, const std::string& address,
                                            const std::vector<net::ControlBody>& requests) {
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

}  // namespace skein::cli
